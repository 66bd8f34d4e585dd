"""Queries that follow their load: in this process, and on Spark beside what Spark does by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.machine import describe
from benchmarks.options import PROJECT, Options
from benchmarks.report import write_json

SIZED_BY = {
    "plain": "tg.autoscale, plain PySpark",
    "dynamic": "dynamic allocation, the same query",
    "tidegate": "tg.autoscale, a tidegate query",
}
MODE_SECONDS = 420
RETURN_SECONDS = 2.0


def local(options: Options) -> int:
    """A load that steps ten times up and down, ten times; 1 if a tuple is lost or doubled."""
    from benchmarks import elastic_local

    told = elastic_local.run(ups=10, step_seconds=5.0, low=400, target_seconds=0.5)
    print(f"{'step':>5}{'tuples/s':>10}{'p99 back under 0.5 s, s':>25}{'worst, s':>10}  decisions: after s → instances")
    for number, step in enumerate(told["steps"], 1):
        made = ", ".join(f"{at:.1f} → {count}" for at, count, _ in step["decisions"])
        under = step["under_target_after_seconds"]
        print(f"{number:>5}{step['rate']:>10,}{under:>25.2f}{step['worst_seconds']:>10.2f}  {made}")
    steps = len(told["steps"])
    print(f"\nevery tuple counted once: {'yes' if told['exactly_once'] else 'NO'}")
    print(f"longest until p99 was back: {told['worst_return_seconds']:.2f} s (to reach: {RETURN_SECONDS:g} s)")
    print(
        f"decisions: {told['changes']} for {steps} steps, the latest {told['latest_decision_seconds']:.2f} s after its step"
    )
    _write(options, "elastic-local", told)
    return 0 if told["exactly_once"] else 1


def spark(options: Options) -> int:
    """Ways to size a query, one after the other, each in a process of its own; 1 if an answer is wrong."""
    rows = []
    print(f"{'sized by':<36}{'executor-seconds':>17}{'changes':>9}{'worst lag, s':>14}{'mean lag, s':>13}  answer")
    for mode, meaning in SIZED_BY.items():
        row = _in_a_process(mode)
        rows.append(row)
        if "failed" in row:
            print(f"{meaning:<36}  {row['failed']}")
            continue
        print(
            f"{meaning:<36}{row['executor_seconds']:>17.0f}{row['changes']:>9}{row['worst_lag_seconds']:>14.1f}"
            f"{row['mean_lag_seconds']:>13.2f}  {'right' if row['right'] else 'WRONG'}",
            flush=True,
        )
    for row in rows:
        for instances, why in row.get("decisions", ()):
            print(f"{row['mode']}: {instances} because {why}")
    _write(options, "elastic-spark", {"rows": rows})
    return 0 if all(row.get("right") for row in rows) else 1


def _in_a_process(mode: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.elastic_spark", mode]
    try:
        made = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=MODE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"mode": mode, "failed": f"not done in {MODE_SECONDS} s"}
    if made.returncode:
        return {"mode": mode, "failed": (made.stderr.strip().splitlines() or ["no message"])[-1]}
    row: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return row


def _write(options: Options, name: str, content: dict[str, Any]) -> None:
    path = options.out / f"{name}.json"
    write_json(path, {"workload": name, "machine": describe(), **content})
    print(f"written to {path}")
