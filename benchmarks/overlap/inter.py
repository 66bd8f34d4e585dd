"""The twelve queries over texts between engines (§6.2 of the paper): micro and tidegate beside native Spark and Flink.

All engines read the same parquet files (Flink: CSV), windows tumble, and every result is compared. The figure of a map is
tuples a second, that of a join comparisons a second: pairs of tuples with the same key in the same window.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from benchmarks.compare import digest
from benchmarks.engine_process import EngineFailed, EngineProcess
from benchmarks.engines.overlap import columns_of
from benchmarks.harness import installed_engines
from benchmarks.inputs import write_batches
from benchmarks.ladder import held_against
from benchmarks.ladder import table as ladder_table
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.memory import PeakMemory
from benchmarks.options import CACHE, Options
from benchmarks.overlap.functions import texts_match, words_in
from benchmarks.overlap.queries import QUERIES, JoinQuery, MapQuery
from benchmarks.overlap.texts import generate_texts, read_texts
from benchmarks.report import write_json

SERVER_QUERIES = tuple(name for name in QUERIES if name.isupper())
TUPLES, BATCHES = 200_000, 4
PER_SECOND = 1_000
FEW_TUPLES, FEW_PER_SECOND = (
    12_000,
    500,
)  # for a form that takes minutes on all of them: two windows of 10 s, and an open one
HEAP_GB = 4
NATIVE = "spark"
PAPER = {"M": {"spark": 1.21, "flink": 1.43}, "J": {"spark": 20.0, "flink": 2.6}}
"""How much faster the paper's engine of one operator was, on average."""


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine in one form, and the joins that it runs only on the beginning of the input."""

    engine: str
    form: str = ""
    slow_joins: bool = False
    native: bool = False

    @property
    def label(self) -> str:
        return f"{self.engine} {self.form}".strip()


CONTENDERS = (
    Contender("spark-hdfs", "sql", native=True),
    Contender("spark-hdfs", "pandas", slow_joins=True, native=True),
    Contender("spark-rocksdb", "sql", native=True),
    Contender("flink", slow_joins=True),
    Contender("tidegate-spark"),
    Contender("tidegate-local"),
    Contender("tidegate-micro"),
)


@dataclass(slots=True)
class Figures:
    """One contender on one query: what its runs took, on how many tuples, and the fingerprint of its results."""

    contender: Contender
    tuples: int
    work: int
    seconds: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    found: tuple[int, int, int] | None = None

    @property
    def rate(self) -> float:
        return self.work / statistics.median(self.seconds)

    @property
    def cpu(self) -> float | None:
        """Processor time of a run, which a busy machine disturbs less; not known of Flink."""
        return statistics.median(self.cpu_seconds) if self.cpu_seconds else None

    def as_json(self, query: str) -> dict[str, Any]:
        rates = sorted(self.work / each for each in self.seconds)
        return {
            "query": query,
            "engine": self.contender.label,
            "tuples": self.tuples,
            "tuples_per_second": round(self.tuples / statistics.median(self.seconds)),
            "comparisons_per_second" if query[-1] == "J" else "rate": round(self.rate),
            "tuples_per_cpu_second": round(self.tuples / self.cpu) if self.cpu else None,
            "spread": [round(rates[0]), round(rates[-1])],
            "start_s": round(statistics.median(self.start_s), 2),
            "peak_rss_mb": round(self.peak_mb),
            "output_rows": self.found[0] if self.found else 0,
        }


@dataclass(frozen=True, slots=True)
class TextInput:
    """The files of an input, and how many comparisons a join with some windows makes on it."""

    files: tuple[Path, ...]
    table: pa.Table

    @property
    def times(self) -> list[int]:
        times: list[int] = self.table["ts"].cast(pa.int64()).to_pylist()
        return times

    def comparisons(self, size_us: int) -> int:
        windows = (time // size_us for time in self.times)
        words = map(words_in, self.table["change"].to_pylist())
        return sum(count * count for count in Counter(zip(windows, words, strict=True)).values())

    def answer(self, query: MapQuery | JoinQuery) -> pl.DataFrame:
        """The right results, by plain loops over the functions of the query."""
        rows: list[tuple[Any, ...]] = []
        if isinstance(query, MapQuery):
            columns = (self.table[name].to_pylist() for name in query.columns)
            for time, *values in zip(self.times, *columns, strict=True):
                rows += [(time, *row) for row in query.function(*values)]
        else:
            alike: dict[tuple[int, int, int], list[tuple[int, str]]] = defaultdict(list)
            origs, changes = self.table["orig"].to_pylist(), self.table["change"].to_pylist()
            for time, orig, change in zip(self.times, origs, changes, strict=True):
                alike[time // query.tumbling_us, words_in(change), len(orig)].append((time, orig))
            rows = [
                (time, other_time, orig, other)
                for texts in alike.values()
                for time, orig in texts
                for other_time, other in texts
                if texts_match(orig, other, int(query.bound))
            ]
        types = {name: pl.Int64 if name.startswith("ts") else pl.String for name in columns_of(query)}
        return pl.DataFrame(rows, schema=types, orient="row")

    def compared(self, query: MapQuery | JoinQuery, results: pl.DataFrame) -> pl.DataFrame:
        """The results that every engine must have: on Spark a run ends while the last window of a join is open."""
        if isinstance(query, MapQuery):
            return results
        size = query.tumbling_us
        return results.filter(pl.col("ts_left") < self.times[-1] // size * size)


def run(options: Options) -> int:
    """Every query on every engine that is installed; 1 if an engine failed or gave other results than the first."""
    queries = options.of or SERVER_QUERIES
    names = options.engines or tuple(dict.fromkeys(contender.engine for contender in CONTENDERS))
    installed = {spec.name for spec in installed_engines(names)}
    contenders = [each for each in CONTENDERS if each.engine in installed]
    figures: dict[str, list[Figures]] = {}
    failures: list[str] = []
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="overlap-", dir=CACHE) as scratch, ExitStack() as processes:
        folder = Path(scratch)
        whole = write_input(options, options.tuples or TUPLES, folder / "whole")
        few = write_input(options, min(options.tuples or TUPLES, FEW_TUPLES), folder / "few", FEW_PER_SECOND)
        running: dict[str, EngineProcess] = {}
        for engine in dict.fromkeys(each.engine for each in contenders):
            running[engine] = EngineProcess(
                engine, "overlap-inter", folder / engine, options.driver_memory_gb or HEAP_GB
            )
            processes.callback(running[engine].stop)
        for query in queries:
            figures[query] = _measure(query, contenders, running, whole, few, options.runs, folder, failures)
            _show(query, figures[query])
    return _report(figures, options, failures)


def write_input(options: Options, tuples: int, folder: Path, per_second: int = PER_SECOND) -> TextInput:
    """The input as one file for each micro-batch, and one without rows before them."""
    if options.data is not None:
        table = read_texts(options.data, tuples, per_second)
    else:
        table = generate_texts(tuples, options.seed, per_second)
    return TextInput(write_batches(table, folder, BATCHES), table)


def _measure(
    query: str,
    contenders: Sequence[Contender],
    running: dict[str, EngineProcess],
    whole: TextInput,
    few: TextInput,
    runs: int,
    folder: Path,
    failures: list[str],
) -> list[Figures]:
    """Warm up, then take turns; those that fail or differ are told and left out."""
    asked = QUERIES[query]
    right = {id(given): digest(given.compared(asked, given.answer(asked))) for given in (whole, few)}
    made = []
    for contender in contenders:
        if contender.engine not in running or (
            contender.engine == "spark-rocksdb" and not isinstance(asked, JoinQuery)
        ):
            continue  # a map has no state
        given = few if contender.slow_joins and isinstance(asked, JoinQuery) else whole
        work = given.comparisons(asked.tumbling_us) if isinstance(asked, JoinQuery) else given.table.num_rows
        made.append((Figures(contender, given.table.num_rows, work), given))
        if right[id(given)][0] == 0:
            failures.append(
                f"{query}: {given.table.num_rows} tuples give nothing to compare; give it more with --tuples"
            )
    for turn in range(runs + 1):
        for figure, given in list(made):
            process = running.get(figure.contender.engine)
            if process is None:
                made = [each for each in made if each[0] is not figure]
                continue
            try:
                _turn(query, figure, given, process, folder, measured=turn > 0)
            except EngineFailed as failure:  # its process has ended
                failures.append(f"{query}: {failure}")
                del running[figure.contender.engine]
                made = [each for each in made if each[0] is not figure]
                continue
            if right[id(given)] != figure.found:
                failures.append(f"{query}: {figure.contender.label} gave {figure.found}, not {right[id(given)]}")
                made = [each for each in made if each[0] is not figure]
    return [figure for figure, _ in made if figure.seconds]


def _turn(query: str, figure: Figures, given: TextInput, process: EngineProcess, folder: Path, measured: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as place, PeakMemory(process.pid) as memory:
        files = [str(file) for file in given.files]
        took = process.call("run", query=query, form=figure.contender.form, files=files, scratch=f"{place}/run")
        if measured:
            figure.seconds.append(took["seconds"])
            figure.cpu_seconds += [took["cpu_seconds"]] if "cpu_seconds" in took else []
        if not measured or len(figure.seconds) == 1:
            process.call("collect", target=f"{place}/results")
            results = pl.scan_parquet(f"{place}/results/*.parquet").collect()
            found = digest(given.compared(QUERIES[query], results))
            if figure.found not in (None, found):
                raise EngineFailed(f"{figure.contender.label} gave {found} after {figure.found}")
            figure.found = found
        figure.start_s.append(took["start_s"])
    figure.peak_mb = max(figure.peak_mb, memory.peak_mb)
    say(f"  {query} {figure.contender.label}: {took['seconds']:.2f} s{'' if measured else ' (warming up)'}")


def best_native(figures: Sequence[Figures]) -> Figures | None:
    """Native Spark in its best form."""
    return max((each for each in figures if each.contender.native), key=lambda each: each.rate, default=None)


def _show(query: str, figures: Sequence[Figures]) -> None:
    native = best_native(figures)
    unit = "comparisons/s" if query[-1] == "J" else "tuples/s"
    for each in figures:
        beside = f"  {each.rate / native.rate:8.2f} × native Spark" if native else ""
        if native and native.cpu and each.cpu:
            beside += f", {each.work / each.cpu / (native.work / native.cpu):8.2f} × per CPU second"
        rows = each.found[0] if each.found else 0
        print(f"{query}  {each.contender.label:<20}{each.rate:>16,.0f} {unit}{beside}  {rows:>10,} rows", flush=True)


def _report(figures: dict[str, list[Figures]], options: Options, failures: list[str]) -> int:
    ratios: dict[str, float] = {}
    for query, found in figures.items():
        native = best_native(found)
        for each in found:
            if native is not None and not each.contender.native:
                ratios[f"{query} {each.contender.label}/spark"] = round(each.rate / native.rate, 2)
                if native.cpu and each.cpu:
                    shares = each.work / each.cpu, native.work / native.cpu
                    ratios[f"{query} {each.contender.label}/spark per CPU second"] = round(shares[0] / shares[1], 2)
    for kind, paper in PAPER.items():
        ours = [
            ratios[name]
            for query in figures
            if (name := f"{query} tidegate-micro/spark") in ratios and query[-1] == kind
        ]
        if ours:
            mean = statistics.geometric_mean(ours)
            print(f"{kind}: micro/spark {mean:.2f}, least {min(ours):.2f}; the paper's {paper['spark']:.2f} on average")
            ratios[f"micro/spark, least of {kind}"] = min(ours)
    rungs = held_against("overlap-inter", [], ratios)
    print(ladder_table(rungs))
    rows = [each.as_json(query) for query, found in figures.items() for each in found]
    path = options.out / "overlap-inter.json"
    source = {"seed": options.seed} if options.data is None else {"data": options.data.name}
    described = {
        "workload": "overlap-inter",
        "input": {"tuples": options.tuples or TUPLES, **source},
        "machine": describe(),
    }
    write_json(
        path,
        {
            **described,
            "rows": rows,
            "ratios": ratios,
            "ladder": [rung.as_json() for rung in rungs],
            "failures": failures,
        },
    )
    print(f"written to {path}")
    for failure in failures:
        print(f"\nFAILED {failure}")
    return int(bool(failures))
