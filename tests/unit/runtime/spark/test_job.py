"""Spark's figures added up."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from tidegate.runtime.spark.job import Tally

CONTROL = Path("/cp/control")


def update(batch: int, rows: int, observed: dict[str, Any] | None = None, **event_time: str) -> StreamingQueryProgress:
    """What Spark reports of a batch; every one also has a row of control."""
    figures = {"late": 0, "state_rows": 10, "state_bytes": 100, "cells": 2, "damaged": 0, "by_cell": []}
    figures |= observed or {}
    source = {"startOffset": None, "endOffset": None, "latestOffset": None}
    rates = {"inputRowsPerSecond": 0.0, "processedRowsPerSecond": 5.0}
    return StreamingQueryProgress.fromJson(
        {
            "id": "123451d0-98ea-46a0-845e-2c7665ad2bc0",
            "runId": "b5a4f0c0-dc2c-49fb-8655-f1c3b1903480",
            "name": None,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": batch,
            "batchDuration": 100,
            "numInputRows": rows + 1,
            **rates,
            "durationMs": {"addBatch": 1} if observed is not None else {"latestOffset": 1},
            "eventTime": event_time,
            "stateOperators": [],
            "sources": [
                {"description": "FileStreamSource[file:/cp/inputs/0]", "numInputRows": rows, **source, **rates},
                {"description": f"FileStreamSource[file:{CONTROL}]", "numInputRows": 1, **source, **rates},
            ],
            "sink": {"description": "FileSink", "numOutputRows": -1},
            "observedMetrics": {"tidegate:1:hourly": figures, "tidegate_results": {"rows": 3}},
        }
    )


class Query:
    """Reports what it is told to."""

    def __init__(self) -> None:
        self.recentProgress: list[StreamingQueryProgress] = []

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        return self.recentProgress[-1] if self.recentProgress else None


def test_totals_are_of_data_alone() -> None:
    tally = Tally(CONTROL)
    tally.take(update(0, 500, {"late": 2}, max="2024-01-01T10:00:00.000Z", watermark="1970-01-01T00:00:00.000Z"))
    progress = tally.take(
        update(1, 100, {"late": None}, max="2024-01-01T10:05:00.000Z", watermark="2024-01-01T09:59:59.999Z")
    )
    assert (progress.rows, progress.rows_total, progress.late_total, progress.results_total) == (100, 600, 2, 6)
    assert progress.watermark == datetime(2024, 1, 1, 10, tzinfo=UTC)
    assert progress.lag_seconds == 300
    assert not progress.ended


def test_the_end_shows_in_the_watermark() -> None:
    tally = Tally(CONTROL)
    tally.take(update(0, 5, {}, max="9999-01-01T00:00:00.000Z", watermark="2024-01-01T09:59:59.999Z"))
    assert not tally.ended
    progress = tally.take(update(1, 0, {}, watermark="9998-12-31T23:59:59.999Z"))
    assert progress.ended
    assert progress.watermark == datetime(2024, 1, 1, 10, tzinfo=UTC)


def test_state_is_what_the_most_cells_report() -> None:
    tally = Tally(CONTROL)
    assert tally.take(update(0, 5, {"state_rows": 40})).state_rows == 40
    assert tally.take(update(1, 5, {"cells": 1, "state_rows": 7})).state_rows == 40
    assert tally.take(update(2, 5, {"cells": None, "state_rows": None})).state_rows == 40
    assert tally.take(update(3, 5, {"state_rows": 30})).state_rows == 30


def test_a_cell_without_work_runs_what_it_ran() -> None:
    tally = Tally(CONTROL)
    both = [{"cell": 0, "instances": 2, "busy_ms": 5}, {"cell": 1, "instances": 2, "busy_ms": 6}]
    assert tally.take(update(0, 5, {"by_cell": both})).instances == (2, 2)
    assert tally.take(update(1, 5, {"by_cell": [both[1] | {"instances": 3}]})).instances == (2, 3)
    assert tally.take(update(2, 5, {"by_cell": None})).instances == (2, 3)


def test_no_batch_is_missed_or_counted_twice() -> None:
    tally, query = Tally(CONTROL), Query()

    def polled() -> list[int]:
        return [progress.batch for progress in tally.poll(query)]  # type: ignore[arg-type]

    assert polled() == []
    query.recentProgress = [update(4, 0), update(4, 1, {})]
    assert polled() == [4]
    assert polled() == []
    query.recentProgress += [update(5, 0), update(5, 1, {})]
    assert polled() == [5]
    query.recentProgress += [update(6, 1, {}), update(7, 1, {}), update(8, 0)]
    assert polled() == [6, 7]
    assert tally.batches == 4
