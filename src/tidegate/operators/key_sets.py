"""The keys of a batch of tuples: key columns, and for each entry the row it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.operators.grouping import Grouped, key_codes
from tidegate.operators.word_sets import words_of
from tidegate.query.keys import Columns, Each, KeyFunction, Keys, Words
from tidegate.query.nodes import WindowAggregate
from tidegate.query.schema import contiguous

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class KeySets:
    """Entry ``i`` is a key of row ``rows[i]`` (None: one key per row); ``offsets`` bound the entries of each row.

    ``repeats`` says that every entry counts. ``slots`` are the distinct keys, where finding the keys has found them too.
    """

    columns: tuple[pa.Array, ...]
    rows: Array | None
    offsets: Array | None
    repeats: bool
    slots: Grouped | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def may_repeat(self) -> bool:
        """Whether some row may have a key twice that counts once."""
        if self.repeats or self.offsets is None or not len(self):
            return False
        return bool((np.diff(self.offsets) > 1).any())

    def codes(self) -> tuple[Array, int]:
        """A code per entry, equal where the keys are, and a bound above every code."""
        return key_codes(self.columns) if self.slots is None else (self.slots.groups, self.slots.size)

    def entries(self, codes: Array, bound: int) -> Array | None:
        """The entries that count, given a code for each: every key once per row (None: all of them)."""
        if self.repeats or self.offsets is None:
            return None
        from tidegate.operators.kernels.loops import first_in_row

        keep = first_in_row(self.offsets, codes, bound)
        return None if keep.all() else np.flatnonzero(keep)


def key_sets(node: WindowAggregate, rows: pa.Table) -> KeySets:
    """The keys of each row of an aggregate's input."""
    return key_sets_of(node.keys, rows)


def key_sets_of(keys: Keys, rows: pa.Table) -> KeySets:
    """The keys of each row (STRETCH's f_MK)."""
    match keys:
        case Columns(names):
            return KeySets(tuple(contiguous(rows.column(name)) for name in names), None, None, True)
        case Each(column, _, distinct):
            return _from_lists(contiguous(rows.column(column)), (), not distinct)
        case Words(column, separator, _, distinct):
            words, entry_rows, slots = words_of(contiguous(rows.column(column)), separator, distinct)
            return KeySets((words,), entry_rows, None, True, slots)
        case KeyFunction(_, columns, reads, distinct):
            seen = rows if reads is None else rows.select(list(reads))
            batches = seen.combine_chunks().to_batches()
            batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=seen.schema)
            return _from_lists(keys.key_lists(batch), tuple(columns.names), not distinct)
        case _:
            raise InternalError(f"unknown keys {keys!r}")


def _from_lists(lists: pa.ListArray, names: tuple[str, ...], repeats: bool) -> KeySets:
    values = lists.flatten()
    if lists.null_count == 0:
        offsets = np.asarray(lists.offsets).astype(np.int64)
        offsets -= offsets[0]
        lengths = np.diff(offsets)
    else:
        lengths = np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.repeat(np.arange(len(lengths)), lengths)
    composite = pa.types.is_struct(values.type)
    columns = tuple(values.field(name) for name in names) if composite else (values,)
    return KeySets(columns, rows, offsets, repeats)
