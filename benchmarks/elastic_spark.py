"""A Structured Streaming query on a real cluster of Spark workers on this machine, while its load rises and falls.

    python -m benchmarks.elastic_spark plain --phases 12x60,24x500,40x60,24x500,60x60
    python -m benchmarks elastic-spark

Three ways to size it: `plain` is an ordinary PySpark query under `tg.autoscale`, `tidegate` a tidegate query under the same,
`dynamic` the ordinary query under Spark's own dynamic allocation. `fixed` leaves both executors to it. Every tuple takes
1/400 s in a function that waits, as for a service, so two executors do twice the work of one on any machine. Prints JSON:
executor-seconds, changes, worst and mean lag (from a row's arrival to the end of its batch), and whether the counts are
those of the input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

WORKERS = 2
MASTER = f"local-cluster[{WORKERS},1,1024]"
FILE_SECONDS = 0.25
COST_SECONDS = 1 / 400
KEYS = 7
STORY = "12x60,24x500,40x60,24x500,60x60"
"""Seconds and rows per second of each phase; an executor completes 400 a second at most."""

WINDOW_US = 2_000_000


def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Wait for each row as long as a service would take for it."""
    for batch in batches:
        time.sleep(batch.num_rows * COST_SECONDS)
        yield batch


def slow_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(batch.num_rows * COST_SECONDS)
    return batch


class Load(threading.Thread):
    """Writes files of rows with their times of arrival, at a rate that depends on the seconds since it began.

    It ends when the rate is None, or when `end` is called.
    """

    def __init__(self, folder: Path, rate: Callable[[float], float | None]) -> None:
        super().__init__(daemon=True, name="load")
        self.folder, self.rate = folder, rate
        self.counts: Counter[tuple[int, int]] = Counter()
        self.began = 0.0
        self.rows = 0
        self._ended = threading.Event()

    def run(self) -> None:
        self.began, number, owed = time.time(), 0, 0.0
        while not self._ended.wait(max(self.began + number * FILE_SECONDS - time.time(), 0.0)):
            rate = self.rate(number * FILE_SECONDS)
            if rate is None:
                return
            owed += rate * FILE_SECONDS
            self.write(number, int(owed))
            owed -= int(owed)
            number += 1

    def end(self) -> None:
        self._ended.set()
        self.join()

    def write(self, number: int, rows: int) -> None:
        if not rows:
            return
        now_us = int(time.time() * 1e6)
        lines = []
        for row in range(rows):
            time_us, key = now_us - rows + row, (number + row) % KEYS
            self.counts[time_us // WINDOW_US, key] += 1
            lines.append(json.dumps({"us": time_us, "k": key}))
        self.rows += rows
        draft = self.folder.parent / f"draft-{number}"
        draft.write_text("\n".join(lines) + "\n")
        draft.rename(self.folder / f"{number:06d}.json")


def rate_of(phases: list[tuple[float, float]]) -> Callable[[float], float | None]:
    """The rate of phases that follow one another: seconds and rows per second of each."""

    def rate(seconds: float) -> float | None:
        for length, rows in phases:
            if seconds < length:
                return rows
            seconds -= length
        return None

    return rate


class Watch(threading.Thread):
    """Writes down, four times a second, how many executors there are."""

    def __init__(self, count: Callable[[], int]) -> None:
        super().__init__(daemon=True, name="watch")
        self.count, self.ended = count, threading.Event()
        self.seen: list[tuple[float, int]] = []

    def run(self) -> None:
        while not self.ended.wait(0.25):
            self.seen.append((time.time(), self.count()))

    def changes(self, since: float) -> list[tuple[float, int]]:
        """When the number became another, in seconds since a time."""
        kept = [(at - since, count) for at, count in self.seen if at >= since]
        return [each for index, each in enumerate(kept) if not index or kept[index - 1][1] != each[1]]

    def executor_seconds(self, since: float, until: float) -> float:
        return sum(
            count * (self.seen[index + 1][0] - at)
            for index, (at, count) in enumerate(self.seen[:-1])
            if since <= at < until
        )


def session(mode: str, master: str = MASTER, cores: int = 1, partitions: int = 2) -> Any:
    """A session on workers of this machine, with executors of so many cores; a tidegate query has a cell a partition."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from tidegate.runtime.spark.session import LOCAL_CHECKPOINTS, STREAMING

    settings = {
        **STREAMING,
        **LOCAL_CHECKPOINTS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.executor.cores": str(cores),
        "spark.locality.wait": "0",
        "spark.decommission.enabled": "true",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
    }
    if mode == "dynamic":
        # Spark's own defaults for what is not needed to run at all. Decommissioning and the tracking of shuffles together
        # keep idle executors longer, as Spark warns.
        settings |= {
            "spark.decommission.enabled": "false",
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": str(WORKERS),
        }
    made = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


class Answers:
    """What the query said last of each window and key."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, int], int] = {}
        self.said = 0

    def take(self, frame: Any, batch: int) -> None:
        rows = frame.collect()
        self.said += len(rows)
        said = {(int(row["window_us"]) // WINDOW_US, int(row["k"])): int(row["n"]) for row in rows}
        # Another dict, as somebody may be going through this one.
        self.counts = self.counts | said


def plain_query(spark: Any, folder: Path, checkpoint: Path, answers: Answers) -> Any:
    from pyspark.sql import functions as F

    rows = spark.readStream.schema("us long, k int").json(str(folder)).mapInArrow(slow, "us long, k int")
    window = (F.floor(F.col("us") / WINDOW_US) * WINDOW_US).alias("window_us")
    counts = rows.groupBy(window, "k").agg(F.count(F.lit(1)).alias("n"))
    writer = counts.writeStream.outputMode("update").foreachBatch(answers.take).queryName("plain")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="1 second").start()


def tidegate_query(spark: Any, folder: Path, checkpoint: Path, control: Path, answers: Answers) -> Any:
    from pyspark.sql import functions as F

    import tidegate as tg

    rows = spark.readStream.schema("us long, k int").json(str(folder))
    timed = rows.select(F.timestamp_micros("us").alias("ts"), "k")
    stream = tg.stream(timed, time="ts", disorder="1 second").map_batches(slow_batch)
    cells = int(spark.conf.get("spark.sql.shuffle.partitions"))
    query = stream.key_by("k").window(f"{WINDOW_US}us").aggregate(n=tg.count())
    counts = query.to_spark(checkpoint=checkpoint, cells=cells, instances=1, control=control)
    named = counts.select(F.unix_micros("window_start").alias("window_us"), "k", "n")
    writer = named.writeStream.outputMode("append").foreachBatch(answers.take).queryName("tidegate")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="1 second").start()


def lags(query: Any, since: float) -> list[float]:
    """For each batch, from when its first row can have come to its end."""
    from tidegate.runtime.spark.batch_reports import batch_of, ran

    made = [batch_of(update) for update in query.recentProgress if ran(update)]
    return [
        batch.ended_at - before.began_at for before, batch in pairwise(made) if batch.rows and before.began_at >= since
    ]


def run(mode: str, phases: list[tuple[float, float]], ledger: Path | None) -> dict[str, Any]:
    """One run; the figures it gives begin with the load."""
    import tidegate as tg
    from tidegate.runtime.spark.executors import Executors

    root = Path(tempfile.mkdtemp(prefix="elastic-"))
    folder, control = root / "in", root / "control"
    folder.mkdir()
    control.mkdir()
    spark = session(mode)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 1000)
    ids = spark.sparkContext._jsc.sc().getExecutorIds
    watch = Watch(lambda: int(ids().size()))
    answers, load = Answers(), Load(folder, rate_of(phases))
    if mode == "tidegate":
        query = tidegate_query(spark, folder, root / "checkpoint", control, answers)
    else:
        query = plain_query(spark, folder, root / "checkpoint", answers)
    load.write(999_999, 40)
    query.processAllAvailable()
    scaling = None
    if mode in ("plain", "tidegate"):
        # One executor is where the story begins; a cluster gives all it has at the start.
        Executors(spark.sparkContext).reconfigure("", 1, None)
        wait_for(lambda: ids().size() == 1, 60)
        for number in range(3):
            # The one that is left starts its own processes with its first batches.
            load.write(999_990 + number, 40)
            query.processAllAvailable()
        scaling = tg.autoscale(query, most=WORKERS, ledger=ledger, period_seconds=2.0, shadows=("ds2", "thresholds"))
    watch.start()
    load.start()
    load.join()
    ended = time.time()
    query.processAllAvailable()
    if mode == "tidegate":
        tg.end_input(control)
        query.processAllAvailable()
        query.processAllAvailable()
    if scaling is not None:
        scaling.stop()
    expected = load.counts
    late = lags(query, load.began)
    watch.ended.set()
    watch.join()
    changes = watch.changes(load.began)
    query.stop()
    made = {
        "mode": mode,
        "rows": load.rows,
        "right": dict(expected) == answers.counts,
        "said": answers.said,
        "windows": len(expected),
        "executor_seconds": round(watch.executor_seconds(load.began, ended), 1),
        "executors": [(round(at, 1), count) for at, count in changes],
        "changes": len(changes) - 1,
        "worst_lag_seconds": round(max(late, default=0.0), 1),
        "mean_lag_seconds": round(sum(late) / max(len(late), 1), 2),
        "decisions": [] if scaling is None else [(each.instances, each.why) for each in scaling.changes],
        "notices": [] if scaling is None else [(each.notice.value, each.text) for each in scaling.notices],
        "failure": None if scaling is None else repr(scaling.failure),
    }
    spark.stop()
    return made


def wait_for(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds; False if it does not in time."""
    deadline = time.time() + seconds
    while not holds():
        if time.time() > deadline:
            return False
        time.sleep(0.25)
    return True


def phases_of(text: str) -> list[tuple[float, float]]:
    """'20x80,40x600' as 20 s at 80 rows/s and 40 s at 600."""
    pairs = (part.split("x") for part in text.split(","))
    return [(float(seconds), float(rate)) for seconds, rate in pairs]


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("mode", choices=("plain", "tidegate", "dynamic", "fixed"))
    made.add_argument("--phases", type=phases_of, default=phases_of(STORY))
    made.add_argument("--ledger", type=Path)
    chosen = made.parse_args()
    print(json.dumps(run(chosen.mode, chosen.phases, chosen.ledger)))


if __name__ == "__main__":
    main()
