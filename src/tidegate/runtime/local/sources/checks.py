"""Checks what a source delivers: tuples too far in the future are set aside, and a row that breaks the order is named."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import DataError, SetAsideWarning
from tidegate.query.event_time import ahead_bound, ahead_error, ahead_notice, ahead_reason, show_moment
from tidegate.query.nodes import Source
from tidegate.runtime.local.sources.arrivals import Arrival
from tidegate.sources import Malformed, Rejects
from tidegate.sources.in_memory import Heartbeat


def _now() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class FutureFilter:
    """Sets aside what of one source lies beyond its bound, or stops the run, as the source wants; for one thread.

    A batch within the bound costs its greatest time, which is kept as ``newest`` of that batch and those before.
    """

    source: Source
    rejects: Rejects
    clock: Callable[[], int] = _now
    newest: int | None = field(default=None)

    def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Whether a heartbeat may move the watermark."""
        return self._allows(heartbeat, self.clock())

    def batch(self, arrival: Arrival, latest: int) -> Arrival | None:
        """What may go on of a batch whose latest event time is known; None if nothing is left."""
        clock = self.clock()
        limit = ahead_bound(self.source, clock, self.newest)
        if self.source.ahead_of == "stream":
            self._check_leaps(arrival, latest)
        elif limit is not None and latest > limit:
            return self._kept(arrival, limit, clock)
        self.newest = latest if self.newest is None else max(self.newest, latest)
        return arrival

    def _kept(self, arrival: Arrival, limit: int, clock: int) -> Arrival | None:
        """The tuples within the bound; the others are counted, and written where the stream says."""
        assert isinstance(arrival.what, pa.RecordBatch)
        batch, place = arrival.what, arrival.place
        times = batch.column(self.source.time)
        beyond = pc.fill_null(pc.greater(times.cast(pa.int64()), limit), False)
        rows = pc.indices_nonzero(beyond).to_numpy()
        first = times[int(rows[0])].value
        where = "a row" if place is None else place.of(int(rows[0]))
        self._tell(f"{where} has {show_moment(first)} in '{self.source.time}'", clock)
        self.rejects.ahead += len(rows)
        if self.rejects.path is not None:
            shown = [show_moment(times[row].value) for row in rows.tolist()]
            place_of = batch.schema.get_field_index(self.source.time)
            letters = batch.take(rows).set_column(place_of, self.source.time, pa.array(shown))
            for row, values in zip(rows.tolist(), letters.to_pylist(), strict=True):
                file, number = (None, None) if place is None else (place.file, place.number(row))
                why = ahead_reason(self.source, times[row].value, clock)
                self.rejects.write(Malformed(file, number, why, json.dumps(values, default=str)))
        good = pc.indices_nonzero(pc.invert(beyond)).to_numpy()
        if not len(good):
            return None
        left = replace(arrival, what=batch.take(good), place=None if place is None else place.only(good))
        latest = pc.max(left.what.column(self.source.time)).value  # type: ignore[union-attr] # a batch, not a heartbeat
        if latest is not None:
            self.newest = latest if self.newest is None else max(self.newest, latest)
        return left

    def _check_leaps(self, arrival: Arrival, latest: int) -> None:
        """Stop at the first tuple that lies too far after all that came before it."""
        assert isinstance(arrival.what, pa.RecordBatch)
        limit = ahead_bound(self.source, None, self.newest)
        if limit is not None and latest <= limit:
            return
        column = arrival.what.column(self.source.time)
        rows = pc.indices_nonzero(column.is_valid()).to_numpy()
        times = column.cast(pa.int64()).drop_null().to_numpy()
        first = times[0] if self.newest is None else self.newest
        newest = np.maximum.accumulate(np.concatenate([[first], times[:-1]]))
        leaps = np.flatnonzero(times - newest > (self.source.ahead_us or 0))
        if len(leaps):
            row = int(leaps[0])
            where = "a row" if arrival.place is None else arrival.place.of(int(rows[row]))
            what = f"{where} has {show_moment(int(times[row]))} in '{self.source.time}'"
            raise ahead_error(self.source, what, int(newest[row]))

    def _allows(self, heartbeat: Heartbeat, clock: int) -> bool:
        """Whether a heartbeat may move the watermark; one that leaps would make every tuple late."""
        limit = ahead_bound(self.source, clock, self.newest)
        if limit is not None and heartbeat.time > limit:
            what = f"a heartbeat says {show_moment(heartbeat.time)}"
            if self.source.ahead_of == "stream" and self.newest is not None:
                raise ahead_error(self.source, what, self.newest)
            self._tell(what, clock)
            self.rejects.ahead += 1
            return False
        self.newest = heartbeat.time if self.newest is None else max(self.newest, heartbeat.time)
        return True

    def _tell(self, what: str, clock: int) -> None:
        if self.rejects.notice is None:
            self.rejects.notice = ahead_notice(self.source, what, clock)
            warnings.warn(self.rejects.notice, SetAsideWarning, stacklevel=2)


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far a source has come in event time, by a tuple or by a heartbeat."""

    time: int
    by_heartbeat: bool = False


def progress_by(source: Source, what: pa.RecordBatch | Heartbeat) -> SourceProgress:
    """How far a sorted source has come when it has delivered something that holds at least one row."""
    if isinstance(what, Heartbeat):
        return SourceProgress(what.time, by_heartbeat=True)
    return SourceProgress(what.column(source.time)[-1].value)


def order_violation(source: Source, arrival: Arrival, reached: SourceProgress | None) -> DataError | None:
    """Why a batch cannot be taken, if it is for a row without event time or out of order; else None.

    Called only when a gate has refused the batch, so good batches cost nothing. ``reached`` is how far the source had
    come before.
    """
    if isinstance(arrival.what, Heartbeat) or arrival.place is None:
        return None
    column = arrival.what.column(source.time)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        return DataError(
            f"stream '{source.name}': {arrival.place.of(row)} has no event time in '{source.time}'; leave such rows out"
        )
    times = column.cast(pa.int64()).to_numpy()
    since = times[:1] if reached is None else np.array([reached.time])
    earlier = np.concatenate([since, times[:-1]])
    if source.disorder_us or not (times < earlier).any():
        return None
    row = int((times < earlier).argmax())
    after = "after a heartbeat at" if row == 0 and reached is not None and reached.by_heartbeat else "after"
    return DataError(
        f"stream '{source.name}' is declared sorted by '{source.time}', but {arrival.place.of(row)} has "
        f"{show_moment(int(times[row]))} {after} {show_moment(int(earlier[row]))}; sort it, or declare how far out of "
        "order it may be: tg.stream(..., disorder='10 seconds')"
    )
