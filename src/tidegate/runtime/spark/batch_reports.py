"""What Spark and tidegate's workers report of each micro-batch, as values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.runtime.spark.codec import reported
from tidegate.watermark import is_finite

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_reports(query: StreamingQuery, after: int | None) -> list[StreamingQueryProgress]:
    """The reports of the batches that ran since batch ``after``; those older than Spark keeps are lost."""
    latest = query.lastProgress
    if latest is None or (after is not None and latest.batchId <= after):
        return []
    follows = after is not None and latest.batchId == after + 1
    reports = [latest] if follows else query.recentProgress
    return [report for report in reports if ran(report) and (after is None or report.batchId > after)]


def ran(report: StreamingQueryProgress) -> bool:
    """Whether a report is of a batch; Spark also reports that it found no data, under the number of the batch to come."""
    return "addBatch" in report.durationMs


@dataclass(frozen=True, slots=True)
class CellReport:
    """The instances of a cell in a batch, and how long they worked, added up.

    ``loads`` are the rows of each of its shards that got any. ``adopted`` is what it took over from others in this batch,
    ``hands_over`` whether windows are being recreated.
    """

    instances: int
    busy_seconds: float
    step: str = ""
    cell: int = 0
    shards: int = 0
    rows: int = 0
    state_bytes: int = 0
    loads: Mapping[int, int] = field(default_factory=dict)
    adopted: Mapping[str, int] | None = None
    hands_over: bool = False

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> CellReport:
        """What a cell tells of a batch."""
        loads = {int(shard): int(rows) for shard, rows in told.get("loads", {}).items()}
        return cls(
            told["instances"],
            told["busy_ms"] / 1000,
            told["step"],
            told.get("cell", 0),
            told.get("shards", 0),
            told.get("rows", 0),
            told.get("state_bytes", 0),
            loads,
            told.get("adopted"),
            "handover_us" in told,
        )


def by_step(reports: Iterable[CellReport]) -> dict[str, list[CellReport]]:
    """Reports by their steps."""
    found: dict[str, list[CellReport]] = {}
    for report in reports:
        found.setdefault(report.step, []).append(report)
    return found


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch that ran: when, by the driver's clock, for how long, and what it took.

    ``left`` is how many rows its sources had left when it began, None where one of them does not report that.
    ``lag_seconds`` is event time from the watermark to the newest row. ``cells`` are the reports of the cells of tidegate's
    stateful steps, if there are any.
    """

    number: int
    began_at: float
    seconds: float
    rows: int
    left: float | None
    lag_seconds: float | None
    cells: tuple[CellReport, ...] = ()

    @property
    def ended_at(self) -> float:
        return self.began_at + self.seconds


def batch_of(report: StreamingQueryProgress) -> Batch:
    """Reads a report; where workers read files, Spark counts those, and rows are what the workers report."""
    left = [rows_left(source) for source in report.sources]
    told = reported(report.observedMetrics)
    cells = [each for each in told if "step" in each]
    newest = max((each["newest_us"] for each in cells if each["newest_us"] is not None), default=None)
    watermark = min((each["watermark_us"] for each in cells), default=None)
    return Batch(
        report.batchId,
        datetime.fromisoformat(report.timestamp).timestamp(),
        report.durationMs.get("triggerExecution", 0) / 1000,
        sum(each["rows"] for each in told if "source" in each) if told else report.numInputRows,
        sum(each for each in left if each is not None) if left and None not in left else None,
        lag_seconds(newest, watermark) if told else _lag_of_spark(report),
        tuple(map(CellReport.of, cells)),
    )


def _lag_of_spark(report: StreamingQueryProgress) -> float | None:
    """The lag of a query with a watermark of Spark's own, which begins at 1970."""
    newest, watermark = (report.eventTime.get(name) for name in ("max", "watermark"))
    if newest is None or watermark is None or datetime.fromisoformat(watermark) == EPOCH:
        return None
    return max((datetime.fromisoformat(newest) - datetime.fromisoformat(watermark)).total_seconds(), 0.0)


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


def moment_of(time_us: int) -> datetime:
    """An event time as a moment."""
    return EPOCH + timedelta(microseconds=time_us)


def lag_seconds(newest: int | None, watermark: int | None) -> float | None:
    """Event time from the watermark to the newest row, both in microseconds; None where one is not known."""
    if newest is None or watermark is None or not (is_finite(newest) and is_finite(watermark)):
        return None
    return max((newest - watermark) / 1e6, 0.0)


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
