"""Spark's figures about its batches, added up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.progress import Progress
from tidegate.runtime.spark.from_future import set_aside
from tidegate.runtime.spark.outward import OBSERVED

RESULTS = "tidegate_results"
# A time that only the end of the input brings about.
_END_SEEN = datetime(9000, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _State:
    """How much some cells of a step hold."""

    cells: int
    rows: int
    bytes: int


@dataclass(slots=True)
class Tally:
    """Adds up what Spark reports of a query; ``control`` is the folder whose rows are not data."""

    control: Path
    last: Progress | None = None
    batches: int = 0
    rows: int = 0
    results: int = 0
    late: int = 0
    damaged: int = 0
    ahead: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    _batch: int | None = None
    _newest: datetime | None = None
    _watermark: datetime | None = None
    _states: dict[str, _State] = field(default_factory=dict)
    _instances: dict[tuple[str, int], int] = field(default_factory=dict)

    def poll(self, query: StreamingQuery) -> list[Progress]:
        """The batches that were completed since the last time."""
        latest = query.lastProgress
        if latest is None or (self._batch is not None and latest.batchId <= self._batch):
            return []
        follows = self._batch is not None and latest.batchId == self._batch + 1
        updates = [latest] if follows else query.recentProgress
        return [self.take(update) for update in updates if self._is_new(update)]

    def take(self, update: StreamingQueryProgress) -> Progress:
        """Add one batch."""
        self._batch = update.batchId
        self.batches += 1
        rows = sum(source.numInputRows for source in update.sources if str(self.control) not in source.description)
        self.rows += rows
        observed = update.observedMetrics
        self.results += _figure(observed.get(RESULTS), "rows")
        for step, figures in observed.items():
            if step.startswith(OBSERVED):
                self.late += _figure(figures, "late")
                self.damaged += _figure(figures, "damaged")
                self._take_state(step, figures)
        for source, count in set_aside(observed).items():
            self.ahead[source] = self.ahead.get(source, 0) + count
        self._take_times(update.eventTime)
        lag = (self._newest - self._watermark).total_seconds() if self._newest and self._watermark else None
        self.last = Progress(
            batch=update.batchId,
            rows=rows,
            rows_total=self.rows,
            rows_per_second=update.processedRowsPerSecond,
            watermark=self._watermark,
            lag_seconds=None if lag is None else max(lag, 0.0),
            state_rows=sum(state.rows for state in self._states.values()),
            state_bytes=sum(state.bytes for state in self._states.values()),
            late_total=self.late,
            results_total=self.results,
            ended=self.ended,
            ahead_total=sum(self.ahead.values()),
            instances=tuple(self._instances[place] for place in sorted(self._instances)),
        )
        return self.last

    def _is_new(self, update: StreamingQueryProgress) -> bool:
        # Spark also reports that it looked for data and ran nothing, under the number of the batch to come.
        ran = "addBatch" in update.durationMs
        return ran and (self._batch is None or update.batchId > self._batch)

    def _take_state(self, step: str, observed: Any) -> None:
        """Cells without anything to do report nothing, so only a step's fullest reports stand for all of them."""
        for cell in (None if observed is None else observed["by_cell"]) or ():
            self._instances[step, cell["cell"]] = cell["instances"]
        cells = _figure(observed, "cells")
        known = self._states.get(step)
        if cells and (known is None or cells >= known.cells):
            self._states[step] = _State(cells, _figure(observed, "state_rows"), _figure(observed, "state_bytes"))

    def _take_times(self, event_time: dict[str, str]) -> None:
        newest, watermark = _moment(event_time.get("max")), _moment(event_time.get("watermark"))
        if newest is not None and newest < _END_SEEN:
            self._newest = max(self._newest or newest, newest)
        if watermark is not None and watermark >= _END_SEEN:
            self.ended = True
        elif watermark is not None and watermark > _EPOCH:
            # Spark's watermark was asked to be 1 ms too long.
            self._watermark = watermark + timedelta(milliseconds=1)


def _figure(row: Any, name: str) -> int:
    value = None if row is None else row[name]
    return 0 if value is None else int(value)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
