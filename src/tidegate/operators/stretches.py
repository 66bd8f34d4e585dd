"""Loops over stretches of states that lie one after the other, as the windows of one key do, and then those of the next.

A stretch goes from ``starts[i]`` to before ``stops[i]``, and holds something. Neither starts nor stops ever fall, so each
state is looked at about twice, however many stretches it is in: what lies before a *middle* is added up from there
backwards, once, and what lies behind it as stretches get there. Import this module inside functions, as `kernels`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidegate.operators.columns import Array


@njit(cache=True, nogil=True)
def sum_stretches(values: Array, starts: Array, stops: Array) -> Array:
    """Add floats, or int64 values that cannot overflow, per stretch."""
    found, before = np.empty(starts.size, values.dtype), np.empty(values.size, values.dtype)
    zero = np.zeros(1, values.dtype)[0]
    middle, reached, behind = 0, 0, zero
    for i in range(starts.size):
        start, stop = starts[i], stops[i]
        if start >= middle:
            total = zero
            for j in range(stop - 1, start - 1, -1):
                total += values[j]
                before[j] = total
            middle, reached, behind = stop, stop, zero
        for j in range(reached, stop):
            behind += values[j]
        reached = stop
        found[i] = before[start] + behind
    return found


@njit(cache=True, nogil=True)
def extreme_in_stretches(codes: Array, valid: Array, starts: Array, stops: Array, sign: int) -> Array:
    """Find, per stretch, a state with the least (sign 1) or greatest (sign −1) code; −1 where none is valid."""
    found, before = np.empty(starts.size, np.int64), np.empty(codes.size, np.int64)
    middle, reached, behind = 0, 0, -1
    for i in range(starts.size):
        start, stop = starts[i], stops[i]
        if start >= middle:
            best = -1
            for j in range(stop - 1, start - 1, -1):
                best = _better(codes, valid, sign, j, best)
                before[j] = best
            middle, reached, behind = stop, stop, -1
        for j in range(reached, stop):
            behind = _better(codes, valid, sign, j, behind)
        reached = stop
        best = before[start]
        found[i] = best if behind < 0 else _better(codes, valid, sign, behind, best)
    return found


@njit(cache=True, nogil=True, inline="always")
def _better(codes: Array, valid: Array, sign: int, other: int, held: int) -> int:
    """The one of two states that leads, the other one only if it is valid; −1 for none."""
    if not valid[other]:
        return held
    if held < 0 or (codes[other] < codes[held] if sign > 0 else codes[other] > codes[held]):
        return other
    return held
