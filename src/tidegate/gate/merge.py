"""Merging: moves what is ready from the sources' queues into the log, in order, about a segment's worth of rows at a time.

What needs no merge is not copied: a segment that takes one slice of an input holds that slice. Several slices of an
input are concatenated, and put in order only if they overlap in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.gate.log import Log
from tidegate.gate.segment import Array, Slice
from tidegate.gate.source import GateSource, PendingBatch
from tidegate.watermark import END, START, Watermark

SMALL = 4
"""A slice of less than 1/SMALL of a segment is worth copying into a longer one; others pass through as they are."""


@dataclass(slots=True, eq=False)
class Merger:
    """The sources that take part, what they hold, and the log they are merged into. Used under the merge lock.

    Writing is left to the thread that needs it: a reader at the end of the log, or a source that fills a segment. So small
    batches that come while all readers are busy end up in one segment, and none waits while a reader does.
    """

    log: Log
    segment_rows: int
    segment_bytes: int
    sources: list[GateSource] = field(default_factory=list)
    held_rows: int = 0
    held_bytes: float = 0.0
    _opened: bool = False

    def open(self, source: GateSource) -> None:
        """Let a source take part."""
        self.sources.append(source)
        self._opened = True

    def push(self, source: GateSource, batch: PendingBatch) -> None:
        """Queue a batch; rows that come too late to be put in order are ready at once, for the next segment."""
        queue, disorder_us = source.arriving, source.spec.disorder_us
        if disorder_us == 0 and not source.spec.may_idle and batch.head < queue.watermark:
            raise DataError(
                f"source '{source.name}' is declared sorted by '{source.spec.time}', but row 0 of a batch has time "
                f"{batch.head}, and nothing below {queue.watermark} was due any more (its last time, its last heartbeat, or "
                "the watermark at which it was added); sort it, or declare how far out of order it may be"
            )
        if disorder_us is not None:
            queue.watermark = max(queue.watermark, batch.last - disorder_us, START)
        queue.push(batch)
        self.held_rows += len(batch)
        self.held_bytes += len(batch) * batch.row_bytes

    def ready_watermark(self) -> Watermark:
        """The least watermark of the sources that take part; +∞ when all have ended."""
        if not self._opened:
            return self.log.watermark
        return max(min([source.queue.watermark for source in self.sources], default=END), self.log.watermark)

    def has_something(self, watermark: Watermark) -> bool:
        """Whether there is anything to write at a watermark."""
        return watermark > self.log.watermark or any(source.queue.ready(watermark)[0] for source in self.sources)

    def fills(self, watermark: Watermark, share: int) -> bool:
        """Whether what is ready makes 1/share of a segment, in rows or in bytes."""
        worth_rows, worth_bytes = self.segment_rows / share, self.segment_bytes / share
        if self.held_rows < worth_rows and self.held_bytes < worth_bytes:
            return False
        rows, nbytes = 0, 0.0
        for source in self.sources:
            ready_rows, ready_bytes = source.queue.ready(watermark)
            rows += ready_rows
            nbytes += ready_bytes
            if rows >= worth_rows or nbytes >= worth_bytes:
                return True
        return False

    def write(self, watermark: Watermark) -> bool:
        """Write what is ready at a watermark, and the watermark itself; False if there was nothing to write."""
        log = self.log
        if log.ended:
            return False
        slices, nbytes, consecutive = self._take(watermark)
        if not slices:
            moves = watermark > log.watermark
            if moves:
                log.append(watermark)
            return moves
        rows = sum([piece.high - piece.low for piece in slices])
        self.held_rows -= rows
        self.held_bytes = self.held_bytes - nbytes if self.held_rows else 0.0
        row_bytes = nbytes / rows
        limit = min(self.segment_rows, max(int(self.segment_bytes / max(row_bytes, 1.0)), 1))
        groups = list(segment_groups(slices, limit, consecutive))
        for group, following in zip_longest(groups, groups[1:]):
            until = watermark if following is None else min([int(piece.times[piece.low]) for piece in following])
            self._append(max(until, log.watermark), group, row_bytes)
        return True

    def _append(self, watermark: Watermark, group: list[Slice], row_bytes: float) -> None:
        inputs = self.log.inputs
        rows = sum([piece.high - piece.low for piece in group])
        if inputs == 1:
            parts: tuple[Slice | None, ...] = (merge_slices(group),)
        else:
            parts = tuple([merge_slices([piece for piece in group if piece.input == place]) for place in range(inputs)])
        self.log.append(watermark, parts, nbytes=int(rows * row_bytes))

    def _take(self, watermark: Watermark) -> tuple[list[Slice], float, bool]:
        """Remove what is ready from all queues: slices, their bytes, and whether they follow one another in time."""
        slices: list[Slice] = []
        nbytes = 0.0
        gave = 0
        ordered = True
        drained = False
        for source in self.sources:
            queue = source.queue
            if queue.pending:
                taken, taken_bytes = queue.take(watermark)
                if taken:
                    slices += taken
                    nbytes += taken_bytes
                    gave += 1
                    ordered = ordered and queue.in_order
            drained = drained or (queue.closed and not queue.pending)
        if drained:
            self.sources = [source for source in self.sources if source.queue.pending or not source.queue.closed]
        return slices, nbytes, gave == 1 and ordered


def merge_slices(slices: Sequence[Slice]) -> Slice | None:
    """One slice of all rows of one input in non-decreasing τ; among equals the earlier slice first. None for none."""
    if not slices:
        return None
    if len(slices) == 1:
        place, batch, times, low, high = slices[0]
        if low == 0 and high == len(times):
            return slices[0]
        return Slice(place, batch.slice(low, high - low), times[low:high], 0, high - low)
    # What several sources hand in is often one stretch of time after another.
    by_start = sorted(slices, key=lambda piece: int(piece.times[piece.low]))
    if all(before.times[before.high - 1] < after.times[after.low] for before, after in pairwise(by_start)):
        slices = by_start
    batch = pa.concat_batches([piece.batch.slice(piece.low, piece.high - piece.low) for piece in slices])
    times = np.concatenate([piece.times[piece.low : piece.high] for piece in slices])
    if any(before.times[before.high - 1] > after.times[after.low] for before, after in pairwise(slices)):
        order = np.argsort(times, kind="stable")
        batch, times = batch.take(pa.array(order)), times[order]
    return Slice(slices[0].input, batch, times, 0, len(times))


def segment_groups(slices: Sequence[Slice], rows: int, consecutive: bool) -> Iterator[list[Slice]]:
    """Cut slices into stretches of time of about ``rows`` rows, each a segment's worth.

    Consecutive slices, those of one sorted source, are cut at their own ends where possible, so that they need not be
    copied; others are cut at common times.
    """
    if consecutive:
        yield from _consecutive(slices, rows)
    elif sum([piece.high - piece.low for piece in slices]) <= rows:
        yield list(slices)
    else:
        yield from _by_time(slices, rows)


def _consecutive(slices: Sequence[Slice], rows: int) -> Iterator[list[Slice]]:
    """Pass long slices through, collect short ones, cut those that are too long."""
    held: list[Slice] = []
    held_rows = 0
    for piece in slices:
        size = piece.high - piece.low
        if held and (held_rows + size) * SMALL > rows:
            yield held
            held, held_rows = [], 0
        if size > rows:
            low = piece.low
            for cut in _cuts(piece.times[piece.low : piece.high], rows):
                yield [piece._replace(low=low, high=piece.low + cut)]
                low = piece.low + cut
            piece = piece._replace(low=low)
        held.append(piece)
        held_rows += piece.high - piece.low
    if held:
        yield held


def _by_time(slices: Sequence[Slice], rows: int) -> Iterator[list[Slice]]:
    """Cut slices that overlap at common times."""
    merged = np.sort(np.concatenate([piece.times[piece.low : piece.high] for piece in slices]), kind="stable")
    lows = [piece.low for piece in slices]
    for cut in (*_cuts(merged, rows), None):
        highs = [
            piece.high
            if cut is None
            else piece.low + int(piece.times[piece.low : piece.high].searchsorted(merged[cut], "left"))
            for piece in slices
        ]
        parts = zip(slices, lows, highs, strict=True)
        yield [piece._replace(low=low, high=high) for piece, low, high in parts if low < high]
        lows = highs


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
