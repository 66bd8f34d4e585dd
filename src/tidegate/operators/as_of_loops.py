"""The loops of as-of joins, compiled by Numba.

As for `kernels`: plain NumPy arrays in, the GIL is released, and this module is imported inside functions.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidegate.operators.columns import Array


@njit(cache=True, nogil=True)
def last_before(
    left_times: Array, left_codes: Array, times: Array, codes: Array, bound: int, held: int
) -> tuple[Array, Array]:
    """For each left row the last row of its code at or before its time, −1 for none; and the last row of each code.

    Both are in the order of time, but for the first ``held`` rows, which are before all others.
    """
    last, found, at = np.full(bound, -1, np.int64), np.empty(left_times.size, np.int64), held
    for i in range(held):
        last[codes[i]] = i
    for i in range(left_times.size):
        while at < times.size and times[at] <= left_times[i]:
            last[codes[at]] = at
            at += 1
        found[i] = last[left_codes[i]]
    while at < times.size:
        last[codes[at]] = at
        at += 1
    return found, last


@njit(cache=True, nogil=True)
def match_last(
    left_times: Array,
    left_codes: Array,
    times: Array,
    codes: Array,
    alive: Array,
    first: int,
    latest: Array,
    latest_times: Array,
    latest_alive: Array,
    reach: int,
) -> tuple[Array, Array]:
    """For each left tuple the number of the last right one of its key at or before its time and in reach, −1 for none.

    Both are in the order of time; right tuples are numbered from ``first`` on. ``latest`` is the number of the last right
    tuple of each key so far, beside its time and whether it is alive; all of these move on. A left tuple with code −1 has a
    key that no right one ever had. Returned with the numbers are those right tuples that are the last of their key now.
    """
    found = np.empty(left_times.size, np.int64)
    at = 0
    for i in range(left_times.size + 1):
        until = left_times[i] if i < left_times.size else np.int64(2**63 - 1)
        while at < times.size and times[at] <= until:
            code = codes[at]
            latest[code], latest_times[code], latest_alive[code] = first + at, times[at], alive[at]
            at += 1
        if i < left_times.size:
            code = left_codes[i]
            found[i] = -1
            if code >= 0 and latest_alive[code] and left_times[i] - latest_times[code] <= reach:
                found[i] = latest[code]
    kept, count = np.empty(times.size, np.int64), 0
    for at in range(times.size):
        if latest[codes[at]] == first + at:
            kept[count] = at
            count += 1
    return found, kept[:count].copy()
