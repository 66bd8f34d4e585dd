"""The engine of `latency-spark` that reads files by itself builds a job of its own: a change of jobs must reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.engines import spark_latency
from benchmarks.inputs import PRIMER
from benchmarks.paced_files import COLUMNS


@pytest.mark.parametrize("engine", ["tidegate-spark", "tidegate-spark-df"])
def test_it_completes_a_batch_and_stops(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(COLUMNS.empty_table(), source / PRIMER)
    monkeypatch.setattr(spark_latency, "session", lambda _: spark)
    running = spark_latency.LatencyEngine(engine, "latency-spark")
    assert running.start(str(source), str(tmp_path / "scratch")) > 0
    running.stop()
