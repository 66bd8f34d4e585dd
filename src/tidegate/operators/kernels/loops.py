"""The loops that touch every tuple, compiled by Numba; the GIL is released while they run.

All take plain NumPy arrays. ``groups[i]`` is the slot of row ``i``; slots are dense.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS
_LOW = np.int64(0xFFFFFFFF)
_FNV = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)


@njit(cache=True, nogil=True)
def first_in_row(offsets: Array, codes: Array, size: int) -> Array:
    """Mark the first occurrence of each code within its row."""
    last = np.full(size, -1, np.int64)
    keep = np.empty(codes.size, np.bool_)
    for row in range(offsets.size - 1):
        for at in range(offsets[row], offsets[row + 1]):
            code = codes[at]
            keep[at] = last[code] != row
            last[code] = row
    return keep


@njit(cache=True, nogil=True)
def dense_slots(codes: Array, bound: int) -> tuple[Array, Array, Array]:
    """Number the codes that occur, in their order: the slot of each row, the code of each slot, its first row."""
    slot = np.full(bound, -1, np.int64)
    for i in range(codes.size):
        slot[codes[i]] = 0
    size = 0
    for code in range(bound):
        if slot[code] == 0:
            slot[code] = size
            size += 1
    ids, first, groups = np.empty(size, np.int64), np.full(size, -1, np.int64), np.empty(codes.size, np.int64)
    for i in range(codes.size):
        g = slot[codes[i]]
        groups[i] = g
        if first[g] < 0:
            first[g] = i
            ids[g] = codes[i]
    return groups, ids, first


@njit(cache=True, nogil=True)
def dense_ranks(codes: Array, bits: int) -> tuple[Array, int]:
    """Rank codes of so many bits, equal ones alike, by a radix sort; returns the ranks and how many there are."""
    keys, rows = codes.copy(), np.arange(codes.size)
    other_keys, other_rows = np.empty_like(keys), np.empty_like(rows)
    starts = np.empty(_DIGITS, np.int64)
    for shift in range(0, bits, _DIGIT_BITS):
        starts[:] = 0
        for key in keys:
            starts[(key >> shift) & (_DIGITS - 1)] += 1
        total = 0
        for digit in range(_DIGITS):
            total, starts[digit] = total + starts[digit], total
        for i in range(keys.size):
            digit = (keys[i] >> shift) & (_DIGITS - 1)
            other_keys[starts[digit]], other_rows[starts[digit]] = keys[i], rows[i]
            starts[digit] += 1
        keys, other_keys, rows, other_rows = other_keys, keys, other_rows, rows
    ranks, rank = np.empty(codes.size, np.int64), -1
    for i in range(keys.size):
        if i == 0 or keys[i] != keys[i - 1]:
            rank += 1
        ranks[rows[i]] = rank
    return ranks, rank + 1


@njit(cache=True, nogil=True)
def sum_halves(values: Array, valid: Array, groups: Array, size: int) -> tuple[Array, Array, Array]:
    """Add int64 values per slot as two halves of 32 bits, so that no order of addition can overflow."""
    high, low, count = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    for i in range(values.size):
        if valid[i]:
            g = groups[i]
            high[g] += values[i] >> 32
            low[g] += values[i] & _LOW
            count[g] += 1
    return high, low, count


@njit(cache=True, nogil=True)
def sum_floats(values: Array, valid: Array, groups: Array, size: int) -> tuple[Array, Array]:
    """Add float64 values per slot."""
    total, count = np.zeros(size, np.float64), np.zeros(size, np.int64)
    for i in range(values.size):
        if valid[i]:
            total[groups[i]] += values[i]
            count[groups[i]] += 1
    return total, count


@njit(cache=True, nogil=True)
def sum_integers(values: Array, groups: Array, size: int) -> Array:
    """Add int64 values that cannot overflow (counts, halves) per slot."""
    total = np.zeros(size, np.int64)
    for i in range(values.size):
        total[groups[i]] += values[i]
    return total


@njit(cache=True, nogil=True)
def extreme_row(codes: Array, valid: Array, groups: Array, size: int, sign: int) -> Array:
    """Find, per slot, the row with the least (sign 1) or greatest (sign −1) code; −1 where no row is valid."""
    best = np.full(size, -1, np.int64)
    for i in range(codes.size):
        if valid[i]:
            held = best[groups[i]]
            if held < 0 or (codes[i] < codes[held] if sign > 0 else codes[i] > codes[held]):
                best[groups[i]] = i
    return best


@njit(cache=True, nogil=True)
def hash_bytes(offsets: Array, data: Array) -> Array:
    """FNV-1a of each byte string, finished by a 64-bit mixer: stable across machines and versions."""
    made = np.empty(offsets.size - 1, np.uint64)
    for row in range(offsets.size - 1):
        h = _FNV
        for at in range(offsets[row], offsets[row + 1]):
            h = (h ^ np.uint64(data[at])) * _PRIME
        made[row] = h
    return made
