"""What a run on Spark has done so far, added up from the reports of its batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.progress import Progress
from tidegate.runtime.spark.batch_reports import lag_seconds, moment_of, new_reports
from tidegate.runtime.spark.codec import reported
from tidegate.watermark import START, has_ended, is_finite

RESULTS = "tidegate_results"
"""The metric of a batch that has the number of its results."""


@dataclass(slots=True)
class Tally:
    """Adds up the reports on a query; what Spark reads from its ``checkpoint`` are names of files and messages, no data.

    The first batch of all also brings ``held`` results, if another run is gone on from.
    """

    checkpoint: Path
    held: int = 0
    batches: int = 0
    rows: int = 0
    results: int = 0
    late: int = 0
    unfilled: int = 0
    ahead: dict[str, int] = field(default_factory=dict)
    malformed: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    _batch: int | None = None
    _newest: int | None = None
    _watermark: int | None = None
    _cells: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def poll(self, query: StreamingQuery) -> list[Progress]:
        """Adds the batches that were completed since the last call."""
        return [self.take(report) for report in new_reports(query, self._batch)]

    def take(self, report: StreamingQueryProgress) -> Progress:
        """Adds one batch."""
        self._batch = report.batchId
        self.batches += 1
        self.results += _figure(report.observedMetrics.get(RESULTS), "rows") + (0 if report.batchId else self.held)
        told = reported(report.observedMetrics)
        counted = [each for each in told if "source" in each]
        # Of a DataFrame, workers count what native steps let through.
        own = f"{self.checkpoint}/"
        data = [source for source in report.sources if own not in source.description]
        rows = max(sum(each["rows"] for each in counted), sum(source.numInputRows for source in data))
        self.rows += rows
        for each in counted:
            _count(self.ahead, each["source"], each["ahead"])
            _count(self.malformed, each["source"], each["malformed"])
        for each in told:
            if "step" in each:
                self.late += each["late"]
                self.unfilled += each.get("unfilled", 0)
                self._cells[each["step"], each["cell"]] = each
        self._take_times()
        return Progress(
            batch=report.batchId,
            rows=rows,
            rows_total=self.rows,
            rows_per_second=1000 * rows / max(report.durationMs.get("triggerExecution", 0), 1),
            watermark=None if self._watermark is None else moment_of(self._watermark),
            lag_seconds=lag_seconds(self._newest, self._watermark),
            state_rows=sum(each["state_rows"] for each in self._cells.values()),
            state_bytes=sum(each["state_bytes"] for each in self._cells.values()),
            late_total=self.late,
            unfilled_total=self.unfilled,
            results_total=self.results,
            ended=self.ended,
            ahead_total=sum(self.ahead.values()),
            instances=tuple(self._cells[place]["instances"] for place in sorted(self._cells)),
        )

    def _take_times(self) -> None:
        """The last steps are furthest behind: the query has come as far as the least of its cells."""
        watermark = min((each["watermark_us"] for each in self._cells.values()), default=START)
        self.ended = has_ended(watermark)
        self._newest = max((each["newest_us"] or START for each in self._cells.values()), default=START)
        if is_finite(watermark):
            self._watermark = watermark


def _count(counts: dict[str, int], name: str, more: int) -> None:
    if more:
        counts[name] = counts.get(name, 0) + more


def _figure(row: Any, name: str) -> int:
    return int((row[name] if row is not None else None) or 0)
