"""What Spark reports of the batches of any Structured Streaming query, read into plain values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.runtime.spark.outward import OBSERVED


@dataclass(frozen=True, slots=True)
class CellTold:
    """What a cell told about a batch: its instances, and how long they worked, added up."""

    instances: int
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch that ran: when, by the driver's clock, for how long, and what it took.

    ``left`` is how many rows its sources had left when it began, None where one of them does not say. ``lag_seconds`` is
    event time from the watermark to the newest row, ``partitions`` the least number over stateful operators. ``cells`` is
    what cells of tidegate's stateful steps told, if there are any.
    """

    number: int
    began_at: float
    seconds: float
    rows: int
    left: float | None
    lag_seconds: float | None
    partitions: int | None
    cells: tuple[CellTold, ...] = ()

    @property
    def ended_at(self) -> float:
        return self.began_at + self.seconds


class BatchReader:
    """Reads the batches of a query that completed since the last time; older ones than Spark keeps are lost."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._last: int | None = None

    def new(self) -> list[Batch]:
        latest = self._query.lastProgress
        if latest is None or (self._last is not None and latest.batchId <= self._last):
            return []
        follows = self._last is not None and latest.batchId == self._last + 1
        updates = [latest] if follows else self._query.recentProgress
        found = [batch_of(update) for update in updates if ran(update)]
        made = [batch for batch in found if self._last is None or batch.number > self._last]
        if made:
            self._last = made[-1].number
        return made


def ran(update: StreamingQueryProgress) -> bool:
    """Whether a report is of a batch; Spark also reports that it looked for data and ran nothing."""
    return "addBatch" in update.durationMs


def batch_of(update: StreamingQueryProgress) -> Batch:
    """A report as a value."""
    left = [rows_left(source) for source in update.sources]
    partitions = [each.numShufflePartitions for each in update.stateOperators]
    return Batch(
        update.batchId,
        datetime.fromisoformat(update.timestamp).timestamp(),
        update.durationMs.get("triggerExecution", 0) / 1000,
        update.numInputRows,
        sum(each for each in left if each is not None) if left and None not in left else None,
        _lag_seconds(update.eventTime),
        min(partitions) if partitions else None,
        tuple(_cells(update.observedMetrics)),
    )


def _cells(observed: Mapping[str, Any]) -> Iterator[CellTold]:
    for step, figures in observed.items():
        if step.startswith(OBSERVED) and figures is not None:
            for cell in figures["by_cell"] or ():
                yield CellTold(cell["instances"], cell["busy_ms"] / 1000)


def rows_left(source: SourceProgress) -> float | None:
    """The rows that a source had and the batch did not take; None if it does not report how far it could have gone.

    Offsets may count something else than rows, such as seconds: the batch itself says how many rows one of them is.
    """
    start, end, latest = (_figures(each) for each in (source.startOffset, source.endOffset, source.latestOffset))
    if end is None or latest is None or set(end) != set(latest):
        return None
    left = sum(max(latest[place] - end[place], 0.0) for place in end)
    if left == 0:
        return 0.0
    taken = sum(end[place] - (start or {}).get(place, 0.0) for place in end)
    return left * source.numInputRows / taken if taken > 0 and source.numInputRows else None


def _figures(offset: Any) -> dict[str, float] | None:
    """The numbers in an offset by their place in it; None if it is none, or holds something else."""
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
    found = dict(_leaves(value, ""))
    return found if found and all(isinstance(each, int | float) for each in found.values()) else None


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{place}/{name}")
    elif value is not None:
        yield place, value


def _lag_seconds(event_time: dict[str, str]) -> float | None:
    newest, watermark = event_time.get("max"), event_time.get("watermark")
    if newest is None or watermark is None or watermark.startswith("1970-01-01T00:00:00"):
        return None
    lag = datetime.fromisoformat(newest) - datetime.fromisoformat(watermark)
    return max(lag.total_seconds(), 0.0)
