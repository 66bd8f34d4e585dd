"""Idle sources: which are, and how far they are taken to have come meanwhile. The law, which every runtime asks.

A source with ``idle_after`` that has delivered nothing for so long is idle. It is taken to have come as far as the least of
the sources that are not idle and have not ended. Where there is none, nothing moves: no window ends for the clock alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.watermark import Watermark, has_ended


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far one source has come by what it delivered, and whether it is idle."""

    reached: Watermark
    idle: bool = False


def is_idle(idle_us: int | None, heard_us: float | None, clock_us: float | None) -> bool:
    """Whether a source that was heard last, or for the first time waited for, at a time of the clock is idle at another.

    >>> is_idle(10, 5, 15), is_idle(10, 5, 14), is_idle(None, 5, 10**9)
    (True, False, False)
    """
    if idle_us is None or heard_us is None or clock_us is None:
        return False
    return clock_us - heard_us >= idle_us


def passed_over(sources: Mapping[str, SourceProgress]) -> dict[str, Watermark]:
    """How far each source is taken to have come: one that is idle as far as the least of the others.

    >>> passed_over({"a": SourceProgress(7), "b": SourceProgress(3, idle=True)})
    {'a': 7, 'b': 7}
    >>> passed_over({"a": SourceProgress(7, idle=True), "b": SourceProgress(3, idle=True)})
    {'a': 7, 'b': 3}
    """
    live = [each.reached for each in sources.values() if not each.idle and not has_ended(each.reached)]
    return {
        name: max(each.reached, min(live)) if each.idle and live else each.reached for name, each in sources.items()
    }
