"""How long does a change of instances take, and for how long does output stand still? (STRETCH, Q4)

A count by key runs in this process under an open-loop load: a batch is due every millisecond, at 70 % of the rate that the
same query reaches when it is fed as fast as it takes. While it runs, the number of instances goes back and forth between two
values; timed is every change, from the call until the last instance has switched. No state moves, and the job says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import write_json
from tidegate.runtime.local.epochs import Reconfiguration
from tidegate.runtime.local.job import LocalJob
from tidegate.runtime.local.origins import Paced

CHANGES = ((1, 2), (2, 1), (2, 4), (4, 2), (8, 9), (1, 32), (32, 1))
FEW = 4
"""Changes of up to so many instances are held against the ladder; the others are reported."""
ROUNDS, ROUNDS_OF_MANY = 200, 20
LOAD = 0.7
BATCHES_PER_SECOND = 1_000
KEYS = 1_000
TUPLES_PER_EVENT_SECOND = 1_000
PAUSE_SECONDS = 0.005
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("key", pa.int64()), ("value", pa.float64())])


@dataclass(frozen=True, slots=True)
class Found:
    """All changes between two numbers of instances."""

    before: int
    after: int
    done: tuple[Reconfiguration, ...]

    def as_json(self) -> dict[str, Any]:
        took = sorted(1e3 * each.seconds for each in self.done)
        still = [1e3 * each.stood_still_seconds for each in self.done]
        return {
            "engine": f"tidegate-local {self.before}→{self.after}",
            "changes": len(took),
            "p50_ms": round(statistics.median(took), 2),
            "p99_ms": round(took[int(0.99 * (len(took) - 1))], 2),
            "max_ms": round(took[-1], 2),
            "stand_still_p50_ms": round(statistics.median(still), 2),
            "stand_still_max_ms": round(max(still), 2),
            "state_bytes_moved": sum(each.state_bytes_moved for each in self.done),
        }


def run(options: Options) -> int:
    """Measure every change and print it."""
    rate = capacity(options.seed)
    print(
        f"as fast as it goes, two instances: {rate:,.0f} tuples/s; the load is {LOAD:.0%} of that, due every millisecond"
    )
    rows = []
    print(f"{'instances':>10}{'changes':>9}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'still p50':>11}{'still max':>11}")
    for before, after in CHANGES:
        row = measured(before, after, LOAD * rate, options.seed).as_json()
        rows.append(row)
        print(
            f"{f'{before}→{after}':>10}{row['changes']:>9}{row['p50_ms']:>9.2f}{row['p99_ms']:>9.2f}{row['max_ms']:>9.2f}"
            f"{row['stand_still_p50_ms']:>11.2f}{row['stand_still_max_ms']:>11.2f}"
        )
    moved = sum(row["state_bytes_moved"] for row in rows)
    print(f"\nstate moved by all of them: {moved} bytes")
    path = options.out / "reconfigure.json"
    content = {"workload": "reconfigure", "input": {"tuples_per_second": round(LOAD * rate), "seed": options.seed}}
    write_json(path, {**content, "machine": describe(), "rows": rows, "ratios": {}})
    print(f"written to {path}")
    return 0


def capacity(seed: int) -> float:
    """Tuples per second when nothing is scheduled, in batches like those of the load."""
    tuples = 1_000_000
    rows = 500
    made = [batch for _, batch in batches(seed, rows, tuples // rows)]
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        tg.start(query(made), to=lambda table: None, instances=2).wait()
        best = max(best, tuples / (time.perf_counter() - began))
    return best


def measured(before: int, after: int, rate: float, seed: int) -> Found:
    """The changes from one number to the other, under load; those back are not measured."""
    rounds = ROUNDS if max(before, after) <= FEW else ROUNDS_OF_MANY
    rows = max(round(rate / BATCHES_PER_SECOND), 1)
    job = tg.start(query(Paced(batches(seed, rows))), to=lambda table: None, instances=(before, 32))
    try:
        _settle(job)
        done = []
        for _ in range(rounds):
            done.append(job.reconfigure(instances=after))
            time.sleep(PAUSE_SECONDS)
            job.reconfigure(instances=before)
            time.sleep(PAUSE_SECONDS)
    finally:
        job.cancel()
    return Found(before, after, tuple(done))


def query(origin: Any) -> tg.Stream:
    """Count and mean by key, windows of 60 s every 10 s."""
    tuples = tg.stream(origin, time="ts", schema=SCHEMA)
    return tuples.key_by("key").window("60 seconds", every="10 seconds").aggregate(n=tg.count(), mean=tg.mean("value"))


def batches(seed: int, rows: int, most: int | None = None) -> Iterator[tuple[float, pa.RecordBatch]]:
    """Batches of some rows, each with the second it is due at; without end unless there are at most so many."""
    random = np.random.default_rng(seed)
    step = 1_000_000 // TUPLES_PER_EVENT_SECOND
    number = 0
    while most is None or number < most:
        times = (number * rows + np.arange(rows)) * step
        columns = [pa.array(times).cast(SCHEMA.field("ts").type), pa.array(random.integers(0, KEYS, rows))]
        yield number / BATCHES_PER_SECOND, pa.record_batch([*columns, pa.array(random.random(rows))], schema=SCHEMA)
        number += 1


def _settle(job: LocalJob) -> None:
    """Let the load run until results have come."""
    deadline = time.monotonic() + 30
    while job.results == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
