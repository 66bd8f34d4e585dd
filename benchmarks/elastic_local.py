"""A query in this process whose load steps ten times up and down, again and again: latency, instances, decisions.

    python -m benchmarks.elastic_local --ups 10 --step-seconds 5
    python -m benchmarks elastic-local

Every tuple takes 0.5 ms in a function that waits, as for a service, so instances add up on any number of cores. Prints
JSON: for each step when the p99 latency of results was back under the target for good, and which decisions were made;
and whether each tuple was counted exactly once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from tidegate.runtime.local.figures import Latencies
from tidegate.sources.in_memory import Paced
from tidegate.telemetry.read import decisions

TIME = pa.timestamp("us", tz="UTC")
BATCH_SECONDS = 0.02
COST_SECONDS = 0.0005
WINDOW_US = 100_000
BUCKET_SECONDS = 0.1


def waiting(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(batch.num_rows * COST_SECONDS)
    return batch


def load(rates: list[int], step_seconds: float) -> Iterator[tuple[float, pa.RecordBatch]]:
    for number, rate in enumerate(np.repeat(rates, round(step_seconds / BATCH_SECONDS))):
        rows = int(rate * BATCH_SECONDS)
        times = number * 20_000 + np.arange(rows) * 20_000 // rows
        columns = [pa.array(times).cast(TIME), pa.array(times % 997)]
        yield (number + 1) * BATCH_SECONDS, pa.record_batch(columns, ["ts", "k"])


def run(ups: int, step_seconds: float, low: int, target_seconds: float) -> dict[str, Any]:
    rates = [low, *([10 * low, low] * ups)]
    source = tg.stream(Paced(load(rates, step_seconds)), time="ts", schema={"ts": TIME, "k": pa.int64()})
    query = source.map_batches(waiting).key_by("k").window(f"{WINDOW_US}us").aggregate(n=tg.count())
    results: list[pa.Table] = []
    path = Path(tempfile.mkdtemp()) / "run.ledger"
    began = time.monotonic()
    job = tg.start(
        query,
        to=results.append,
        instances=(1, 8),
        segment_rows=100,
        elastic=tg.Elastic(ledger=path),
    )
    buckets: list[tuple[float, float]] = []
    before = job.latencies._counts.copy()
    while not job.wait(BUCKET_SECONDS):
        counts = job.latencies._counts.copy()
        late = p99(counts - before)
        before = counts
        if late is not None:
            buckets.append((time.monotonic() - began, late))
    changes = decisions(path, changes_only=True, shadows=False)
    made = list(zip(*(changes[name].to_pylist() for name in ("time_seconds", "instances", "why")), strict=True))
    steps = []
    for step in range(1, len(rates)):
        start, end = step * step_seconds, (step + 1) * step_seconds
        over = [at - start for at, late in buckets if start <= at < end and late > target_seconds]
        steps.append(
            {
                "rate": rates[step],
                "under_target_after_seconds": round(max(over, default=0.0), 2),
                "worst_seconds": round(max((late for at, late in buckets if start <= at < end), default=0.0), 2),
                "decisions": [(round(at - start, 2), count, why) for at, count, why in made if start <= at < end],
            }
        )
    return {
        "exactly_once": counted(results) == sent(load(rates, step_seconds)),
        "target_seconds": target_seconds,
        "worst_return_seconds": max(step["under_target_after_seconds"] for step in steps),
        "latest_decision_seconds": max((at for step in steps for at, _, _ in step["decisions"]), default=0.0),
        "changes": len(made),
        "steps": steps,
    }


def sent(batches: Iterator[tuple[float, pa.RecordBatch]]) -> Counter[tuple[int, int]]:
    """How many tuples of each window and key were due."""
    made: Counter[tuple[int, int]] = Counter()
    for _, batch in batches:
        times = batch["ts"].cast(pa.int64()).to_numpy()
        made.update(zip((times // WINDOW_US).tolist(), batch["k"].to_pylist(), strict=True))
    return made


def counted(results: list[pa.Table]) -> Counter[tuple[int, int]]:
    """What the query said of each window and key; one that is told twice counts twice."""
    made: Counter[tuple[int, int]] = Counter()
    for table in results:
        windows = table["window_start"].cast(pa.int64()).to_numpy() // WINDOW_US
        for window, key, n in zip(windows.tolist(), table["k"].to_pylist(), table["n"].to_pylist(), strict=True):
            made[window, key] += n
    return made


def p99(counts: Any) -> float | None:
    """The p99 of results counted by their latency, None if there are none."""
    if not counts.sum():
        return None
    return Latencies(max_seconds=float("inf"), _counts=counts).quantile(0.99)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--ups", type=int, default=10)
    made.add_argument("--step-seconds", type=float, default=5.0)
    made.add_argument("--low", type=int, default=400, help="tuples per second between the steps up")
    made.add_argument("--target-seconds", type=float, default=0.5)
    chosen = made.parse_args()
    print(json.dumps(run(chosen.ups, chosen.step_seconds, chosen.low, chosen.target_seconds)))


if __name__ == "__main__":
    main()
