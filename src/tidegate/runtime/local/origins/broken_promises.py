"""What a source promised about its event time and did not keep, named by the row that shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.event_time import show_moment
from tidegate.query.nodes import Source
from tidegate.runtime.local.origins.arrivals import Arrival
from tidegate.sources.in_memory import Heartbeat


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a source has come in event time, by a tuple or by a heartbeat."""

    time: int
    by_heartbeat: bool = False


def reached_by(source: Source, what: pa.RecordBatch | Heartbeat) -> Reached:
    """How far a sorted source has come when it has delivered something that holds at least one row."""
    if isinstance(what, Heartbeat):
        return Reached(what.time, by_heartbeat=True)
    return Reached(what.column(source.time)[-1].value)


def broken_promise(source: Source, arrival: Arrival, reached: Reached | None) -> DataError | None:
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
