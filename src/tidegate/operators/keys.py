"""The keys of tuples: which keys each tuple has, codes and dense slots for them, and stable hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import (
    Array,
    as_numpy,
    byte_layout,
    combine_hashes,
    hashes,
    identity_codes,
    list_offsets,
    valid_mask,
)
from tidegate.query.keys import PARTS, Columns, Each, KeyFunction, KeyParts, Keys, OneForAll, Words
from tidegate.query.schema import contiguous
from tidegate.state.epochs import SHARDS_OF_A_STEP

_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class Grouped:
    """Slots: ``groups[i]`` is that of contribution ``i``; per slot its code, ascending, and its first contribution."""

    groups: Array
    ids: Array
    first: Array

    @property
    def size(self) -> int:
        return len(self.ids)


def key_codes(columns: Sequence[pa.Array]) -> tuple[Array, int]:
    """A code per row, equal where all key columns are, and a bound above every code."""
    codes, bound = _column_codes(columns[0])
    for column in columns[1:]:
        others, size = _column_codes(column)
        if bound * size >= _LARGEST:
            codes, bound = _densify(codes, bound)
        codes, bound = codes.astype(np.int64) * size + others, bound * size
    return _densify(codes, bound) if bound > 4 * len(codes) + 65_536 else (codes, bound)


def _column_codes(column: pa.Array) -> tuple[Array, int]:
    """A code per row of one key column. Whole numbers that lie close together are their own codes: no table is needed."""
    if pa.types.is_signed_integer(column.type) and column.null_count == 0 and len(column):
        values = as_numpy(column)
        low, span = int(values.min()), int(values.max()) - int(values.min()) + 1
        if span <= 2 * len(values) + 4_096:
            return values - low, span
    return identity_codes(column)


def group(codes: Array, bound: int) -> Grouped:
    """Dense slots for codes below a bound, in the order of the codes."""
    if bound > 8 * len(codes) + 1_048_576:
        ids, first, groups = np.unique(codes, return_index=True, return_inverse=True)
        return Grouped(groups, ids, first)
    from tidegate.operators.kernels import dense_slots

    return Grouped(*dense_slots(codes, bound))


def distinct(values: Array) -> tuple[Array, Array]:
    """The distinct values of an int64 array, ascending, and for each element which of them it is.

    >>> distinct(np.array([7, 4, 7]))
    (array([4, 7]), array([1, 0, 1]))
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > len(values) + 1_024:
        seen, places = np.unique(values, return_inverse=True)
        return seen, places.astype(np.int64, copy=False)
    # Slices lie close together: counting is cheaper than sorting.
    grouped = group(values - low, high - low + 1)
    return grouped.ids + low, grouped.groups


def key_hashes(columns: Sequence[pa.Array]) -> Array:
    """A stable hash of each (composite) key."""
    return combine_hashes([hashes(column) for column in columns])


def shards_of(key_hashes: Array, shards: int) -> Array:
    """The shard of each key by its hash."""
    found: Array = (key_hashes % np.uint64(shards)).astype(np.int64)
    return found


def step_shards(key_hashes: Array) -> Array:
    """The shard of each key among those of a whole step, by other bits of its hash than the shard inside a cell."""
    found: Array = ((key_hashes >> np.uint64(32)) % np.uint64(SHARDS_OF_A_STEP)).astype(np.int64)
    return found


def spread_parts(key_hashes: Array, parts: Array) -> Array:
    """The hashes of parts of keys, from those of the keys: the parts of one key are evenly far apart among all shards."""
    step = np.uint64((SHARDS_OF_A_STEP // PARTS << 32) + SHARDS // PARTS)
    with np.errstate(over="ignore"):
        found: Array = key_hashes + parts.astype(np.uint64) * step
    return found


def compact(column: pa.Array) -> pa.Array:
    """A dictionary column without the values that no row uses; other columns as they are."""
    if not pa.types.is_dictionary(column.type) or len(column.dictionary) <= len(column):
        return column
    used = group(np.asarray(column.indices.drop_null()), len(column.dictionary))
    indices = np.zeros(len(column), np.int32)
    valid = np.asarray(column.indices.is_valid())
    indices[valid] = used.groups
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=~valid), column.dictionary.take(pa.array(used.ids)))


def _densify(codes: Array, bound: int) -> tuple[Array, int]:
    """The ranks of codes below a bound. They keep the order of the codes: results that leave sorted are written faster."""
    from tidegate.operators.kernels import dense_ranks

    return dense_ranks(codes.astype(np.int64), bound.bit_length())


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
        from tidegate.operators.kernels import first_in_row

        keep = first_in_row(self.offsets, codes, bound)
        return None if keep.all() else np.flatnonzero(keep)


def key_sets(keys: Keys, rows: pa.Table) -> KeySets:
    """The keys of each row (STRETCH's f_MK)."""
    match keys:
        case Columns(names):
            return KeySets(tuple(contiguous(rows.column(name)) for name in names), None, None, True)
        case OneForAll():
            return KeySets((pa.nulls(rows.num_rows, pa.bool_()),), None, None, True)
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
        case KeyParts(whole, by):
            found = key_sets(whole, rows)
            parts = shards_of(key_hashes([contiguous(rows.column(name)) for name in by]), PARTS)
            column = pa.array(parts if found.rows is None else parts[found.rows])
            return KeySets((*found.columns, column), found.rows, found.offsets, found.repeats)
        case _:
            raise InternalError(f"unknown keys {keys!r}")


def _from_lists(lists: pa.ListArray, names: tuple[str, ...], repeats: bool) -> KeySets:
    values = lists.flatten()
    lengths = np.asarray(lists.value_lengths().fill_null(0))
    offsets, rows = list_offsets(lengths), np.repeat(np.arange(len(lengths)), lengths)
    composite = pa.types.is_struct(values.type)
    columns = tuple(values.field(name) for name in names) if composite else (values,)
    return KeySets(columns, rows, offsets, repeats)


def words_of(texts: pa.StringArray, separator: str, distinct: bool) -> tuple[pa.DictionaryArray, Array, Grouped]:
    """The words of texts, the row of each, and their slots; with ``distinct``, each word once per text.

    >>> words, rows, slots = words_of(pa.array(["to be or", None, "to to"]), " ", True)
    >>> words.to_pylist(), rows.tolist(), slots.groups.tolist()
    (['to', 'be', 'or', 'to'], [0, 0, 0, 2], [0, 1, 2, 0])
    """
    # Imported here: numba takes a while, and a query can be built without it.
    from tidegate.operators.kernels import gather_bytes, larger, number_words

    offsets, data = byte_layout(texts)
    low, high = int(offsets[0]), int(offsets[-1])
    blocks = np.zeros((high - low) // 8 + 2, np.uint64)
    letters = blocks.view(np.uint8)
    letters[: high - low] = data[low:high]
    most = len(texts) + int(np.count_nonzero(letters[: high - low] == ord(separator)))
    room = max(64, 1 << len(texts).bit_length())
    table, found = np.zeros((2 * room, 2), np.uint64), np.empty((4, room), np.int64)
    entries, reached = np.empty((2, most), np.int64), np.zeros(3, np.int64)
    given = offsets - low, valid_mask(texts), blocks, letters, ord(separator), distinct, entries
    while number_words(*given, table, found, reached):
        table, found = larger(table), np.concatenate([found, np.empty_like(found)], axis=1)
    _, size, count = reached.tolist()
    codes, rows = entries[:, :size]
    first, starts, stops, _ = found[:, :count]
    ends, bytes_of_words = gather_bytes(letters, starts, stops)
    vocabulary = pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(bytes_of_words))
    words = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), vocabulary)
    return words, rows, Grouped(codes, np.arange(count), first)
