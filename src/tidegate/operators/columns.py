"""Arrow columns seen as NumPy arrays: values, validity, order, identity, hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.query.schema import canonical, contiguous, is_decimal, is_text

Array = np.ndarray[Any, Any]

INT64 = pa.int64()
_SIGN = np.int64(-(2**63))
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)


def valid_mask(array: pa.Array) -> Array:
    """True where a value is not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def as_numpy(column: pa.Array | pa.ChunkedArray, kind: pa.DataType = INT64) -> Array:
    """The values of a column as one NumPy type; what it holds where it is null is not defined."""
    array = contiguous(column)
    if pa.types.is_timestamp(array.type) and pa.types.is_int64(kind):
        array = array.view(kind)  # a cast would give the same, after many times as long
    elif array.type != kind:
        # Arrow casts dates to no other number.
        array = (array.view(pa.int32()) if pa.types.is_date32(array.type) else array).cast(kind)
    return np.asarray(array.fill_null(0) if array.null_count else array)


def known_times(column: pa.Array) -> Array:
    """The event times of a column, in microseconds, without those that are missing. Does not give the interpreter away."""
    return as_numpy(column.drop_null() if column.null_count else column)


def in_time_order(tuples: pa.Table, times: Array) -> tuple[pa.Table, Array]:
    """Tuples and their times in the order of time; ties stay as they are."""
    if len(times) < 2 or (times[1:] >= times[:-1]).all():
        return tuples, times
    order = np.argsort(times, kind="stable")
    return tuples.take(pa.array(order)), times[order]


def is_first(values: Array) -> Array:
    """Mark the values that differ from the one before them.

    >>> is_first(np.array([4, 4, 7])).tolist()
    [True, False, True]
    """
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]


def expand_ranges(first: Array, counts: Array) -> tuple[Array, Array]:
    """``counts[i]`` consecutive numbers from ``first[i]`` on, for each i: which i each is of, and the numbers.

    >>> [each.tolist() for each in expand_ranges(np.array([5, 8]), np.array([2, 1]))]
    [[0, 0, 1], [5, 6, 8]]
    """
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) + (first - (np.cumsum(counts) - counts))[which]


def list_offsets(lengths: Array) -> Array:
    """The offsets of lists of some lengths.

    >>> list_offsets(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    return np.concatenate([[0], np.cumsum(lengths)])


def canonical_floats(array: pa.Array) -> pa.Array:
    """A float column with one NaN and no −0.0; other columns as they are."""
    if not pa.types.is_floating(array.type):
        return array
    values = as_numpy(array, array.type) + 0.0
    values[np.isnan(values)] = np.nan
    return pa.array(values, array.type, mask=~valid_mask(array) if array.null_count else None)


def order_codes(array: pa.Array) -> Array:
    """Integers that compare as the values do in canonical order; nulls get a code below all others where it matters."""
    kind = array.type
    if pa.types.is_nested(kind):
        keys = [canonical(value) for value in array.to_pylist()]
        rank = {key: position for position, key in enumerate(sorted(set(keys)))}
        return np.array([rank[key] for key in keys], np.int64)
    if array.null_count == 0 and not is_text(kind) and not is_decimal(kind):
        return _bits(array)
    if pa.types.is_floating(kind):
        array = pa.array(_bits(array), mask=~valid_mask(array))
    encoded = array.dictionary_encode()
    rank_of = np.empty(len(encoded.dictionary), np.int64)
    rank_of[np.asarray(pc.sort_indices(encoded.dictionary))] = np.arange(1, len(rank_of) + 1)
    codes = as_numpy(encoded.indices)
    if len(rank_of) == 0:
        return np.zeros(len(array), np.int64)
    return np.where(valid_mask(array), rank_of[codes], 0)


def rough_codes(array: pa.Array) -> Array:
    """Integers that compare as the values do in canonical order, but that are equal for some texts that differ.

    Nulls have any.
    """
    if not is_text(array.type) or pa.types.is_dictionary(array.type):
        return order_codes(array)
    from tidegate.operators.leading import text_codes

    return text_codes(*byte_layout(array))


def sort_rows(first: Array, then: Sequence[pa.Array | pa.ChunkedArray], descending: bool = False) -> Array:
    """The order of rows by ``first`` and, where that is equal, by columns in canonical order, left to right.

    A column is looked at only in rows that are equal in everything before it, so what differs early costs one sort.
    ``descending`` reverses the order.

    >>> sort_rows(np.array([7, 4, 7]), [pa.array(["b", "c", "a"])]).tolist()
    [1, 2, 0]
    """
    first = ~first if descending else first  # never overflows, as a negative would
    order = np.argsort(first, kind="stable")
    places, values = np.arange(len(order)), first[order]
    starts = is_first(values)
    for column in then:
        shared = ~starts
        shared[:-1] |= ~starts[1:]
        if not shared.any():
            break
        places, groups = places[shared], np.cumsum(starts[shared])
        among = order[places]
        codes = order_codes(contiguous(column.take(pa.array(among))))
        within = np.lexsort((~codes if descending else codes, groups))
        order[places] = among[within]
        starts = is_first(groups) | is_first(codes[within])
    return order


def identity_codes(array: pa.Array) -> tuple[Array, int]:
    """Dense integers that are equal where the values are (null is a value), and how many there are."""
    if not pa.types.is_dictionary(array.type):
        array = canonical_floats(array).dictionary_encode(null_encoding="encode")
        return np.asarray(array.indices), len(array.dictionary)
    codes, distinct = identity_codes(array.dictionary)
    indices = as_numpy(array.indices)
    if len(codes) and distinct != len(codes):
        indices = codes[indices]
    elif array.indices.null_count == 0:
        return indices, max(distinct, 1)
    # A null index and a null in the dictionary are the same key.
    null_code = distinct
    if array.dictionary.null_count:
        null_code = int(codes[int(np.flatnonzero(~valid_mask(array.dictionary))[0])])
    return np.where(valid_mask(array.indices), indices, null_code), distinct + 1


def hashes(array: pa.Array) -> Array:
    """A stable 64-bit hash of each value; equal values hash equally, whatever the encoding."""
    if pa.types.is_dictionary(array.type):
        of_values = np.append(hashes(array.dictionary), _NULL_HASH)
        return of_values[np.where(valid_mask(array.indices), as_numpy(array.indices), len(of_values) - 1)]
    if is_text(array.type):
        # Imported here: numba takes a while, and a query can be built without it.
        from tidegate.operators.kernels import hash_bytes

        offsets, data = byte_layout(array)
        found = mix(hash_bytes(offsets, data))
    elif is_decimal(array.type):
        low, high = decimal_words(array).T
        found = mix(low + mix(high))
    else:
        found = mix(_bits(canonical_floats(array)).view(np.uint64))
    return np.where(valid_mask(array), found, _NULL_HASH)


def decimal_words(array: pa.Array) -> Array:
    """The digits of each decimal as a number of two words, the low one and the high one, without the point."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros((len(array), 2), np.uint64)
    return np.frombuffer(data, np.uint64, 2 * len(array), 16 * array.offset).reshape(-1, 2)


def byte_layout(array: pa.Array) -> tuple[Array, Array]:
    """Offsets and bytes of a string or binary column."""
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4) if offsets else np.zeros(1, np.int32)
    letters = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    # Loops are compiled anew for arrays that can be written, as some of Arrow's can.
    starts.flags.writeable = letters.flags.writeable = False
    return starts, letters


def mix(values: Array) -> Array:
    """The finaliser of SplitMix64, vectorised."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Array = values ^ (values >> np.uint64(31))
        return mixed


def combine_hashes(parts: Sequence[Array]) -> Array:
    """One hash for each row of the hashes of its parts."""
    combined = parts[0]
    with np.errstate(over="ignore"):
        for part in parts[1:]:
            combined = mix(combined * np.uint64(31) + part)
    return combined


def _bits(array: pa.Array) -> Array:
    """Order-preserving int64 of a fixed-width column."""
    if not pa.types.is_floating(array.type):
        return as_numpy(array)
    bits = as_numpy(canonical_floats(array), pa.float64()).astype(np.float64).view(np.int64)
    return np.where(bits < 0, _SIGN - bits, bits) if len(bits) else bits
