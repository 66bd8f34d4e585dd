"""The loops that touch every tuple, compiled by Numba; the GIL is released while they run.

All take plain NumPy arrays. ``groups[i]`` is the slot of row ``i``; slots are dense. Import this module inside functions:
Numba takes a while to load, and a query can be built without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from tidegate.operators.columns import Array

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
def lower_times(least: Array, places: Array, times: Array) -> Array:
    """Lower ``least`` at some places to times that are less; the places where that was so, some of them more than once."""
    lowered = np.empty(places.size, np.int64)
    count = 0
    for i in range(places.size):
        if times[i] < least[places[i]]:
            least[places[i]] = times[i]
            lowered[count] = places[i]
            count += 1
    return lowered[:count].copy()


@njit(cache=True, nogil=True)
def nearest_times(groups: Array, times: Array, others: Array, size: int) -> tuple[Array, Array]:
    """Of each slot the latest other time at or before its own, and the earliest after it; the ends of int64 for none."""
    earlier, later = np.full(size, np.int64(-(2**63))), np.full(size, np.int64(2**63 - 1))
    for i in range(groups.size):
        g = groups[i]
        if others[i] <= times[i]:
            earlier[g] = max(earlier[g], others[i])
        else:
            later[g] = min(later[g], others[i])
    return earlier, later


@njit(cache=True, nogil=True)
def chain_in_time(codes: Array, times: Array, order: Array, bound: int, gap: int) -> tuple[Array, Array, Array, Array]:
    """Chains of rows of one code, in an order by time, each less than ``gap`` after the one before.

    The chain of each row, and of each chain its first row, and the times of its first and last.
    """
    current = np.full(bound, -1, np.int64)
    groups, first = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    starts, lasts = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    size = 0
    for at in range(order.size):
        i = order[at]
        g = current[codes[i]]
        if g < 0 or times[i] - lasts[g] >= gap:
            g = size
            current[codes[i]], first[g], starts[g] = g, i, times[i]
            size += 1
        lasts[g], groups[i] = times[i], g
    return groups, first[:size].copy(), starts[:size].copy(), lasts[:size].copy()


@njit(cache=True, nogil=True)
def merge_sessions(
    codes: Array, starts: Array, lasts: Array, order: Array, gap: int, most: int, settled: int
) -> tuple[Array, Array, Array, Array]:
    """Merge stretches of one code, in an order by code and start, that are one session.

    A stretch joins the one before when it starts less than ``gap`` after its last tuple and less than ``most`` after its
    first. What starts at ``settled`` or later joins what starts at the same time alone. Returned is the session of each
    stretch, and of each session its first stretch, and the times of its first and last tuples.
    """
    groups, first = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    begins, ends = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    size, code = 0, np.int64(-1)
    for at in range(order.size):
        i = order[at]
        g, start = size - 1, starts[i]
        if codes[i] == code and (
            start == begins[g] or (start < settled and start - ends[g] < gap and start - begins[g] < most)
        ):
            ends[g] = max(ends[g], lasts[i])
        else:
            g, code = size, codes[i]
            first[g], begins[g], ends[g] = i, start, lasts[i]
            size += 1
        groups[i] = g
    return groups, first[:size].copy(), begins[:size].copy(), ends[:size].copy()


@njit(cache=True, nogil=True)
def unfold_rounds(sizes: Array) -> tuple[Array, Array]:
    """The rounds of lists that loop: in each, a list that has another element gives one row. The list and round of rows."""
    lists, rounds = np.empty(sizes.sum(), np.int64), np.empty(sizes.sum(), np.int64)
    looping = np.arange(sizes.size)
    number, made, running = 0, 0, sizes.size
    while running:
        left = 0
        for at in range(running):
            which = looping[at]
            if number < sizes[which]:
                lists[made], rounds[made] = which, number
                made += 1
                looping[left] = which
                left += 1
        running = left
        number += 1
    return lists, rounds


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
def sort_slots(groups: Array, size: int) -> tuple[Array, Array]:
    """Rows by slot, those of one slot in their order, and where each slot begins; one more says where the last one ends."""
    starts = np.zeros(size + 1, np.int64)
    for i in range(groups.size):
        starts[groups[i] + 1] += 1
    for g in range(size):
        starts[g + 1] += starts[g]
    places, order = starts[:-1].copy(), np.empty(groups.size, np.int64)
    for i in range(groups.size):
        g = groups[i]
        order[places[g]] = i
        places[g] += 1
    return order, starts


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
def add_up(values: Array, groups: Array, size: int) -> Array:
    """Add floats, or int64 values that cannot overflow (counts, halves), per slot."""
    total = np.zeros(size, values.dtype)
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
    found = np.empty(offsets.size - 1, np.uint64)
    for row in range(offsets.size - 1):
        h = _FNV
        for at in range(offsets[row], offsets[row + 1]):
            h = (h ^ np.uint64(data[at])) * _PRIME
        found[row] = h
    return found


# Texts cut into words.

_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_SIGN = np.uint64(1 << 63)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_NONE = np.uint64(0)


@njit(cache=True, nogil=True, inline="always")
def _eight_bytes(blocks: Array, at: Any) -> Any:
    """Eight bytes from a place on, the first in the lowest bits."""
    shift = np.uint64((at & 7) << 3)
    block = at >> 3
    return (blocks[block] >> shift) | ((blocks[block + 1] << np.uint64(1)) << (np.uint64(63) - shift))


@njit(cache=True, nogil=True)
def _place(word: Any, mask: Any) -> Any:
    """Where to begin to search for a word in a table."""
    mixed = word * _FACTOR
    return np.int64(mixed ^ (mixed >> np.uint64(32))) & mask


@njit(cache=True, nogil=True)
def larger(table: Array) -> Array:
    """A table of twice the size with the same words."""
    grown = np.zeros((2 * len(table), 2), np.uint64)
    mask = len(grown) - 1
    for held in range(len(table)):
        if table[held, 0] != _NONE:
            place = _place(table[held, 0], mask)
            while grown[place, 0] != _NONE:
                place = (place + 1) & mask
            # Cell by cell: to assign a slice takes Numba seconds to compile.
            grown[place, 0], grown[place, 1] = table[held, 0], table[held, 1]
    return grown


@njit(cache=True, nogil=True)
def number_words(
    offsets: Array,
    valid: Array,
    blocks: Array,
    data: Array,
    separator: int,
    distinct: bool,
    entries: Array,
    table: Array,
    words: Array,
    reached: Array,
) -> bool:
    """Cut texts at a separator of one byte and number their words from 0 in the order in which they first occur.

    The bytes of text ``i`` go from ``offsets[i]`` to before ``offsets[i + 1]`` of ``data``; ``blocks`` is the same, eight
    bytes in each, with a block behind those that are needed. Filled in are ``entries``: the number of each word and its
    text; with ``distinct``, a word that a text has several times is there once. And ``words``, for each number: the entry
    where it first occurs, where its bytes begin and end, and the last text that has it.

    Goes on from where ``reached`` says (text, entry, number), and says whether there was too little room for the words of
    the next text. To let the table grow in here would make the loop three times slower: Numba would look arrays up at every
    use.
    """
    codes, rows = entries
    first, starts, stops, last = words
    row, entry, count = reached
    mask = len(table) - 1
    separators = _ONES * np.uint64(separator)
    while row < offsets.size - 1:
        start, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if len(first) < min(count + end - start + 1, len(codes)):
            break
        while valid[row] and start <= end:
            word, at = _NONE, start
            while True:
                eight = _eight_bytes(blocks, at)
                apart = eight ^ separators
                # The lowest bit that is set belongs to the first separator; the end of the text counts as one.
                found = (apart - _ONES) & ~apart & _HIGH
                if end - at < 8:
                    found |= np.uint64(0x80) << np.uint64((end - at) << 3)
                if found != _NONE:
                    break
                word = (word ^ eight) * _FACTOR
                word ^= word >> np.uint64(29)
                at += 8
            before = ((found & (~found + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
            at += np.int64(((before & _ONES) * _ONES) >> np.uint64(56))
            length = at - start
            if length < 8:
                word = (eight & before) | (np.uint64(length + 1) << np.uint64(56))
            else:
                word = ((word ^ (eight & before)) * _FACTOR) | _SIGN
            place = _place(word, mask)
            code: Any = -1
            while table[place, 0] != _NONE:
                if table[place, 0] == word:
                    code = np.int64(table[place, 1])
                    if length < 8:
                        break
                    held = starts[code]
                    same = stops[code] - held == length
                    for i in range(length if same else 0):
                        if data[held + i] != data[start + i]:
                            same = False
                            break
                    if same:
                        break
                    code = -1
                place = (place + 1) & mask
            if code < 0:
                code = count
                table[place, 0], table[place, 1] = word, np.uint64(code)
                first[code], starts[code], stops[code], last[code] = entry, start, at, -1
                count += 1
            if not distinct or last[code] != row:
                codes[entry], rows[entry] = code, row
                last[code] = row
                entry += 1
            start = at + 1
        row += 1
    reached[0], reached[1], reached[2] = row, entry, count
    return bool(row < offsets.size - 1)


@njit(cache=True, nogil=True)
def gather_bytes(data: Array, starts: Array, stops: Array) -> tuple[Array, Array]:
    """The bytes of some stretches one after the other, and where each begins and the last ends."""
    offsets = np.zeros(starts.size + 1, np.int32)
    for i in range(starts.size):
        offsets[i + 1] = offsets[i] + stops[i] - starts[i]
    gathered = np.empty(offsets[-1], np.uint8)
    for i in range(starts.size):
        at = offsets[i]
        for j in range(starts[i], stops[i]):
            gathered[at] = data[j]
            at += 1
    return offsets, gathered


# Loops that are written for a query: over pairs of tuples, and over the contributions of an `apply` (see `LoopProgram`).


@njit(cache=True, nogil=True, inline="always")
def product_overflows(one: int, two: int) -> bool:
    """Whether the product of two numbers may lie beyond 64 bits; False is certain."""
    if -2147483648 <= one <= 2147483648 and -2147483648 <= two <= 2147483648:
        return False
    if one == 0 or two == 0:
        return False
    least = -9223372036854775807 - 1
    return one == least or two == least or abs(one) > 9223372036854775807 // abs(two)


_compiled: dict[str, Callable[..., Any]] = {}
_lock = threading.Lock()


def compiled(source: str) -> Callable[..., Any]:
    """The function ``loop`` of a source, compiled for the arguments of each first call.

    Over pairs, ``loop(lows, highs, starts, stops, at, out_new, out_stored, …)`` tries new tuple ``i`` against the stored
    ones from ``lows[i]`` to before ``highs[i]`` that lie in one of the stretches ``starts[b]`` to ``stops[b]``. It returns
    how many pairs it noted. ``at`` is where to begin, stretch and tuple, and holds where to go on: it is past the last
    stretch when all is done. ``at[2]`` is 1 if the predicate failed on the pair ``at[0], at[1]``.
    """
    with _lock:
        if source not in _compiled:
            scope: dict[str, Any] = {"np": np, "product_overflows": product_overflows}
            exec(source, scope)  # the source is our own: known operations, and no name of the user's
            # Floats divided by zero are infinite or NaN, as in Arrow; whole numbers divided by zero are found before.
            _compiled[source] = njit(scope["loop"], nogil=True, error_model="numpy")
        return _compiled[source]
