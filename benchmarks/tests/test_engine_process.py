"""An engine in a process of its own: runs, collects, says when its first result is there, and is ended."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from benchmarks.compare import compare, load, sort
from benchmarks.engine_process import EngineFailed, EngineProcess
from benchmarks.inputs import Input, InputSpec, prepare
from benchmarks.workloads import WORDCOUNT, Batching


@pytest.fixture
def data(tmp_path: Path) -> Input:
    return prepare(InputSpec("tweets", Batching(2_000, 500), seed=1, tuples_per_second=10), tmp_path / "inputs")


def test_two_engines_give_the_same_rows(data: Input, tmp_path: Path) -> None:
    results = []
    for engine in ("duckdb", "tidegate-local"):
        process = EngineProcess(engine, WORDCOUNT.name, tmp_path / engine, driver_memory_gb=1)
        try:
            process.run(data)
            results.append(sort(load(process.collect(), WORDCOUNT), WORDCOUNT))
        finally:
            process.stop()
    agreement = compare("tidegate-local", results[1], results[0], WORDCOUNT, due_by=None)
    assert agreement.windows == 5 and agreement.rows > 0


def test_a_process_is_gone_after_its_first_result(data: Input, tmp_path: Path) -> None:
    process = EngineProcess("tidegate-local", WORDCOUNT.name, tmp_path / "engine", driver_memory_gb=1)
    started = psutil.Process(process.pid)
    try:
        process.first_result(data)
        assert started.is_running()
    finally:
        process.kill()
    assert not started.is_running()


def test_an_engine_that_does_not_stream_says_so(data: Input, tmp_path: Path) -> None:
    process = EngineProcess("duckdb", WORDCOUNT.name, tmp_path / "engine", driver_memory_gb=1)
    try:
        with pytest.raises(EngineFailed, match="first_result"):
            process.first_result(data)
    finally:
        process.stop()
