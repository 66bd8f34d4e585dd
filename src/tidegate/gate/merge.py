"""Merging ready slices: one contiguous sorted batch per input, at most a segment's worth of rows at a time.

What needs no merge is not copied: a segment that takes one slice of an input holds that slice. Several slices of an
input are concatenated, and put in order only if they overlap in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tidegate.gate.ready import Array, Slice

SMALL = 4
"""A slice of less than 1/SMALL of a segment is worth copying into a longer one; others pass through as they are."""


def join(slices: Sequence[Slice]) -> Slice | None:
    """One slice of all rows of one input in non-decreasing τ; among equals the earlier slice first. None for none."""
    if not slices:
        return None
    if len(slices) == 1:
        place, batch, times, low, high = slices[0]
        if low == 0 and high == len(times):
            return slices[0]
        return Slice(place, batch.slice(low, high - low), times[low:high], 0, high - low)
    batch = pa.concat_batches([piece.batch.slice(piece.low, piece.high - piece.low) for piece in slices])
    times = np.concatenate([piece.times[piece.low : piece.high] for piece in slices])
    if not _follow(slices):
        order = np.argsort(times, kind="stable")
        batch, times = batch.take(pa.array(order)), times[order]
    return Slice(slices[0].input, batch, times, 0, len(times))


def groups(slices: Sequence[Slice], rows: int, settled: bool, one_source: bool) -> Iterator[list[Slice]]:
    """Cut slices into stretches of time of about ``rows`` rows, each a segment's worth.

    Slices of one sorted source follow one another and are cut at their own ends where possible, so that they need not be
    copied; others are cut at common times. With ``settled`` no cut falls between rows of equal τ.
    """
    if len(slices) == 1 and slices[0].high - slices[0].low <= rows:
        yield list(slices)
    elif one_source:
        yield from _consecutive(slices, rows, settled)
    elif sum([piece.high - piece.low for piece in slices]) <= rows:
        yield list(slices)
    else:
        yield from _by_time(slices, rows)


def first_time(slices: Sequence[Slice]) -> int:
    """The least τ of some slices."""
    return min(int(piece.times[piece.low]) for piece in slices)


def _follow(slices: Sequence[Slice]) -> bool:
    """Whether each slice begins at or after the end of the one before."""
    return all(before.times[before.high - 1] <= after.times[after.low] for before, after in pairwise(slices))


def _consecutive(slices: Sequence[Slice], rows: int, settled: bool) -> Iterator[list[Slice]]:
    """Pass long slices through, collect short ones, cut those that are too long."""
    held: list[Slice] = []
    held_rows = 0
    for piece in slices:
        tied = settled and held and held[-1].times[held[-1].high - 1] == piece.times[piece.low]
        size = piece.high - piece.low
        short = size * SMALL <= rows and (held[-1].high - held[-1].low) * SMALL <= rows if held else False
        if held and not tied and not (short and (held_rows + size) * SMALL <= rows):
            yield held
            held, held_rows = [], 0
        if size > rows and not held:
            *whole, rest = _cut(piece, rows)
            yield from ([part] for part in whole)
            piece = rest
        held.append(piece)
        held_rows += piece.high - piece.low
    if held:
        yield held


def _cut(piece: Slice, rows: int) -> Iterator[Slice]:
    """Pieces of at most ``rows`` rows, more only where the rows of one τ are more."""
    low = piece.low
    for high in (*_cuts(piece.times[piece.low : piece.high], rows), piece.high - piece.low):
        yield Slice(piece.input, piece.batch, piece.times, low, piece.low + high)
        low = piece.low + high


def _by_time(slices: Sequence[Slice], rows: int) -> Iterator[list[Slice]]:
    """Cut slices that overlap at common times."""
    merged = np.sort(np.concatenate([piece.times[piece.low : piece.high] for piece in slices]), kind="stable")
    lows = [piece.low for piece in slices]
    for cut in _cuts(merged, rows):
        highs = [
            piece.low + int(piece.times[piece.low : piece.high].searchsorted(merged[cut], "left")) for piece in slices
        ]
        yield _between(slices, lows, highs)
        lows = highs
    yield _between(slices, lows, [piece.high for piece in slices])


def _between(slices: Sequence[Slice], lows: Sequence[int], highs: Sequence[int]) -> list[Slice]:
    return [
        Slice(piece.input, piece.batch, piece.times, low, high)
        for piece, low, high in zip(slices, lows, highs, strict=True)
        if low < high
    ]


def _cuts(times: Array, rows: int) -> Iterator[int]:
    """Positions inside sorted times, about ``rows`` apart, each the first of its τ."""
    low = 0
    while low + rows < len(times):
        cut = int(times.searchsorted(times[low + rows], "left"))
        if cut <= low:
            cut = int(times.searchsorted(times[low], "right"))
            if cut >= len(times):
                return
        yield cut
        low = cut
