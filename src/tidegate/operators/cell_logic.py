"""The seam between a runtime that owns cells and the operators that work in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from tidegate.operators.exchange import Delta
from tidegate.operators.instances import Instances
from tidegate.state.chunks import ChunkStore
from tidegate.watermark import Watermark


class OpenCell(Protocol):
    """A cell at work for one call of its runtime; what it keeps is in its store when the call ends.

    ``receive`` is a batch: tuples that a stateful step made come before the watermark, those of sources after it.
    ``advance`` is for a cell without input whose time has come. Both yield results as they are made, and everything has to
    be taken. ``late`` counts the tuples of this call that were late.
    """

    @property
    def late(self) -> int: ...

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]: ...

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]: ...

    def next_due(self) -> int | None:
        """The watermark at which this cell may have something to do, or None."""
        ...


class CellLogic(Protocol):
    """How the cells of one stateful step work: a value that is shipped to workers."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of results."""
        ...

    @property
    def time(self) -> str:
        """Their event time."""
        ...

    def open(self, cell: int, store: ChunkStore, instances: Instances) -> OpenCell:
        """A cell, by its number, over what it kept."""
        ...
