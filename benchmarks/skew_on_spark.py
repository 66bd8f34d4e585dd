"""Keys whose popularity is shuffled while a query runs on Spark: the first mapping and a balanced one beside a uniform load.

    python -m benchmarks skew-shuffle-spark --seconds 62

What `skew-shuffle` runs in process, in eight cells of one instance each: tuples wait 1 ms each, as for a service, so cells
add up on any number of cores. Files of tuples appear as fast as they are read, one a micro-batch. Three runs: uniform keys,
Zipf keys under the first mapping, and Zipf keys whose shards are moved, which takes force with one of the next batches.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from benchmarks.options import Options, python_path
from benchmarks.skew_shuffle import KEYS, SCHEMA, SHUFFLE_SECONDS, ZIPF, ShuffledKeys, counts, settled_rate, show
from tidegate.progress import Progress
from tidegate.telemetry.read import decisions

CELLS = 8
FILE_ROWS = 8_000
"""A second's work for eight cells."""
WAITING_FILES = 2
PERIOD_SECONDS = 0.5
WARM_SECONDS = 10.0
"""The first seconds are left out: workers are started, loops are compiled, and shards are not measured yet."""


class Feed(threading.Thread):
    """Writes files of tuples, so that a few always wait to be read; it ends the query when the last one has been."""

    def __init__(self, source: ShuffledKeys, folder: Path, control: Path) -> None:
        super().__init__(daemon=True, name="feed")
        self._source, self._folder, self._control = source, folder, control
        self._room = threading.Semaphore(WAITING_FILES)
        self.read: list[tuple[float, int]] = []
        """After how many seconds how many tuples were through."""
        self._began = time.monotonic()

    def run(self) -> None:
        for number, batch in enumerate(self._source):
            draft = self._folder / f".draft-{number:06}"
            pq.write_table(pa.Table.from_batches([batch]), draft)
            draft.rename(self._folder / f"{number:06}.parquet")
            self._room.acquire()
        while not self.read or self.read[-1][1] < self._source.rows:
            time.sleep(0.05)
        tg.end_input(self._control)

    def report(self, progress: Progress) -> None:
        """Take in what a batch has read."""
        if progress.rows:
            self.read.append((time.monotonic() - self._began, progress.rows_total))
            self._room.release()


def throughput(source: ShuffledKeys, balance: bool, place: Path) -> dict[str, Any]:
    """Tuples per second, after the first seconds, and what was decided."""
    given, out, ledger = place / "in", place / "out", place / "run.ledger"
    given.mkdir(parents=True)
    stream = tg.stream(f"{given}/*.parquet", time="ts", schema=SCHEMA, name="keys", follow=True)
    query = (
        stream.key_by("k")
        .unbounded()
        .apply(update=counts, state={"n": pa.int64()}, returns={"k": pa.int64(), "n": pa.int64()})
    )
    feed = Feed(source, given, out / "_checkpoint" / "control")
    feed.start()
    made = tg.run(
        query,
        to=out,
        spark=f"local[{CELLS}]",
        cells=CELLS,
        instances=1,
        files_per_batch=1,
        bounded=False,
        progress=feed.report,
        elastic=tg.Elastic("fixed", period_seconds=PERIOD_SECONDS, ledger=ledger, balance=balance),
    )
    feed.join()
    last = made.read().group_by("k").aggregate([("n", "max")])
    changed = decisions(ledger, changes_only=True, shadows=False).to_pylist() if balance else []
    return {
        "tuples_per_second": settled_rate(feed.read, source.seconds, WARM_SECONDS),
        "exactly_once": dict(zip(last["k"].to_pylist(), last["n_max"].to_pylist(), strict=True)) == source.sent,
        "moves": len(changed),
        "shuffles": source.shuffles,
        "reasons": [each["why"] for each in changed],
        "delay_seconds": [(each["planned_delay_seconds"], each["took_delay_seconds"]) for each in changed],
    }


def run(options: Options) -> int:
    """Prints each run's share of the uniform load's throughput; 1 if a count is wrong."""
    seconds = options.seconds or 62.0
    os.environ["PYTHONPATH"] = python_path()
    runs = {}
    with tempfile.TemporaryDirectory(prefix="tidegate-skew-") as scratch:
        for name, exponent, balance in (("uniform", 0.0, False), ("static", ZIPF, False), ("balanced", ZIPF, True)):
            source = ShuffledKeys(KEYS, exponent, seconds, SHUFFLE_SECONDS, seed=1, batch_rows=FILE_ROWS)
            runs[name] = throughput(source, balance, Path(scratch) / name)
    return show("skew-shuffle-spark", runs, seconds, options)
