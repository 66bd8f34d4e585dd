"""How long from the start of a process to its first result? 50,000 tuples of wordcount, on every engine that streams.

Each engine gets a new process for every run. The clock starts before the process does and stops when the engine has a
result in its hands; then the process is killed. One run of each goes before, unmeasured, so that files lie in memory and
compiled loops on disk. tidegate in process is also run with nothing compiled.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import ladder
from benchmarks.engine_process import EngineFailed, EngineProcess
from benchmarks.engines import JUDGES
from benchmarks.harness import installed_engines
from benchmarks.inputs import Input, InputSpec, prepare
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.options import CACHE, Options
from benchmarks.report import write_json
from benchmarks.workloads import WORDCOUNT, Batching

BATCHING = Batching(50_000, 10_000)
TUPLES_PER_EVENT_SECOND = 100  # so that windows close before the input ends: Spark hands out nothing else
LOCAL = "tidegate-local"
NUMBA_CACHE = "NUMBA_CACHE_DIR"
GOAL = ladder.Goal("first-result", "first result in process", lambda rows, ratios: None, 3, 1.5, "s", "less")


@dataclass(slots=True)
class Entry:
    """An engine that starts, `label` in the table; with `compiles` it finds no compiled loops."""

    engine: str
    label: str
    compiles: bool = False
    seconds: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "engine": self.label,
            "first_result_s": round(median(self.seconds), 2),
            "spread": [round(min(self.seconds), 2), round(max(self.seconds), 2)],
        }


def run(options: Options) -> int:
    """Start every engine in turns and print the medians."""
    names = [spec.name for spec in installed_engines(options.engines) if spec.windowed and spec.name not in JUDGES]
    entries = [Entry(name, name) for name in names]
    if LOCAL in names:
        entries.append(Entry(LOCAL, f"{LOCAL}, nothing compiled", compiles=True))
    CACHE.mkdir(parents=True, exist_ok=True)
    data = prepare(InputSpec("tweets", BATCHING, options.seed, TUPLES_PER_EVENT_SECOND), CACHE)
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="first-", dir=CACHE) as scratch:
        for turn in range(options.runs + 1):
            for entry in list(entries):
                try:
                    seconds = time_of(entry, data, Path(scratch) / f"{turn}-{entry.label}", options)
                except EngineFailed as failure:
                    failures.append(str(failure))
                    entries.remove(entry)
                    continue
                say(f"  {entry.label}: {seconds:.2f} s{'' if turn else ', not counted'}")
                if turn:
                    entry.seconds.append(seconds)
    _report(entries, failures, options)
    return 1 if failures else 0


def time_of(entry: Entry, data: Input, scratch: Path, options: Options) -> float:
    """Seconds from before a process starts until it has a result."""
    heap_gb = options.driver_memory_gb or WORDCOUNT.driver_memory_gb
    environment = {NUMBA_CACHE: str(scratch / "compiled")} if entry.compiles else {}
    began = time.perf_counter()
    process = EngineProcess(entry.engine, WORDCOUNT.name, scratch, heap_gb, environment)
    try:
        process.first_result(data)
        return time.perf_counter() - began
    finally:
        process.kill()


def _report(entries: list[Entry], failures: list[str], options: Options) -> None:
    rows = [entry.as_json() for entry in entries]
    width = max((len(row["engine"]) for row in rows), default=6)
    print(f"{'engine':<{width}}  {'first result s':>14}  {'min – max':>13}")
    for row in rows:
        spread = f"{row['spread'][0]:.2f} – {row['spread'][1]:.2f}"
        print(f"{row['engine']:<{width}}  {row['first_result_s']:>14.2f}  {spread:>13}")
    rungs = [ladder.Rung(GOAL, row["first_result_s"]) for row in rows if row["engine"] == LOCAL]
    print(ladder.table(rungs))
    ours = next((row["first_result_s"] for row in rows if row["engine"] == LOCAL), None)
    others = {} if ours is None else {row["engine"]: row["first_result_s"] for row in rows if row["engine"] != LOCAL}
    content = {
        "workload": "first-result",
        "input": {"tuples": BATCHING.tuples, "seed": options.seed},
        "machine": describe(),
        "rows": rows,
        "ratios": {f"{LOCAL}/{name}": round(seconds / ours, 2) for name, seconds in others.items() if ours},
        "ladder": [rung.as_json() for rung in rungs],
        "failures": failures,
    }
    path = options.out / "first-result.json"
    write_json(path, content)
    print(f"\nwritten to {path}")
    for failure in failures:
        print(f"\nFAILED {failure}")
