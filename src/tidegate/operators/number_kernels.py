"""The loops of hash tables of whole numbers (`numbering`); compiled by Numba.

As for `kernels`: plain NumPy arrays in, the GIL is released, and this module is imported inside functions. A table has a
power of two of places, each the number of a value, −1 for none; ``shift`` leaves as many bits of a hash as count them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tidegate.operators.columns import Array

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True, inline="always")
def _place(value: Any, shift: Any) -> Any:
    """Where to begin to search for a value."""
    mixed = np.uint64(value)
    return np.int64(((mixed ^ (mixed >> np.uint64(32))) * _FACTOR) >> np.uint64(shift))


@njit(cache=True, nogil=True)
def number_values(
    values: Array, table: Array, shift: int, distinct: Array, codes: Array, start: int, count: int
) -> tuple[int, int]:
    """Number values from ``start`` on in the order in which they first occur; ``count`` are numbered already.

    Filled in are the ``codes`` of values and the ``distinct`` ones by number. Stops where one more has no room; returned is
    how far it has come, and how many are numbered.
    """
    mask = len(table) - 1
    for i in range(start, values.size):
        value = values[i]
        place = _place(value, shift)
        code: Any = np.int64(table[place])
        while code >= 0 and distinct[code] != value:
            place = (place + 1) & mask
            code = np.int64(table[place])
        if code < 0:
            if count == distinct.size:
                return i, count
            code = count
            table[place], distinct[code] = code, value
            count += 1
        codes[i] = code
    return values.size, count


@njit(cache=True, nogil=True)
def place_values(distinct: Array, table: Array, shift: int) -> None:
    """Fill an empty table with the numbers of values that differ."""
    mask = len(table) - 1
    for code in range(distinct.size):
        place = _place(distinct[code], shift)
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = code


@njit(cache=True, nogil=True)
def find_values(values: Array, table: Array, shift: int, distinct: Array) -> Array:
    """The number of each value; −1 for those that have none."""
    mask = len(table) - 1
    codes = np.empty(values.size, np.int64)
    for i in range(values.size):
        place = _place(values[i], shift)
        code: Any = np.int64(table[place])
        while code >= 0 and distinct[code] != values[i]:
            place = (place + 1) & mask
            code = np.int64(table[place])
        codes[i] = code
    return codes


@njit(cache=True, nogil=True)
def rows_near(
    keys: Array, lows: Array, highs: Array, table: Array, shift: int, distinct: Array, starts: Array, times: Array
) -> tuple[Array, Array, Array]:
    """For each key the rows of its group with times from ``lows[i]`` to ``highs[i]``; those without any are left out.

    The rows of the group with number ``g`` go from ``starts[g]`` to before ``starts[g + 1]``, in the order of their
    ``times``. Returned is which keys have some, the first row of each, and the one behind its last.
    """
    mask = len(table) - 1
    found = np.empty((3, keys.size), np.int64)
    count = 0
    for i in range(keys.size):
        place = _place(keys[i], shift)
        code: Any = np.int64(table[place])
        while code >= 0 and distinct[code] != keys[i]:
            place = (place + 1) & mask
            code = np.int64(table[place])
        if code < 0:
            continue
        first, stop = starts[code], starts[code + 1]
        # Each is the place of the first time that is not below, or is above, a bound.
        if times[first] < lows[i]:
            upper = stop
            while first < upper:
                middle = (first + upper) >> 1
                if times[middle] < lows[i]:
                    first = middle + 1
                else:
                    upper = middle
        if first < stop and times[stop - 1] > highs[i]:
            lower = first
            while lower < stop:
                middle = (lower + stop) >> 1
                if times[middle] <= highs[i]:
                    lower = middle + 1
                else:
                    stop = middle
        if first < stop:
            found[0, count], found[1, count], found[2, count] = i, first, stop
            count += 1
    return found[0, :count].copy(), found[1, :count].copy(), found[2, :count].copy()


@njit(cache=True, nogil=True)
def pair_up(which: Array, lows: Array, highs: Array, pairs: int) -> tuple[Array, Array]:
    """All pairs of ``which[i]`` and the rows from ``lows[i]`` to before ``highs[i]``, of which there are so many."""
    one, other = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    at = 0
    for i in range(which.size):
        for row in range(lows[i], highs[i]):
            one[at], other[at] = which[i], row
            at += 1
    return one, other


@njit(cache=True, nogil=True)
def number_texts(
    hashes: Array,
    offsets: Array,
    data: Array,
    table: Array,
    shift: int,
    distinct: Array,
    edges: Array,
    store: Array,
    codes: Array,
    start: int,
    count: int,
    adds: bool,
) -> tuple[int, int]:
    """The same as `number_values` for texts, given the hash of each; without ``adds`` those that have no number get −1.

    The bytes of text ``i`` go from ``offsets[i]`` to before ``offsets[i + 1]`` of ``data``, those of number ``n`` from
    ``edges[n]`` to before ``edges[n + 1]`` of ``store``; ``distinct`` are hashes by number.
    """
    mask = len(table) - 1
    for i in range(start, hashes.size):
        value, first = hashes[i], np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - first
        place = _place(value, shift)
        code: Any = np.int64(table[place])
        while code >= 0:
            same = distinct[code] == value and edges[code + 1] - edges[code] == length
            held = edges[code]
            for at in range(length if same else 0):
                if store[held + at] != data[first + at]:
                    same = False
                    break
            if same:
                break
            place = (place + 1) & mask
            code = np.int64(table[place])
        if code < 0 and adds:
            held = edges[count]
            if count == distinct.size or held + length > store.size:
                return i, count
            code = count
            table[place], distinct[code], edges[code + 1] = code, value, held + length
            for at in range(length):
                store[held + at] = data[first + at]
            count += 1
        codes[i] = code
    return hashes.size, count
