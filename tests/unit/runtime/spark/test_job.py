"""What cells and sources report, added up."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from tidegate.runtime.spark.codec import OBSERVED
from tidegate.runtime.spark.tally import RESULTS, Tally
from tidegate.watermark import END, START

TEN = 1_704_103_200_000_000
"""2024-01-01 10:00."""
MINUTE = 60_000_000


def cell(number: int = 0, step: str = "1:hourly", **figures: Any) -> dict[str, Any]:
    """What a cell reports of a batch."""
    known = {"late": 0, "state_rows": 10, "state_bytes": 100, "instances": 2, "busy_ms": 5}
    times = {"watermark_us": START, "newest_us": None}
    return {"step": step, "cell": number, "cells": 2, **known, **times, **figures}


def source(rows: int, name: str = "calls", ahead: int = 0, malformed: int = 0) -> dict[str, Any]:
    """What is reported of a source."""
    return {"source": name, "rows": rows, "ahead": ahead, "malformed": malformed}


def update(batch: int, *told: dict[str, Any], ran: bool = True) -> StreamingQueryProgress:
    """What Spark reports of a batch; what it counts itself are files and control rows."""
    origin = {"startOffset": None, "endOffset": None, "latestOffset": None, "numInputRows": 7}
    rates = {"inputRowsPerSecond": 0.0, "processedRowsPerSecond": 5.0}
    # Each task gives a row of its own.
    rows = [json.dumps([each]) for each in told]
    observed: dict[str, Any] = {OBSERVED: {"cells": rows}} if told else {}
    return StreamingQueryProgress.fromJson(
        {
            "id": "123451d0-98ea-46a0-845e-2c7665ad2bc0",
            "runId": "b5a4f0c0-dc2c-49fb-8655-f1c3b1903480",
            "name": None,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": batch,
            "batchDuration": 100,
            "numInputRows": 7,
            **rates,
            "durationMs": {"addBatch": 1} if ran else {"latestOffset": 1},
            "eventTime": {},
            "stateOperators": [],
            "sources": [{"description": "FileStreamSource[file:/cp/inputs/0]", **origin, **rates}],
            "sink": {"description": "FileSink", "numOutputRows": -1},
            "observedMetrics": {**observed, RESULTS: {"rows": 3}},
        }
    )


class Query:
    """Reports what it is told to."""

    def __init__(self) -> None:
        self.recentProgress: list[StreamingQueryProgress] = []

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        return self.recentProgress[-1] if self.recentProgress else None


def test_totals_are_what_cells_and_sources_report() -> None:
    tally = Tally(Path("/elsewhere"))
    first = tally.take(
        update(0, source(500, malformed=2), source(20, "answers", ahead=3), cell(late=2, newest_us=TEN), cell(1))
    )
    assert (first.rows, first.late_total, first.watermark, first.lag_seconds) == (520, 2, None, None)
    progress = tally.take(
        update(
            1,
            source(100, ahead=1),
            source(0, "answers"),
            cell(watermark_us=TEN, newest_us=TEN + 5 * MINUTE),
            cell(1, watermark_us=TEN, newest_us=TEN),
        )
    )
    assert (progress.rows, progress.rows_total, progress.late_total, progress.results_total) == (100, 620, 2, 6)
    assert (tally.ahead, tally.malformed, progress.ahead_total) == ({"calls": 1, "answers": 3}, {"calls": 2}, 4)
    assert progress.watermark == datetime(2024, 1, 1, 10, tzinfo=UTC)
    assert progress.lag_seconds == 300
    assert not progress.ended


def test_names_of_files_are_no_rows() -> None:
    assert Tally(Path("/cp")).take(update(0, source(1))).rows == 1
    for elsewhere in ("/elsewhere", "/c", "/cp/inp"):
        assert Tally(Path(elsewhere)).take(update(0, source(1))).rows == 7, "of a DataFrame, workers may not see all"


def test_of_a_query_without_stages_of_ours_rows_are_what_spark_counts() -> None:
    progress = Tally(Path("/elsewhere")).take(update(0))
    assert (progress.rows, progress.state_rows, progress.instances, progress.ended) == (7, 0, (), False)


def test_the_query_has_ended_when_its_last_cell_has() -> None:
    tally = Tally(Path("/elsewhere"))
    both = {"watermark_us": TEN, "newest_us": TEN}
    tally.take(update(0, cell(**both), cell(step="2:daily", **both)))
    assert not tally.take(update(1, cell(watermark_us=END), cell(step="2:daily", **both))).ended
    progress = tally.take(update(2, cell(watermark_us=END), cell(step="2:daily", watermark_us=END)))
    assert progress.ended
    assert progress.watermark == datetime(2024, 1, 1, 10, tzinfo=UTC), "the end is no time"


def test_state_and_instances_are_added_up_over_cells_and_steps() -> None:
    tally = Tally(Path("/elsewhere"))
    told = [cell(0, instances=2), cell(1, instances=3), cell(0, "2:daily", state_rows=5, instances=1)]
    progress = tally.take(update(0, *told))
    assert (progress.state_rows, progress.state_bytes, progress.instances) == (25, 300, (2, 3, 1))
    progress = tally.take(update(1, cell(1, state_rows=0, instances=4), told[0], told[2]))
    assert (progress.state_rows, progress.instances) == (15, (2, 4, 1)), "of each cell what it said last"


def test_no_batch_is_missed_or_counted_twice() -> None:
    tally, query = Tally(Path("/elsewhere")), Query()

    def polled() -> list[int]:
        return [progress.batch for progress in tally.poll(query)]  # type: ignore[arg-type]

    assert polled() == []
    query.recentProgress = [update(4, ran=False), update(4)]
    assert polled() == [4]
    assert polled() == []
    query.recentProgress += [update(5, ran=False), update(5)]
    assert polled() == [5]
    query.recentProgress += [update(6), update(7), update(8, ran=False)]
    assert polled() == [6, 7]
    assert tally.batches == 4
