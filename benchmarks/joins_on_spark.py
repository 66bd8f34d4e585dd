"""Joins on Spark beside Spark's own: all pairs near in time, and by key.

Native Spark refuses a stream-stream join without an equality, so for all pairs it gets a constant key. It compares so
slowly that the input of tidegate would take it an hour: each engine has an input of its own, and the figure is comparisons
a second. Both rates grow with the input, as the fixed cost of a batch weighs less, so native Spark's is a lower bound that
``--tuples`` raises; the ratio on the same small input, where that cost is nearly all, is printed beside it. By key both
have one input. A file of each side is one micro-batch; checkpoint and parquet sink are on the local disk.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.engines.spark_streaming import NO_CHILD_PROCESSES, PRIMER, ROCKSDB_STATE
from benchmarks.engines.tidegate_spark import SETTINGS
from benchmarks.join_inputs import Sides, keyed_sides, scalejoin_sides
from benchmarks.joins import near
from benchmarks.ladder import held_against
from benchmarks.ladder import table as ladder_table
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.options import Options
from benchmarks.report import write_json

BATCHES = 6
BEGIN_US = 1_700_000_000_000_000  # Spark drops what is at or before 1970
NATIVE_TUPLES = 12_000
SCALE_TUPLES = 150_000
KEYED_TUPLES = 600_000
KEYS = 100_000
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = ROCKSDB_STATE[PROVIDER]

Build = Callable[[DataFrame, DataFrame, Sides], DataFrame]


@dataclass(slots=True)
class Row:
    """One engine on one input, and the seconds of its runs."""

    engine: str
    sides: Sides
    build: Build
    provider: str
    seconds: list[float] = field(default_factory=list)
    batch_ms: list[float] = field(default_factory=list)
    output_rows: int = -1

    @property
    def rate(self) -> float:
        """Comparisons a second, if all near pairs were compared."""
        return self.sides.near_pairs / statistics.median(self.seconds)

    def as_json(self) -> dict[str, Any]:
        tuples = sorted(self.sides.tuples / each for each in self.seconds)
        return {
            "engine": self.engine,
            "tuples": self.sides.tuples,
            "window": self.sides.window,
            "near_pairs": self.sides.near_pairs,
            "comparisons_per_second": round(self.rate),
            "tuples_per_second": round(statistics.median(tuples)),
            "spread": [round(tuples[0]), round(tuples[-1])],
            "batch_p50_ms": round(statistics.median(self.batch_ms)),
            "output_rows": self.output_rows,
        }


def scalejoin(options: Options) -> int:
    """All pairs near in time, band recognition off, against native Spark with a constant key."""
    few = options.tuples or NATIVE_TUPLES
    many = max(few, SCALE_TUPLES)
    small, large = (scalejoin_sides(tuples, tuples // 3, options.seed) for tuples in (few, many))
    rows = [
        Row("spark, constant key", small, _native_near, HDFS),
        Row("tidegate-spark, the same input", small, _tidegate_near, ROCKSDB),
        Row("tidegate-spark", large, _tidegate_near, ROCKSDB),
    ]
    same = _measure(rows, options)
    ratios = {
        "tidegate-spark/spark": round(rows[2].rate / rows[0].rate, 1),
        "tidegate-spark, the same input/spark": round(rows[1].rate / rows[0].rate, 2),
    }
    return _report("scalejoin-spark", rows, ratios, options, same and rows[0].output_rows == rows[1].output_rows)


def equijoin(options: Options) -> int:
    """By key, against native Spark's stream-stream join on both of its state stores."""
    tuples = options.tuples or KEYED_TUPLES
    sides = keyed_sides(tuples, tuples // 6, KEYS, 0.0, options.seed)
    rows = [
        Row("spark-hdfs", sides, _native_keyed, HDFS),
        Row("spark-rocksdb", sides, _native_keyed, ROCKSDB),
        Row("tidegate-spark", sides, _tidegate_keyed, ROCKSDB),
    ]
    same = _measure(rows, options)
    ratios = {f"tidegate-spark/{row.engine}": round(rows[2].rate / row.rate, 2) for row in rows[:2]}
    ratios["tidegate-spark/spark"] = min(ratios.values())
    return _report("equijoin", rows, ratios, options, same and len({row.output_rows for row in rows}) == 1)


def _measure(rows: list[Row], options: Options) -> bool:
    """Run the engines in turns on one session, after a turn to warm up; whether each gave the same every time."""
    spark = _session()
    same = True
    try:
        with tempfile.TemporaryDirectory(prefix="joins-") as folder:
            places = {id(row.sides): Path(folder) / f"in-{id(row.sides)}" for row in rows}
            for row in rows:
                _write(row.sides, places[id(row.sides)])
            for turn in range(options.runs + 1):
                for row in rows:
                    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as scratch:
                        seconds, batch_ms, made = _run(spark, row, places[id(row.sides)], Path(scratch))
                    say(f"{row.engine}: {seconds:.2f} s, {made:,} pairs{' (warming up)' if turn == 0 else ''}")
                    same = same and row.output_rows in (-1, made)
                    row.output_rows = made
                    if turn:
                        row.seconds.append(seconds)
                        row.batch_ms += batch_ms
    finally:
        spark.stop()
    return same


def _run(spark: SparkSession, row: Row, folder: Path, scratch: Path) -> tuple[float, list[float], int]:
    """Seconds from the first batch with rows to the end, milliseconds of each batch, and how many pairs were written."""
    spark.conf.set(PROVIDER, row.provider)
    sides = [_stream(spark, folder / name) for name in ("left", "right")]
    writer = row.build(sides[0], sides[1], row.sides).writeStream.format("parquet")
    writer = writer.option("path", str(scratch / "sink")).option("checkpointLocation", str(scratch / "checkpoint"))
    query = writer.outputMode("append").trigger(availableNow=True).start()
    query.awaitTermination()
    ended = time.time()
    batches = [batch for batch in query.recentProgress if batch.numInputRows > 0]
    if len(batches) != BATCHES:
        raise RuntimeError(f"{BATCHES} files of each side were read in {len(batches)} micro-batches, not one in each")
    began = datetime.fromisoformat(batches[0].timestamp).timestamp()
    written = sum(pq.read_metadata(file).num_rows for file in (scratch / "sink").glob("*.parquet"))
    return ended - began, [float(batch.durationMs["triggerExecution"]) for batch in batches], written


def _stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder / PRIMER)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _native_near(left: DataFrame, right: DataFrame, sides: Sides) -> DataFrame:
    fits = "abs(x - a) <= 10 and abs(y - b) <= 10"
    one, other = left.withColumn("one", F.lit(1)), right.withColumn("other", F.lit(1))
    return _native(one, other, sides, f"one = other and {fits}").select("ts_left", "x", "y", "ts_right", "a", "b")


def _native_keyed(left: DataFrame, right: DataFrame, sides: Sides) -> DataFrame:
    named = right.withColumnsRenamed({"key": "key_right", "value": "value_right"})
    made = _native(left, named, sides, "key = key_right")
    return made.select("key", "ts_left", "value", "ts_right", "value_right")


def _native(left: DataFrame, right: DataFrame, sides: Sides, condition: str) -> DataFrame:
    """With none, Spark drops ties at the boundary of two micro-batches as late: hence the millisecond."""
    one, other = (
        side.withColumnRenamed("ts", name).withWatermark(name, "1 millisecond")
        for side, name in ((left, "ts_left"), (right, "ts_right"))
    )
    within = f"interval {sides.within_us} microseconds"
    close = f"ts_right between ts_left - {within} and ts_left + {within}"
    return one.join(other, F.expr(f"{condition} and {close}"))


def _tidegate_near(left: DataFrame, right: DataFrame, sides: Sides) -> DataFrame:
    made = tg.stream(left, time="ts").join(
        tg.stream(right, time="ts"), within=f"{sides.within_us}us", where=near, bands=False
    )
    results: DataFrame = made.select("ts", "ts_left", "x", "y", "ts_right", "a", "b").to_spark()
    return results


def _tidegate_keyed(left: DataFrame, right: DataFrame, sides: Sides) -> DataFrame:
    made = tg.stream(left, time="ts").join(tg.stream(right, time="ts"), on="key", within=f"{sides.within_us}us")
    results: DataFrame = made.select("ts", "key", "ts_left", "value", "ts_right", "value_right").to_spark()
    return results


def _write(sides: Sides, folder: Path) -> None:
    """Each side as a file without rows, which starts the query, and then one for each micro-batch."""
    for name, table in (("left", sides.left), ("right", sides.right)):
        place = folder / name
        if place.exists():
            return
        place.mkdir(parents=True)
        times = pc.add(table.column("ts").cast(pa.int64()), BEGIN_US)
        table = table.set_column(0, "ts", times.cast(pa.timestamp("us", tz="UTC")))
        rows = -(-table.num_rows // BATCHES)
        for number in range(BATCHES + 1):
            part = table.slice((number - 1) * rows, rows) if number else table.schema.empty_table()
            file = place / (f"{number:04}.parquet" if number else PRIMER)
            pq.write_table(part, file)
            # Spark reads files in the order of their modification times.
            os.utime(file, (1_700_000_000 + 2 * number,) * 2)


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    cores = os.cpu_count() or 1
    settings: Mapping[str, str] = {
        **SETTINGS,
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        **NO_CHILD_PROCESSES,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("tidegate benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _report(name: str, rows: list[Row], ratios: dict[str, float], options: Options, same: bool) -> int:
    made = [row.as_json() for row in rows]
    print(f"{'engine':<32}{'tuples':>10}{'G comparisons/s':>17}{'tuples/s':>11}{'min - max':>22}{'batch p50 ms':>14}")
    for row in made:
        spread = f"{row['spread'][0]:,} - {row['spread'][1]:,}"
        print(
            f"{row['engine']:<32}{row['tuples']:>10,}{row['comparisons_per_second'] / 1e9:>17.4f}"
            f"{row['tuples_per_second']:>11,}{spread:>22}{row['batch_p50_ms']:>14}"
        )
    for ratio, value in ratios.items():
        print(f"{ratio} = {value}")
    rungs = held_against(name, [], ratios)
    print(ladder_table(rungs))
    path = options.out / f"{name}.json"
    figures = {"rows": made, "ratios": ratios, "ladder": [rung.as_json() for rung in rungs]}
    write_json(path, {"workload": name, "seed": options.seed, "machine": describe(), **figures})
    print(f"written to {path}")
    if not same:
        print("FAILED: the engines found different pairs")
    return int(not same)
