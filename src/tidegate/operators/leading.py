"""The loops that leave out, before anything is sorted, the rows that cannot lead their slot; compiled by Numba.

As for `kernels`: plain NumPy arrays in, the GIL is released, and this module is imported inside functions.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidegate.operators.columns import Array

_LAST = np.int64(2**63 - 1)


@njit(cache=True, nogil=True)
def may_lead(codes: Array, rows: Array, groups: Array, size: int, limit: int) -> Array:
    """The contributions whose code is among the ``limit`` least of their slot; those that tie with the last of them too.

    ``codes[rows[i]]`` is the code of contribution ``i``.
    """
    least = np.full(size * limit, _LAST)
    for i in range(rows.size):
        code, start = codes[rows[i]], groups[i] * limit
        at = start + limit - 1
        if code < least[at]:
            while at > start and code < least[at - 1]:
                least[at] = least[at - 1]
                at -= 1
            least[at] = code
    found, count = np.empty(rows.size, np.int64), 0
    for i in range(rows.size):
        if codes[rows[i]] <= least[groups[i] * limit + limit - 1]:
            found[count] = i
            count += 1
    return found[:count].copy()


@njit(cache=True, nogil=True)
def text_codes(offsets: Array, data: Array) -> Array:
    """Numbers that never contradict the order of texts: the eight bytes of each behind what all of them begin with."""
    codes = np.empty(offsets.size - 1, np.int64)
    shared = offsets[1] - offsets[0] if codes.size else 0
    for row in range(1, codes.size):
        shared = min(shared, offsets[row + 1] - offsets[row])
        at = 0
        while at < shared and data[offsets[row] + at] == data[offsets[0] + at]:
            at += 1
        shared = at
    for row in range(codes.size):
        start, stop = offsets[row] + shared, offsets[row + 1]
        code = np.uint64(0)
        for at in range(start, start + 8):
            code = (code << np.uint64(8)) | (np.uint64(data[at]) if at < stop else np.uint64(0))
        codes[row] = np.int64(code ^ np.uint64(1 << 63))
    return codes
