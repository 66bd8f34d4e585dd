"""The loops over rows of state by key; compiled by Numba, as those of `kernels` are, and imported inside functions too."""

from __future__ import annotations

import numpy as np
from numba import njit

from tidegate.operators.columns import Array

_ROOM = 8
"""So many places in the table for each hash: every eighth row of another key may be found too."""


@njit(cache=True, nogil=True)
def places_of_hashes(hashes: Array, touched: Array) -> Array:
    """The places of hashes that are among some others, and of a few that are not, by marks in a small table.

    It takes one look at each of both, so it is for others that are not far fewer.
    """
    size = 1
    while size < _ROOM * touched.size:
        size *= 2
    marked, mask = np.zeros(size, np.bool_), np.uint64(size - 1)
    for value in touched:
        marked[value & mask] = True
    found, count = np.empty(hashes.size, np.int64), 0
    for i in range(hashes.size):
        if marked[hashes[i] & mask]:
            found[count] = i
            count += 1
    return found[:count].copy()


@njit(cache=True, nogil=True)
def last_before(
    times: Array,
    codes: Array,
    other_times: Array,
    other_codes: Array,
    starts: Array,
    ends: Array,
    most: int,
    after_equal: bool,
) -> tuple[Array, Array]:
    """For each tuple the stretch of the last so many of the other side before it, in their order by code.

    Both sides are in the order of time; ``after_equal`` says whether those of the same time are before it. The others of a
    code are from ``starts[code]`` on, those before all of these up to ``ends[code]``, which moves on.
    """
    lows, highs, at = np.empty(times.size, np.int64), np.empty(times.size, np.int64), 0
    for i in range(times.size):
        while at < other_times.size and (other_times[at] < times[i] or (after_equal and other_times[at] == times[i])):
            ends[other_codes[at]] += 1
            at += 1
        highs[i] = ends[codes[i]]
        lows[i] = max(starts[codes[i]], highs[i] - most)
    return lows, highs


@njit(cache=True, nogil=True)
def far_enough(times: Array, groups: Array, last: Array, within: int) -> tuple[Array, Array]:
    """Mark the rows that come ``within`` or more after the last of their slot that was marked; ``last`` is changed to that.

    The least number of all stands for none. Also returned are the rows that were marked last in their slot.
    """
    never = np.int64(-(2**63))
    keep, newest = np.empty(times.size, np.bool_), np.full(last.size, -1, np.int64)
    count = 0
    for i in range(times.size):
        g = groups[i]
        keep[i] = last[g] == never or times[i] - last[g] >= within
        if keep[i]:
            last[g] = times[i]
            count += newest[g] < 0
            newest[g] = i
    changed = np.empty(count, np.int64)
    count = 0
    for i in range(times.size):
        if keep[i] and newest[groups[i]] == i:
            changed[count] = i
            count += 1
    return keep, changed
