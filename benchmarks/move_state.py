"""What it costs to move half of a query's state to another cell, while it runs.

A query on Spark begins with one of two cells. When its state has been built up, batches of one size follow each other;
between two of them half of the shards are given to the second cell (`tg.set_cells`). Each batch is timed, and the files
it put into the state folder are weighed. Batches in which a window ends are told apart from the others, as they read state.

Beside it native Spark holds the same state in RocksDB, is stopped, its checkpoint is repartitioned offline, which is what
Spark offers, and it is started again.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

import tidegate as tg
from benchmarks.engines.spark_native import ROCKSDB_STATE
from benchmarks.engines.spark_streaming import checkpoint_of, read_rows, session, to_parquet
from benchmarks.engines.tidegate_spark import SETTINGS
from benchmarks.fed_query import FedQuery, batch_ms
from benchmarks.machine import describe
from benchmarks.options import MOVED, Options
from benchmarks.report import write_json
from benchmarks.stored_state import (
    COLUMNS,
    KINDS,
    LOADED_ROWS,
    STATE_SECONDS,
    STEP_SECONDS,
    TUPLES,
    WINDOW_SECONDS,
    Tuples,
)
from tidegate.runtime.spark.codec import reported

NEIGHBOURS = 8
"""Batches before the move, and after it."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What batches took before and after a move: milliseconds, whether a window ended, bytes put; and what was adopted."""

    kind: str
    state_bytes: int
    before_ms: tuple[float, ...]
    batch_ms: tuple[float, ...]
    ends: tuple[bool, ...]
    ends_before: tuple[bool, ...]
    put_before: tuple[int, ...]
    put: tuple[int, ...]
    adopted: Mapping[str, int]

    def ratio(self, ending: bool) -> float | None:
        """The first batch of the kind asked for under the new mapping, in which a window ends or none, over those before."""
        usual = [ms for ms, ends in zip(self.before_ms, self.ends_before, strict=True) if ends is ending]
        first = next((ms for ms, ends in zip(self.batch_ms, self.ends, strict=True) if ends is ending), None)
        return first / statistics.median(usual) if usual and first is not None else None

    @property
    def put_ratio(self) -> float:
        """Bytes put in the batch in which the mapping came into force, over those of the batches before."""
        return self.put[0] / statistics.median(self.put_before)

    def as_json(self) -> dict[str, Any]:
        """For the results file."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        ratios = {
            "ratio": self.ratio(False),
            "ratio_where_a_window_ends": self.ratio(True),
            "put_ratio": self.put_ratio,
        }
        return fields | ratios


def run(options: Options) -> int:
    """Move half of the state of each kind of query, then let Spark repartition its own."""
    tuples = options.tuples or TUPLES
    engines = options.engines or ("tidegate-spark-df", "spark-rocksdb")
    kinds = [name for name in options.of or MOVED if "tidegate-spark-df" in engines]
    work = Path(tempfile.mkdtemp(prefix="tidegate-move-state-"))
    content: dict[str, Any] = {"workload": "move-state", "input": {"tuples": tuples}, "machine": describe(), "rows": []}
    try:
        for name in kinds:
            moved = _move(name, tuples, work / name, options)
            _print(moved)
            content["rows"].append(moved.as_json())
            shutil.rmtree(work / name, ignore_errors=True)
        if "spark-rocksdb" in engines:
            content["spark"] = _repartition(tuples, work / "native", options)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    write_json(options.out / "move-state.json", content)
    print(f"written to {options.out / 'move-state.json'}")
    return 0


def _move(name: str, tuples: int, work: Path, options: Options) -> Moved:
    kind, drawn = KINDS[name], Tuples(KINDS[name], options.seed)
    spark = session({**SETTINGS, "spark.driver.memory": f"{options.driver_memory_gb or 2}g"})
    folder = FedQuery.primed(work / "in", COLUMNS)
    rows = read_rows(spark, folder, files_per_batch=None)
    disorder = f"{STATE_SECONDS} seconds" if kind.disorderly else 0
    query = kind.query(tg.stream(rows, time="ts", disorder=disorder, ahead=None))
    checkpoint, control = checkpoint_of(work), work / "control"
    results = query.to_spark(checkpoint=checkpoint, control=control, cells=(1, 2))
    fed = FedQuery(folder, to_parquet(results, work).start())
    try:
        _load(fed, drawn, tuples, name)
        load = max(tuples * STEP_SECONDS // STATE_SECONDS, 1_000)

        def batches(number: int) -> list[StreamingQueryProgress]:
            return [fed.feed(drawn.next(load)) for _ in range(number)]

        batches(4)  # what was loaded is merged, and workers are warm
        before = batches(NEIGHBOURS)
        tg.set_cells(control, 2)
        fed.query.processAllAvailable()  # a batch that hears of the mapping, which is in force behind it
        after = batches(NEIGHBOURS)
    finally:
        fed.query.stop()
        spark.stop()
    put = _bytes_put(checkpoint / "tidegate")
    adopted = [each["adopted"] for each in reported(after[0].observedMetrics) if "adopted" in each]
    if not adopted:
        raise RuntimeError(f"{name}: no cell took over shards in the batch after the mapping was sent")
    return Moved(
        name,
        sum(each["state_bytes"] for each in reported(before[-1].observedMetrics) if "step" in each),
        tuple(map(batch_ms, before)),
        tuple(map(batch_ms, after)),
        tuple(kind.disorderly and _ends_window(each) for each in after),
        tuple(kind.disorderly and _ends_window(each) for each in before),
        tuple(put.get(each.batchId, 0) for each in before),
        tuple(put.get(each.batchId, 0) for each in after),
        {figure: sum(each[figure] for each in adopted) for figure in adopted[0]},
    )


def _load(fed: FedQuery, drawn: Tuples, tuples: int, name: str) -> None:
    began = time.monotonic()
    for first in range(0, tuples, LOADED_ROWS):
        fed.feed(drawn.stored(min(LOADED_ROWS, tuples - first), first, tuples))
        print(f"\r{name}: {first / tuples:.0%} of the state is there", end="", file=sys.stderr)
    print(f"\r{name}: {tuples:,} tuples in state after {time.monotonic() - began:.0f} s", file=sys.stderr)


def _ends_window(progress: StreamingQueryProgress) -> bool:
    """Whether windows expired in a batch: its watermark came past the end of one."""
    watermarks = [each["watermark_us"] for each in reported(progress.observedMetrics) if "step" in each]
    into_window_us = min(watermarks) % (WINDOW_SECONDS * 1_000_000)
    return into_window_us < STEP_SECONDS * 1_000_000


def _bytes_put(state: Path) -> dict[int, int]:
    """The bytes of chunks by the batch that put them: files carry its number in their names."""
    found: dict[int, int] = {}
    for chunk in state.rglob("chunks/*"):
        batch = int(chunk.name.split("-")[0])
        found[batch] = found.get(batch, 0) + chunk.stat().st_size
    return found


def _print(moved: Moved) -> None:
    quiet, ending = moved.ratio(False), moved.ratio(True)
    print(f"\n{moved.kind}: {moved.state_bytes / 1e6:,.0f} MB of state, half of it to a second cell")
    print(f"  batches before  {'  '.join(_shown(moved.before_ms, moved.ends_before))} ms")
    print(f"  batches after   {'  '.join(_shown(moved.batch_ms, moved.ends))} ms   (* a window ends)")
    for what, ratio in (("where no window ends", quiet), ("where a window ends", ending)):
        if ratio is not None:
            print(f"  first batch {what}: {ratio:.2f}× its neighbours")
    print(f"  bytes put in the batch of the move: {moved.put_ratio:.3f}× its neighbours")
    print(f"  adopted: {', '.join(f'{name} {value:,}' for name, value in moved.adopted.items())}")


def _shown(times: tuple[float, ...], ends: tuple[bool, ...]) -> list[str]:
    return [f"{ms:,.0f}{'*' if end else ''}" for ms, end in zip(times, ends, strict=True)]


def _repartition(tuples: int, work: Path, options: Options) -> dict[str, float]:
    """Native Spark with the same windows: stopped, repartitioned from one partition to two, and started again."""
    drawn = Tuples(KINDS["windows"], options.seed)
    memory = f"{options.driver_memory_gb or 4}g"
    spark = session({**ROCKSDB_STATE, "spark.sql.shuffle.partitions": "1", "spark.driver.memory": memory})
    folder = FedQuery.primed(work / "in", COLUMNS)
    try:
        fed = FedQuery(folder, _native(spark, folder, work).start(), counts=_counted)
        _load(fed, drawn, tuples, "spark-rocksdb")
        load = max(tuples * STEP_SECONDS // STATE_SECONDS, 1_000)
        before = [batch_ms(fed.feed(drawn.next(load))) for _ in range(NEIGHBOURS)]
        clock = time.monotonic()
        fed.query.stop()
        stopped = time.monotonic() - clock
        spark._streamingCheckpointManager.repartition(str(checkpoint_of(work)), 2)
        repartitioned = time.monotonic() - clock - stopped
        fed = FedQuery(folder, _native(spark, folder, work).start(), written=fed.written, counts=_counted)
        first = batch_ms(fed.feed(drawn.next(load)))
        outage = time.monotonic() - clock
        fed.query.stop()
    finally:
        spark.stop()
    print(f"\nspark-rocksdb: {tuples:,} tuples, stopped in {stopped:.1f} s, repartitioned in {repartitioned:.1f} s")
    print(f"  first batch {first:,.0f} ms, before {statistics.median(before):,.0f} ms; {outage:.1f} s without results")
    return {
        "repartition_s": repartitioned,
        "stop_s": stopped,
        "first_batch_ms": first,
        "before_ms": statistics.median(before),
        "outage_s": outage,
    }


def _counted(progress: StreamingQueryProgress) -> int:
    return int(progress.numInputRows)


def _native(spark: SparkSession, folder: Path, work: Path) -> Any:
    rows = read_rows(spark, folder, files_per_batch=None).withWatermark("ts", f"{STATE_SECONDS} seconds")
    windows = rows.groupBy(F.window("ts", f"{WINDOW_SECONDS} seconds"), "key").agg(F.count("*").alias("n"))
    return to_parquet(windows, work)
