"""Window recreation: the owner before keeps the windows that are open, the one after takes those that begin later.

StreamCloud, §V.A.2, figure 10. No state is transferred at all; instead the tuples between the first window of the new
owner and the last one of the old go to both, and the move is complete when the old windows are closed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tidegate.control.controller import MoveCost
from tidegate.control.protocols.move import ShardMove


@dataclass(frozen=True, slots=True)
class WindowRecreation:
    """Its cost grows with the length of windows and with the rate, and not with the state.

    Let windows of length w begin every a. The new owner begins with the first window that starts at or after the switch s;
    the last one of the old began at s - a and ends at s - a + w. The tuples of that stretch of w - a belong to both; where
    windows do not overlap there are none. Counted from the newest tuple, s is at most a ahead, so the old windows are
    closed after w at the latest.
    """

    name: ClassVar[str] = "window recreation"

    def refused(self, move: ShardMove) -> str | None:
        return "its windows have no fixed start" if move.window_seconds is None else None

    def estimate(self, move: ShardMove) -> MoveCost:
        length, advance = move.window_seconds or 0.0, move.advance_seconds or 0.0
        doubled = math.ceil(move.tuples_per_second * max(length - advance, 0.0))
        twice = doubled * move.seconds_per_tuple / move.donors
        return MoveCost(twice, 2 * move.batch_seconds + length, tuples_doubled=doubled)
