"""Runs Nexmark's queries on all engines, compares every result with DuckDB's, and shows the worst ratios first.

    python -m benchmarks nexmark                                  1,000,000 events, all queries and engines
    python -m benchmarks nexmark --events 100000 --runs 1 --of q5,q8 --engines duckdb,tidegate-local

Each engine is a process that lives through all queries. It runs a query once to warm up, and that result is compared; then
engines take turns. Time is from the start of a query to its end, whatever its start takes; processor time is that of the
engine's process and all its descendants.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.compare import digest
from benchmarks.engine_process import EngineFailed, EngineProcess
from benchmarks.engines.overlap import tree_cpu_seconds
from benchmarks.harness import installed_engines
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.nexmark.figures import Figures, ratios, shown, summary
from benchmarks.nexmark.flink_sql import UPDATING
from benchmarks.options import CACHE, Options
from benchmarks.report import write_json
from examples.nexmark.answers import ANSWERS
from examples.nexmark.generator import Nexmark

ENGINES = ("duckdb", "tidegate-local", "tidegate-spark", "spark-rocksdb", "flink")
JUDGE = "duckdb"
EVENTS, FEW_EVENTS, FILES, RATE = 1_000_000, 5_000, 4, 10_000
HEAP_GB = 4
LAST: Mapping[str, tuple[tuple[str, ...], str]] = {
    "q4": (("category",), "auctions"),
    "q17": (("auction", "window_start"), "batch"),
    "q18": (("bidder", "auction"), "batch"),
}
"""Of results that give a row again when it changes: its key, and the column that is greatest in the last one."""


@dataclass(frozen=True, slots=True)
class NexmarkInput:
    """Files of generated events, and the right answers to the queries over them."""

    folder: Path
    events: Nexmark
    answers: dict[str, pl.DataFrame]

    @property
    def arguments(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "longest_ms": round(self.events.longest_auction.total_seconds() * 1_000)}


def written(events: Nexmark) -> NexmarkInput:
    """The input in the cache, written on first use."""
    folder = CACHE / f"nexmark-v1-{events.events}-{events.rate}-seed{events.seed}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=CACHE, prefix="building-"))
        events.write(building, -(-events.events // FILES))
        building.rename(folder)
    return NexmarkInput(folder, events, {})


def run(options: Options) -> int:
    """Measure all queries; 1 if an engine failed or gave a wrong answer."""
    names = options.engines or ENGINES
    installed = [spec.name for spec in installed_engines(names) if spec.name in ENGINES]
    rate = options.rate or RATE
    whole = written(Nexmark(options.tuples or EVENTS, rate, options.seed))
    few = written(Nexmark(min(options.tuples or EVENTS, FEW_EVENTS), rate, options.seed))
    found: dict[str, list[Figures]] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="nexmark-", dir=CACHE) as scratch, ExitStack() as stack:
        bench = Bench(Path(scratch), stack, options.driver_memory_gb or HEAP_GB, whole, few, failures)
        for query in [name for name in ANSWERS if not options.of or name in options.of]:
            found[query] = bench.measure(query, installed, options.runs)
    by_query = ratios(found)
    print(shown(found, by_query))
    content = {
        "workload": "nexmark",
        "input": {"events": whole.events.events, "rate": rate, "files": FILES, "seed": options.seed},
        "machine": describe(),
        "rows": [each.as_json() for figures in found.values() for each in figures],
        "ratios": {**summary(by_query), **by_query},
        "failures": failures,
    }
    path = options.out / "nexmark.json"
    write_json(path, content)
    print(f"\nwritten to {path}")
    for each in failures:
        print(f"\nFAILED {each}")
    return 1 if failures else 0


class Bench:
    """The engines' processes, the inputs, and what went wrong so far."""

    def __init__(
        self, scratch: Path, stack: ExitStack, heap_gb: int, whole: NexmarkInput, few: NexmarkInput, failures: list[str]
    ) -> None:
        self._scratch, self._stack, self._heap_gb = scratch, stack, heap_gb
        self._whole, self._few, self._failures = whole, few, failures
        self._running: dict[str, EngineProcess] = {}
        self._steps = 0

    def measure(self, query: str, engines: Sequence[str], runs: int) -> list[Figures]:
        """Warm up and compare each engine, then take turns; those that fail or differ are told and left out."""
        ready: list[Figures] = []
        for engine in engines:
            figures = Figures(query, engine, self._whole.events.events)
            if self._guarded(lambda figures=figures: self._warm_up(figures), figures):
                ready.append(figures)
        for _ in range(runs):
            for figures in [each for each in ready if not each.cannot]:
                if not self._guarded(lambda figures=figures: self._take_turn(figures), figures):
                    ready.remove(figures)
        for figures in ready:
            say(f"  {query} {figures.line()}")
        return ready

    def _guarded(self, step: Any, figures: Figures) -> bool:
        try:
            step()
        except (EngineFailed, AssertionError) as failure:
            self._failures.append(f"{figures.query} {figures.engine}: {failure}")
            say(f"  {figures.query} {figures.engine}: FAILED {str(failure).splitlines()[0]}")
            if isinstance(failure, EngineFailed) and figures.engine in self._running:
                self._running.pop(figures.engine).kill()
            return False
        return True

    def _warm_up(self, figures: Figures) -> None:
        engine, query = figures.engine, figures.query
        given = self._few if engine == "flink" and query in UPDATING else self._whole
        self._call(engine, "prepare", **given.arguments)
        figures.cannot = self._run(figures).get("cannot")
        if figures.cannot:
            return
        target = self._next_folder()
        all_there = self._call(engine, "collect", target=str(target))
        only = UPDATING[query].compared if given is self._few else None
        figures.output_rows = compare(query, target, self._right(query, given), all_there, only)
        shutil.rmtree(target)
        if given is self._few:
            self._call(engine, "prepare", **self._whole.arguments)
            self._run(figures)

    def _take_turn(self, figures: Figures) -> None:
        process = self._process(figures.engine)
        used = tree_cpu_seconds(process.pid)
        figures.seconds.append(self._run(figures)["seconds"])
        figures.cpu_seconds.append(tree_cpu_seconds(process.pid) - used)

    def _run(self, figures: Figures) -> dict[str, Any]:
        result: dict[str, Any] = self._call(
            figures.engine, "run", query=figures.query, scratch=str(self._next_folder())
        )
        return result

    def _right(self, query: str, given: NexmarkInput) -> pl.DataFrame:
        """What DuckDB says, asked once for each input."""
        if query not in given.answers:
            target = self._next_folder()
            self._call(JUDGE, "prepare", **given.arguments)
            self._call(JUDGE, "run", query=query, scratch="")
            self._call(JUDGE, "collect", target=str(target))
            given.answers.clear()
            given.answers[query] = loaded(target)
            self._call(JUDGE, "prepare", **self._whole.arguments)
        return given.answers[query]

    def _call(self, engine: str, method: str, **arguments: Any) -> Any:
        return self._process(engine).call(method, **arguments)

    def _process(self, engine: str) -> EngineProcess:
        if engine not in self._running:
            process = EngineProcess(engine, "nexmark", self._next_folder(), self._heap_gb)
            self._stack.callback(process.stop)
            self._running[engine] = process
        return self._running[engine]

    def _next_folder(self) -> Path:
        self._steps += 1
        return self._scratch / f"{self._steps:04}"


def loaded(folder: Path) -> pl.DataFrame:
    """Results in canonical form: times as microseconds, whole numbers of 64 bits, floats to ten digits, text."""
    return (
        pl.scan_parquet(sorted(folder.glob("*.parquet")))
        .with_columns(
            pl.selectors.datetime().dt.epoch("us"),
            pl.selectors.integer().cast(pl.Int64),
            pl.selectors.float().round_sig_figs(10),
        )
        .collect()
    )


def compare(query: str, folder: Path, right: pl.DataFrame, all_there: bool, only: Sequence[str] | None) -> int:
    """How many rows an engine gave; AssertionError if they are not the right ones, or, not all there, not among them."""
    rows = loaded(folder)
    given = rows.height
    keys, latest = LAST.get(query, ((), ""))
    if latest in rows.columns:
        rows = rows.sort(latest).unique(keys, keep="last")
    names = list(only or right.columns)
    rows, right = rows.select(names), right.select(names)
    assert rows.height, "it gave no rows"
    if all_there:
        assert rows.height == right.height, f"{rows.height:,} rows, and not {right.height:,}"
        same = digest(rows) == digest(right)
    else:
        same = rows.join(right, on=names, how="anti", nulls_equal=True).is_empty() and rows.height <= right.height
    assert same, f"wrong rows, such as {rows.join(right, on=names, how='anti', nulls_equal=True).head(2).rows()}"
    return given
