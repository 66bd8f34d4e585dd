"""Keys whose popularity is shuffled while a query runs: a static and a balanced mapping beside a uniform load.

    python -m benchmarks skew-shuffle --seconds 42

Eight instances of an `apply` whose tuples wait 1 ms each, as for a service, so that instances add up on any number of cores
(as Elasticutor §5.2: 10,000 keys, 1 ms a tuple, ω shuffles a minute; its exponent is 0.5, here it is 1). The source is read
as fast as it is let in. Three runs: uniform keys, Zipf keys under the first mapping, and Zipf keys whose shards are moved.
Each counts the tuples of each key, and the counts must be those of what was sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import write_json

TIME = pa.timestamp("us")
SCHEMA = {"ts": TIME, "k": pa.int64()}
INSTANCES, KEYS, ZIPF, SHUFFLE_SECONDS = 8, 10_000, 1.0, 10.0
BATCH_ROWS, WAITING_ROWS = 100, 2_000
COST_SECONDS = 0.001
WARM_SECONDS = 2.0
"""The first seconds are left out: they compile loops, and shards are not measured yet."""


@dataclass
class ShuffledKeys:
    """Tuples of Zipf keys for so long; which keys are popular is drawn anew every ``shuffle_seconds``."""

    keys: int
    exponent: float
    seconds: float
    shuffle_seconds: float
    seed: int
    batch_rows: int = BATCH_ROWS
    sent: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    shuffles: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(self.seed)
        weights = np.arange(1, self.keys + 1) ** -self.exponent
        shares = np.cumsum(weights / weights.sum())
        counts = np.zeros(self.keys, np.int64)
        began = shuffled = time.monotonic()
        names = random.permutation(self.keys)
        while (now := time.monotonic()) - began < self.seconds:
            if now - shuffled >= self.shuffle_seconds:
                names, shuffled, self.shuffles = random.permutation(self.keys), now, self.shuffles + 1
            drawn = names[np.searchsorted(shares, random.random(self.batch_rows))]
            np.add.at(counts, drawn, 1)
            times = self.rows + np.arange(self.batch_rows)
            self.rows += self.batch_rows
            yield pa.record_batch([pa.array(times).cast(TIME), pa.array(drawn)], ["ts", "k"])
        self.sent = {int(key): int(count) for key, count in enumerate(counts) if count}


def counts(window: Any, one: Any) -> Any:
    """Count a key's tuples, each of which waits as for a service."""
    time.sleep(COST_SECONDS)
    return tg.updated({"n": (window.state["n"] or 0) + 1}, rows={"k": window.key, "n": (window.state["n"] or 0) + 1})


def throughput(source: ShuffledKeys, balance: bool | None) -> dict[str, Any]:
    """Tuples per second, after the first two seconds, and what was decided."""
    stream = tg.stream(source, time="ts", schema=SCHEMA, name="keys")
    query = (
        stream.key_by("k")
        .unbounded()
        .apply(update=counts, state={"n": pa.int64()}, returns={"k": pa.int64(), "n": pa.int64()})
    )
    last: dict[int, int] = {}
    rows = 0
    began = time.monotonic()
    at: list[tuple[float, int]] = []

    def take(table: pa.Table) -> None:
        nonlocal rows
        last.update(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))
        rows += table.num_rows
        at.append((time.monotonic() - began, rows))

    job = tg.start(
        query,
        to=take,
        instances=INSTANCES,
        segment_rows=2 * BATCH_ROWS,
        waiting_rows=WAITING_ROWS,
        balance=balance,
    )
    job.wait()
    changes = job.scaling.changes if job.scaling is not None else ()
    return {
        "tuples_per_second": settled_rate(at, source.seconds),
        "exactly_once": last == source.sent,
        "moves": len(changes),
        "shuffles": source.shuffles,
        "reasons": [change.why for change in changes],
    }


def settled_rate(at: Sequence[tuple[float, int]], seconds: float, warm_seconds: float = WARM_SECONDS) -> float:
    """Tuples per second, given how many were through after how many seconds; what is before or behind is left out."""
    within = [(moment, done) for moment, done in at if warm_seconds <= moment <= seconds]
    (start, before), (end, after) = within[0], within[-1]
    return round((after - before) / (end - start), 1)


def measured(seconds: float, shuffle_seconds: float) -> dict[str, dict[str, Any]]:
    """The three runs, one after the other."""

    def source(zipf: float) -> ShuffledKeys:
        return ShuffledKeys(KEYS, zipf, seconds, shuffle_seconds, seed=1)

    return {
        "uniform": throughput(source(0.0), None),
        "static": throughput(source(ZIPF), None),
        "balanced": throughput(source(ZIPF), True),
    }


def run(options: Options) -> int:
    """Prints each run's share of the uniform load's throughput; 1 if a count is wrong."""
    seconds = options.seconds or 42.0
    return show("skew-shuffle", measured(seconds, SHUFFLE_SECONDS), seconds, options)


def show(workload: str, runs: dict[str, dict[str, Any]], seconds: float, options: Options) -> int:
    """Prints each run's share of the first one's throughput, and keeps them; 1 if a count is wrong."""
    base = next(iter(runs.values()))["tuples_per_second"]
    print(f"{'mapping':<10}{'tuples/s':>10}{'of uniform':>12}{'shuffles':>10}{'moves':>7}  counts")
    for name, each in runs.items():
        each["share_of_uniform"] = round(each["tuples_per_second"] / base, 3)
        print(
            f"{name:<10}{each['tuples_per_second']:>10,.0f}{each['share_of_uniform']:>12.1%}{each['shuffles']:>10}"
            f"{each['moves']:>7}  {'right' if each['exactly_once'] else 'WRONG'}"
        )
    path = options.out / f"{workload}.json"
    write_json(path, {"workload": workload, "machine": describe(), "seconds": seconds, "runs": runs})
    print(f"written to {path}")
    return 0 if all(each["exactly_once"] for each in runs.values()) else 1
