"""Checks what a source delivers: tuples too far in the future are set aside, and a row that breaks the order is named."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import DataError, SetAsideWarning
from tidegate.query.event_time import ahead_bound, ahead_error, ahead_notice, ahead_reason, show_moment
from tidegate.query.nodes import Source
from tidegate.sources import Malformed, PlacedBatch, Rejects
from tidegate.sources.in_memory import Heartbeat


def wall_clock_us() -> int:
    """The clock of this computer."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class FutureFilter:
    """Sets aside what of one source lies beyond its bound, or stops the run, as the source wants; for one thread.

    A batch within the bound costs its greatest time, which is kept as ``newest`` of that batch and those before.
    """

    source: Source
    rejects: Rejects
    clock: Callable[[], int] = wall_clock_us
    newest: int | None = field(default=None)

    def batch(self, placed: PlacedBatch, latest: int) -> PlacedBatch | None:
        """What may go on of a batch whose latest event time is known; None if nothing is left."""
        clock = self.clock()
        limit = ahead_bound(self.source, clock, self.newest)
        if self.source.ahead_of == "stream":
            if limit is None or latest > limit:
                self._check_leaps(placed)
        elif limit is not None and latest > limit:
            return self._kept(placed, limit, clock)
        self._saw(latest)
        return placed

    def _kept(self, placed: PlacedBatch, limit: int, clock: int) -> PlacedBatch | None:
        """The tuples within the bound; the others are counted, and written where the stream says."""
        batch, place = placed.batch, placed.place
        times = batch.column(self.source.time)
        beyond = pc.fill_null(pc.greater(times.cast(pa.int64()), limit), False)
        rows = pc.indices_nonzero(beyond).to_numpy()
        first = int(rows[0])
        self._tell(f"{place.of(first)} has {show_moment(times[first].value)} in '{self.source.time}'", clock)
        self.rejects.ahead += len(rows)
        if self.rejects.path is not None:
            shown = [show_moment(times[row].value) for row in rows.tolist()]
            place_of = batch.schema.get_field_index(self.source.time)
            letters = batch.take(rows).set_column(place_of, self.source.time, pa.array(shown))
            for row, values in zip(rows.tolist(), letters.to_pylist(), strict=True):
                why = ahead_reason(self.source, times[row].value, clock)
                raw = json.dumps(values, default=str)
                unit = "offset" if place.unit == "offset" else "line"
                self.rejects.write(Malformed(place.file, place.number(row), why, raw, unit))
        good = pc.indices_nonzero(pc.invert(beyond)).to_numpy()
        if not len(good):
            return None
        left = PlacedBatch(batch.take(good), place.only(good))
        latest = pc.max(left.batch.column(self.source.time)).value
        if latest is not None:
            self._saw(latest)
        return left

    def _check_leaps(self, placed: PlacedBatch) -> None:
        """Stop at the first tuple that lies too far after all that came before it."""
        column = placed.batch.column(self.source.time)
        rows = pc.indices_nonzero(column.is_valid()).to_numpy()
        times = column.cast(pa.int64()).drop_null().to_numpy()
        first = times[0] if self.newest is None else self.newest
        newest = np.maximum.accumulate(np.concatenate([[first], times[:-1]]))
        leaps = np.flatnonzero(times - newest > (self.source.ahead_us or 0))
        if len(leaps):
            row = int(leaps[0])
            what = f"{placed.place.of(int(rows[row]))} has {show_moment(int(times[row]))} in '{self.source.time}'"
            raise ahead_error(self.source, what, int(newest[row]))

    def allows(self, heartbeat: Heartbeat) -> bool:
        """Whether a heartbeat may move the watermark; one that leaps would make every tuple late."""
        clock = self.clock()
        limit = ahead_bound(self.source, clock, self.newest)
        if limit is not None and heartbeat.time > limit:
            what = f"a heartbeat says {show_moment(heartbeat.time)}"
            if self.source.ahead_of == "stream" and self.newest is not None:
                raise ahead_error(self.source, what, self.newest)
            self._tell(what, clock)
            self.rejects.ahead += 1
            return False
        self._saw(heartbeat.time)
        return True

    def _saw(self, time: int) -> None:
        self.newest = time if self.newest is None else max(self.newest, time)

    def _tell(self, what: str, clock: int) -> None:
        if self.rejects.notice is None:
            self.rejects.notice = ahead_notice(self.source, what, clock)
            warnings.warn(self.rejects.notice, SetAsideWarning, stacklevel=2)


def order_violation(source: Source, placed: PlacedBatch, reached: int, by_heartbeat: bool) -> DataError | None:
    """Why a batch cannot be taken, if it is for a row without event time or out of order; else None.

    Called only when a gate has refused the batch, so good batches cost nothing. ``reached`` is how far the source had
    come before, by a tuple or by a heartbeat.
    """
    column = placed.batch.column(source.time)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        return DataError(
            f"stream '{source.name}': {placed.place.of(row)} has no event time in '{source.time}'; leave such rows out"
        )
    times = column.cast(pa.int64()).to_numpy()
    earlier = np.concatenate([[reached], times[:-1]])
    if source.disorder_us or not (times < earlier).any():
        return None
    row = int((times < earlier).argmax())
    after = "after a heartbeat at" if row == 0 and by_heartbeat else "after"
    return DataError(
        f"stream '{source.name}' is declared sorted by '{source.time}', but {placed.place.of(row)} has "
        f"{show_moment(int(times[row]))} {after} {show_moment(int(earlier[row]))}; sort it, or declare how far out of "
        "order it may be: tg.stream(..., disorder='10 seconds')"
    )
