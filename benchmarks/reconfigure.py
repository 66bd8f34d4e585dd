"""How long does a change of instances take, and for how long does output stand still? (STRETCH, Q4)

A count by key runs in this process under an open-loop load: a batch is due every millisecond, at 70 % of the highest rate
that two instances sustain in such batches. While it runs, the number of instances goes back and forth between two values;
timed is every change, from the call until the last instance has switched. No state moves, and the job says so.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import tidegate as tg
from benchmarks.loads import Load, Pool
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import write_json
from benchmarks.sustain import capacity, highest, next_rate, probe
from benchmarks.workloads import WINDOWED
from tidegate.runtime.local.epochs import Reconfiguration
from tidegate.runtime.local.job import LocalJob

CHANGES = ((1, 2), (2, 1), (2, 4), (4, 2), (8, 9), (1, 32), (32, 1))
FEW = 4
"""Changes of up to so many instances are held against the ladder; the others are reported."""
ROUNDS, ROUNDS_OF_MANY = 200, 20
LOAD = 0.7
BATCHES_PER_SECOND = 1_000
PAUSE_SECONDS = 0.005
SPAN_SECONDS = 3.0
"""How long each rate is offered in the search for the highest."""


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
    pool = Pool.of(WINDOWED["keyed"], options.seed)
    rate = sustained(pool)
    print(f"two instances sustain {rate:,.0f} tuples/s in batches of a millisecond; the load is {LOAD:.0%} of that")
    rows = []
    print(f"{'instances':>10}{'changes':>9}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'still p50':>11}{'still max':>11}")
    for before, after in CHANGES:
        row = measured(pool, before, after, LOAD * rate).as_json()
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


def sustained(pool: Pool) -> float:
    """The highest rate that two instances keep up with, to 5 %, in short trials."""
    tried: list[tuple[float, bool]] = []
    guess = capacity(pool, BATCHES_PER_SECOND, 2)
    while (rate := next_rate(tried, guess / 2)) is not None:
        tried.append((rate, probe(pool, rate, BATCHES_PER_SECOND, 2, SPAN_SECONDS).sustained))
    found = highest(tried)
    if found is None:
        raise SystemExit(f"no rate from {min(rate for rate, _ in tried):,.0f} tuples/s on is sustained on this machine")
    return found


def measured(pool: Pool, before: int, after: int, rate: float) -> Found:
    """The changes from one number to the other, under load; those back are not measured."""
    rounds = ROUNDS if max(before, after) <= FEW else ROUNDS_OF_MANY
    load = Load(pool, rate, BATCHES_PER_SECOND)
    job = tg.start(pool.query(*load.origins()), to=lambda table: None, instances=(before, 32))
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


def _settle(job: LocalJob) -> None:
    """Let the load run until results have come."""
    deadline = time.monotonic() + 30
    while job.results == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
