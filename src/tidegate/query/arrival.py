"""Arrival time: an event time that tuples get when they are read, for sources that bring none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import QueryError
from tidegate.query.schema import TIME

ARRIVED = "arrived"


@dataclass(frozen=True, slots=True)
class ArrivalTime:
    """Says that the event time of a stream is when its tuples arrive, in a column of this name; see `arrival`."""

    name: str

    def schema(self, columns: pa.Schema, stream: str) -> pa.Schema:
        """The columns of a stream with that of its event time, the last one."""
        if not len(columns):
            raise QueryError(f"stream '{stream}': it has no columns; a stream needs one besides the time of arrival")
        if self.name.lower() in (name.lower() for name in columns.names):
            raise QueryError(
                f"stream '{stream}': it has a column '{self.name}' already, and time=tg.arrival() adds one of that name; "
                "choose another, tg.arrival(name='...'), or take the times it has: time='...'"
            )
        return columns.append(pa.field(self.name, TIME))


def arrival(name: str = ARRIVED) -> ArrivalTime:
    """For ``tg.stream(..., time=tg.arrival())``: tuples have no event time, and get the time at which they are read.

    It is a column of the stream, called ``name``: the clock of the computer as a batch is read in process, never less than
    that of the tuples before; on Spark the timestamp of the micro-batch, the same when a batch is run again. Results depend
    on when tuples arrive, so two runs over the same input differ; what was assigned can be recorded as a result, and be
    replayed as the event time of another stream.

    >>> import pyarrow as pa, tidegate as tg
    >>> tg.stream({"k": pa.string()}, time=tg.arrival()).schema.names
    ['k', 'arrived']
    """
    if not isinstance(name, str) or not name:
        raise QueryError(f"arrival: name is what the column is called; got {name!r}")
    return ArrivalTime(name)


def stamped(tuples: Any, time: str, moment: int) -> Any:
    """A batch or a table with its time of arrival as the last column."""
    field = pa.field(time, TIME)
    moments = pa.array(np.full(tuples.num_rows, moment, np.int64)).cast(TIME)
    return type(tuples).from_arrays([*tuples.columns, moments], schema=tuples.schema.append(field))
