"""Does a micro-batch cost what it touches, or what is stored?

Two queries in one Spark count tuples by key in windows of an hour. One holds a number of keys in its open window, the
other ten times as many; both then get the same batches, which touch the same few keys. The figure is the ratio of the
median batch times. After that every Python worker is killed, and what it held in memory with it, and the next batch is timed
too.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

import tidegate as tg
from benchmarks.engines.spark_streaming import checkpoint_of, read_rows, session, sink_of, to_parquet
from benchmarks.engines.tidegate_spark import SETTINGS
from benchmarks.fed_query import FedQuery, batch_ms
from benchmarks.ladder import held_against
from benchmarks.ladder import table as ladder_table
from benchmarks.machine import describe
from benchmarks.memory import MEASURE, PeakMemory
from benchmarks.options import Options
from benchmarks.report import write_json
from benchmarks.sink_commits import commit_path

KEYS = 100_000
GROWTH = 10
TOUCHED = 5_000
BATCH_ROWS = 20_000
WARM, MEASURED = 10, 20
START_US = 1_704_067_200_000_000


def run(options: Options) -> int:
    """Run both sizes side by side, batch by batch, and print the ratio."""
    work = Path(tempfile.mkdtemp(prefix="tidegate-state-growth-"))
    spark = _session(options)
    try:
        held = {"1x": KEYS, f"{GROWTH}x": GROWTH * KEYS}
        first = _start(spark, work / "first")  # what starts in a new Java process takes long
        _fed(first, np.arange(KEYS), 0)
        first.query.stop()
        growing = {name: _start(spark, work / name) for name in held}
        for name, keys in held.items():
            took = _fed(growing[name], np.arange(keys), 0)
            print(f"{name}: {keys:,} keys stored in {took / 1000:.1f} s", file=sys.stderr)
        times: dict[str, list[float]] = {name: [] for name in held}
        with PeakMemory(os.getpid()) as memory:
            for batch in range(WARM + MEASURED):
                touched = np.random.default_rng(batch).integers(0, TOUCHED, BATCH_ROWS)
                for name, target in growing.items():
                    times[name].append(_fed(target, touched, batch))
        lost = {name: _after_loss(target) for name, target in growing.items()}
        for target in growing.values():
            target.query.stop()
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)
    starts = {name: target.start_s for name, target in growing.items()}
    _report({name: taken[WARM:] for name, taken in times.items()}, lost, starts, memory.peak_mb, options)
    return 0


def _session(options: Options) -> SparkSession:
    # Tasks may be tried four times: the benchmark kills workers on purpose.
    settings = {**SETTINGS, "spark.master": f"local[{os.cpu_count() or 1}, 4]"}
    if options.driver_memory_gb is not None:
        settings["spark.driver.memory"] = f"{options.driver_memory_gb}g"
    spark = session(settings)
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _start(spark: SparkSession, work: Path) -> FedQuery:
    """Start a query, and wait until it has come past a file without rows."""
    columns = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("key", pa.int64())])
    folder = FedQuery.primed(work / "in", columns)
    rows = read_rows(spark, folder, files_per_batch=None)
    query = tg.stream(rows, time="ts", disorder="10 minutes").key_by("key").window("1 hour").aggregate(n=tg.count())
    writer = to_parquet(query.to_spark(checkpoint=checkpoint_of(work)), work)
    started = time.time()
    growing = FedQuery(folder, writer.start())
    growing.query.processAllAvailable()
    entry = commit_path(sink_of(work), 0)
    assert entry is not None
    growing.start_s = entry.stat().st_mtime - started
    return growing


def _fed(target: FedQuery, keys: np.ndarray[Any, Any], seed: int) -> float:
    """Give one batch and return its time in milliseconds."""
    times = START_US + np.sort(np.random.default_rng(seed).integers(0, 60_000_000, len(keys)))
    return batch_ms(target.feed(pa.table({"ts": pa.array(times).cast(pa.timestamp("us", tz="UTC")), "key": keys})))


def _after_loss(target: FedQuery) -> float:
    """The time of the first batch after all Python workers are gone."""
    for process in psutil.Process().children(recursive=True):
        if process.name().startswith("python") and "pyspark.daemon" in " ".join(process.cmdline()):
            process.send_signal(signal.SIGKILL)
    time.sleep(1)
    return _fed(target, np.random.default_rng(99).integers(0, TOUCHED, BATCH_ROWS), 99)


def _report(
    times: dict[str, list[float]], lost: dict[str, float], starts: dict[str, float], peak_mb: float, options: Options
) -> None:
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    small, large = list(medians)
    ratio = medians[large] / medians[small]
    print(f"{'stored':<8}{'keys':>12}{'batch p50 ms':>14}{'min – max':>18}{'after a lost worker':>22}{'start s':>9}")
    for name, keys in zip(medians, (KEYS, GROWTH * KEYS), strict=True):
        spread = f"{min(times[name]):.0f} – {max(times[name]):.0f}"
        print(f"{name:<8}{keys:>12,}{medians[name]:>14.0f}{spread:>18}{lost[name]:>19.0f} ms{starts[name]:>9.2f}")
    print(f"\n{large}/{small} batch time = {ratio:.2f} (warm), {lost[large] / lost[small]:.2f} (after a lost worker)")
    print(f"peak memory of both queries together: {peak_mb:,.0f} MB")
    ratios = {f"{large}/{small}": ratio, f"{large}/{small} after a lost worker": lost[large] / lost[small]}
    rungs = held_against("state-growth", [], ratios)
    print(ladder_table(rungs))
    content = {
        "workload": "state-growth",
        "input": {"keys": KEYS, "growth": GROWTH, "touched": TOUCHED, "tuples": BATCH_ROWS, "batches": MEASURED},
        "machine": describe(),
        "memory": MEASURE,
        "peak_rss_mb": round(peak_mb),
        "rows": [
            {
                "engine": "tidegate-spark-df",
                "batch": name,
                "p50_ms": medians[name],
                "spread": [min(times[name]), max(times[name])],
                "after_lost_worker_ms": lost[name],
                "start_s": round(starts[name], 2),
            }
            for name in medians
        ],
        "ratios": ratios,
        "ladder": [rung.as_json() for rung in rungs],
    }
    write_json(options.out / "state-growth.json", content)
    print(f"written to {options.out / 'state-growth.json'}")
