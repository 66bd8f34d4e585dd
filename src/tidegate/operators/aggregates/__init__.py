"""Aggregates over columns: their interface here, the aggregates in the files beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from tidegate.operators.columns import Array


class Logic(Protocol):
    """An aggregate as state columns, one row per group.

    ``take[i]`` is the row of contribution ``i`` (None: every row once, in order) and ``groups[i]`` its slot, one of
    ``size``. A tuple with many keys contributes several times without being copied. Every slot gets a contribution.
    """

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The state's columns."""
        ...

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        """Reduce tuples to one state per slot."""
        ...

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        """Reduce states to one state per slot."""
        ...

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        """The aggregate's value for each state."""
        ...


@dataclass(frozen=True, slots=True)
class WindowSlots:
    """The slots of a run of windows, one for each window and key that has states.

    State ``i`` is of the key ``keys[i]`` and takes part in the windows ``begin[i]`` to ``end[i]``, numbered from 0; all of
    them have a slot for its key. Slot ``j`` is that of the window ``slot_windows[j]`` and the key ``slot_keys[j]``.
    """

    keys: Array
    begin: Array
    end: Array
    slot_keys: Array
    slot_windows: Array

    @property
    def size(self) -> int:
        return len(self.slot_keys)


@runtime_checkable
class OverWindows(Protocol):
    """An aggregate that gets from states to the values of overlapping windows without a copy of each for each window."""

    def over(self, states: Sequence[pa.Array], slots: WindowSlots) -> pa.Array:
        """The aggregate's value for each slot."""
        ...


@runtime_checkable
class OverStretches(Protocol):
    """An aggregate that gets from neighbouring states to the values of overlapping stretches of them without copies."""

    def over_stretches(self, states: Sequence[pa.Array], starts: Array, stops: Array) -> pa.Array:
        """The aggregate's value over the states ``starts[i]`` to before ``stops[i]``; neither ever falls."""
        ...


def taken(array: pa.Array, take: Array | None) -> pa.Array:
    """The contributions of a column."""
    return array if take is None else array.take(pa.array(take))
