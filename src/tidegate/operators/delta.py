"""What crosses the exchange to a cell."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.state.chunk_store import Piece


@dataclass(frozen=True, slots=True)
class Delta:
    """What one task has for a cell: panes, or tuples of the input ``side``, or numbers of tuples.

    ``tuples`` says how many fell in which slices, or at which event times. Of each tuple exactly one cell is told, so that
    a late one is counted once, however many keys it has: by such numbers, or by the mark in its row. ``derived`` says that a
    stateful step made the tuples, as the watermark moved: then they come before the watermark and are never late.
    """

    piece: Piece | None
    tuples: tuple[tuple[int, int], ...] = ()
    derived: bool = False
    side: int = 0
