"""Texts cut into words and numbered in one loop, compiled by Numba; the GIL is released while it runs.

Cutting first and numbering afterwards writes every word out and reads it again. Here a word is looked up where it stands:
its bytes are taken eight at a time, and one of up to seven bytes, with its length, is a number that is compared at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

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
    """Where to begin to look for a word in a table."""
    mixed = word * _FACTOR
    return np.int64(mixed ^ (mixed >> np.uint64(32))) & mask


@njit(cache=True, nogil=True)
def larger(table: Array) -> Array:
    """A table of twice the size with the same words."""
    made = np.zeros((2 * len(table), 2), np.uint64)
    mask = len(made) - 1
    for held in range(len(table)):
        if table[held, 0] != _NONE:
            place = _place(table[held, 0], mask)
            while made[place, 0] != _NONE:
                place = (place + 1) & mask
            # Cell by cell: to assign a slice takes Numba seconds to compile.
            made[place, 0], made[place, 1] = table[held, 0], table[held, 1]
    return made


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
    made = np.empty(offsets[-1], np.uint8)
    for i in range(starts.size):
        at = offsets[i]
        for j in range(starts[i], stops[i]):
            made[at] = data[j]
            at += 1
    return offsets, made
