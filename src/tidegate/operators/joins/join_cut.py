"""The state of a join in a snapshot: the tuples of both sides, in parts that are written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tidegate.operators.joins.result_rows import BothSides
from tidegate.state.chunks import Piece, encode
from tidegate.state.snapshot import SnapshotStore


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Arrivals:
    """Tuples of one side, by the numbers with which they arrived: from ``first`` on, before ``stop``."""

    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class JoinCut:
    """Both sides at a marker: what has arrived, in the parts in which it is written."""

    sides: BothSides
    parts: tuple[Sequence[Arrivals], Sequence[Arrivals]]

    def write(self, store: SnapshotStore) -> None:
        """Put all of it into a snapshot; see `StateCut`."""
        for side, parts in enumerate(self.parts):
            for part in parts:
                store.put(part, partial(self._piece, side, part), side)

    def _piece(self, side: int, part: Arrivals) -> Piece:
        rows = self.sides[side].rows(np.arange(part.first, part.stop))
        return Piece(part.first, part.stop, rows.num_rows, encode(rows))
