"""How late are results on Spark under a load that does not wait?

A process of its own writes a small file every 100 ms, whether or not it is read. The query counts tuples by key in windows
of a second, and takes what is there as soon as its last batch is done. The latency of a result is when it was visible in the
sink, by the commit of the batch that wrote it, minus when the tuple was due whose watermark released it: the first that is
the watermark's delay past the end of the window. Native Spark and tidegate have the same delay, and every window of the span
is checked.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from benchmarks.compare import Mismatch
from benchmarks.engine_process import EngineFailed, EngineProcess
from benchmarks.engines import ENGINES, SPARK_VARIANTS
from benchmarks.harness import installed_engines
from benchmarks.inputs import PRIMER
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.memory import MEASURE, PeakMemory
from benchmarks.options import CACHE, PROJECT, Options
from benchmarks.paced_files import COLUMNS, Schedule, as_argument
from benchmarks.report import write_json
from benchmarks.sink_commits import Commit, commits

NAME = "latency-spark"
USUAL = (*SPARK_VARIANTS, "tidegate-spark", "tidegate-spark-df")
TUPLES_PER_SECOND = 20_000
FILE_MS = 100
KEYS = 1_000
SPAN_SECONDS = 45.0
WARM_UP_SECONDS = 10
"""Of every run, before the span."""
FIRST_SPAN_SECONDS = 5.0
"""Of a run that goes before, not counted: a query in a new Java process takes long to start and to get up to speed."""
TAIL_SECONDS = 2
"""After the span tuples go on, so that its last windows are released as the others are."""
LEAD_SECONDS = 2.0
PATIENCE_SECONDS = 60.0
HEAP_GB = 4
WINDOW_US = 1_000_000
DELAY_US = 1_000

Array = np.ndarray[Any, Any]


def latencies_ms(ends_us: Array, visible_us: Array, due_us: Array, newest_us: Array, delay_us: int) -> Array:
    """The latencies of results: of windows that end at `ends_us` and were visible at `visible_us`.

    Tuples come in order, in lots that are due at `due_us` and hold event times until `newest_us`. A window is released by
    the first tuple that is the delay past its end; one that no tuple released has no latency and gives nan.
    """
    released = np.searchsorted(newest_us, ends_us + delay_us)
    known = released < len(due_us)
    due = due_us[np.where(known, released, 0)]
    return np.where(known, (visible_us - due) / 1e3, np.nan)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of an engine: its latencies, each as often as results had it, and what else was seen of it."""

    latencies: Array
    batches: int
    start_s: float
    peak_mb: float
    writer_late_ms: float


@dataclass(slots=True)
class Entry:
    """An engine and its runs."""

    engine: str
    runs: list[Measured] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        quantiles = {"p50_ms": 50.0, "p99_ms": 99.0, "max_ms": 100.0}
        figures = {
            name: [float(np.percentile(run.latencies, share)) for run in self.runs] for name, share in quantiles.items()
        }
        return {
            "engine": self.engine,
            **{name: round(median(each), 1) for name, each in figures.items()},
            **{
                f"{name.removesuffix('_ms')}_spread": [round(min(each), 1), round(max(each), 1)]
                for name, each in figures.items()
            },
            "batches": round(median(run.batches for run in self.runs)),
            "start_s": round(median(run.start_s for run in self.runs), 2),
            "peak_rss_mb": round(max(run.peak_mb for run in self.runs)),
            "output_rows": sum(len(run.latencies) for run in self.runs),
            "writer_late_max_ms": max(run.writer_late_ms for run in self.runs),
        }


@dataclass(frozen=True, slots=True)
class Load:
    """A schedule, and the part of it that is measured: windows that end in a span of event time."""

    schedule: Schedule
    span_seconds: int

    @classmethod
    def soon(cls, options: Options, span_seconds: float) -> Load:
        """A load that begins with a whole second, in a while."""
        span = math.ceil(span_seconds)
        begin_us = math.ceil(time.time() + LEAD_SECONDS) * 1_000_000
        rate = options.rate or TUPLES_PER_SECOND
        seconds = WARM_UP_SECONDS + span + TAIL_SECONDS
        return cls(Schedule(begin_us, rate, FILE_MS, seconds, KEYS, options.seed), span)

    @property
    def window_starts_us(self) -> range:
        """The windows of the span."""
        first = self.schedule.begin_us + WARM_UP_SECONDS * 1_000_000 - WINDOW_US
        return range(first, first + self.span_seconds * 1_000_000, WINDOW_US)


def run(options: Options) -> int:
    """Run the chosen engines in turns, one at a time, and print what latencies they have; 1 if one of them failed."""
    specs = installed_engines(options.engines or USUAL)
    if not all(spec.on_spark for spec in specs):
        valid = ", ".join(spec.name for spec in ENGINES.values() if spec.on_spark)
        raise ValueError(f"{NAME} runs engines on Spark: {valid}; leave the others out of --engines")
    Load.soon(options, FIRST_SPAN_SECONDS)  # refuses a rate that files do not divide
    entries = [Entry(spec.name) for spec in specs]
    failures: list[str] = []
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="latency-", dir=CACHE) as scratch, ExitStack() as stack:
        processes: dict[str, EngineProcess] = {}
        for turn in range(options.runs + 1):
            for entry in list(entries):
                place = Path(scratch) / entry.engine
                try:
                    if turn == 0:
                        heap_gb = options.driver_memory_gb or HEAP_GB
                        processes[entry.engine] = EngineProcess(entry.engine, NAME, place, heap_gb)
                        stack.callback(processes[entry.engine].stop)
                    span_seconds = (options.span_seconds or SPAN_SECONDS) if turn else FIRST_SPAN_SECONDS
                    found = measure(processes[entry.engine], place / f"turn-{turn}", options, span_seconds)
                except (EngineFailed, Mismatch) as failure:
                    failures.append(str(failure))
                    say(f"  {entry.engine}: out of the running in run {turn}")
                    entries.remove(entry)
                    continue
                p50, p99 = np.percentile(found.latencies, (50, 99))
                which = f"run {turn}" if turn else "warming up"
                say(f"  {entry.engine}: {which}, p50 {p50:,.0f} ms, p99 {p99:,.0f} ms, {found.batches} batches")
                if turn:
                    entry.runs.append(found)
    _report(entries, failures, options)
    return 1 if failures else 0


def measure(process: EngineProcess, place: Path, options: Options, span_seconds: float) -> Measured:
    """Run a query under the load once.

    One without a load goes before: while others had their turn, the system may have taken the pages of this process.
    """
    for part in ("before", "in"):
        (place / part).mkdir(parents=True)
        pq.write_table(COLUMNS.empty_table(), place / part / PRIMER)
    process.call("start", folder=str(place / "before"), scratch=str(place / "unmeasured"))
    process.call("stop")
    folder = place / "in"
    with PeakMemory(process.pid) as memory:
        start_s = process.call("start", folder=str(folder), scratch=str(place))
        load = Load.soon(options, span_seconds)
        command = [sys.executable, "-m", "benchmarks.paced_files", str(folder), as_argument(load.schedule)]
        written = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, check=True, text=True)
        _wait_for(place / "sink", load)
        process.call("stop")
    results = read_results(place / "sink")
    measured = results.filter(pl.col("window_us").is_in(list(load.window_starts_us)))
    check(process.engine, measured, load)
    schedule = load.schedule
    latencies = latencies_ms(
        measured["window_us"].to_numpy() + WINDOW_US,
        measured["visible_us"].to_numpy(),
        schedule.due_us,
        schedule.newest_us,
        DELAY_US,
    )
    begin, end = load.window_starts_us[0], load.window_starts_us[-1] + WINDOW_US
    batches = sum(1 for commit in commits(place / "sink") if begin < commit.at_us <= end)
    writer_late_ms = json.loads(written.stdout)["late_max_ms"]
    return Measured(latencies, batches, start_s, memory.peak_mb, writer_late_ms)


def read_results(sink: Path) -> pl.DataFrame:
    """All results: the window's start, the key, the count, and when the row was visible."""
    return pl.concat([_rows_of(commit) for commit in commits(sink)])


def _rows_of(commit: Commit) -> pl.DataFrame:
    columns = {"window_us": pl.Int64, "key": pl.Int64, "n": pl.Int64, "visible_us": pl.Int64}
    parts = [
        pl.read_parquet(file, columns=["window_start", "key", "n"]).select(
            pl.col("window_start").cast(pl.Datetime("us", "UTC")).dt.epoch("us").alias("window_us"),
            pl.col("key", "n").cast(pl.Int64),
            pl.lit(commit.at_us, pl.Int64).alias("visible_us"),
        )
        for file in commit.files
    ]
    return pl.concat([pl.DataFrame(schema=columns), *parts])


def check(engine: str, results: pl.DataFrame, load: Load) -> None:
    """Raise Mismatch unless every window of the span has each of its keys once, with all of its tuples."""
    windows = results.sort("window_us", "key").partition_by("window_us", as_dict=True)
    for start_us in load.window_starts_us:
        counts = load.schedule.counts(start_us, start_us + WINDOW_US)
        keys = np.flatnonzero(counts)
        found = windows.get((start_us,))
        if found is None:
            raise Mismatch(f"{engine}: there are no results of the window that starts at {start_us} µs")
        if found["key"].to_list() != keys.tolist() or found["n"].to_list() != counts[keys].tolist():
            raise Mismatch(
                f"{engine}: the window that starts at {start_us} µs has {found.height:,} keys and {found['n'].sum():,} "
                f"tuples where {len(keys):,} and {counts.sum():,} are right"
            )


def ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How many times sooner results are there than those of native Spark, at the better of its state stores."""
    found: dict[str, float] = {}
    for name in ("p50_ms", "p99_ms"):
        native = min((row[name] for row in rows if row["engine"] in SPARK_VARIANTS), default=None)
        for row in rows:
            if native is not None and row["engine"] not in SPARK_VARIANTS:
                found[f"{row['engine']}/spark {name.removesuffix('_ms')}"] = round(native / row[name], 2)
    return found


def _wait_for(sink: Path, load: Load) -> None:
    """Wait until the last window of the span is visible, or until that takes too long: a query may have fallen behind."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    seen = 0
    while time.monotonic() < deadline:
        new = list(commits(sink))[seen:]
        seen += len(new)
        if any(window_us >= load.window_starts_us[-1] for commit in new for window_us in _rows_of(commit)["window_us"]):
            return
        time.sleep(0.5)


def _report(entries: list[Entry], failures: list[str], options: Options) -> None:
    rows = [entry.as_json() for entry in entries]
    compared = ratios(rows)
    titles = ("engine", "p50 ms", "min – max", "p99 ms", "min – max", "max ms", "batches", "start s", "peak MB")
    cells = [
        (
            row["engine"],
            f"{row['p50_ms']:,.0f}",
            " – ".join(f"{each:,.0f}" for each in row["p50_spread"]),
            f"{row['p99_ms']:,.0f}",
            " – ".join(f"{each:,.0f}" for each in row["p99_spread"]),
            f"{row['max_ms']:,.0f}",
            str(row["batches"]),
            f"{row['start_s']:.2f}",
            f"{row['peak_rss_mb']:,}",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (titles, *cells)) for column in range(len(titles))]
    for line in (titles, *cells):
        padded = (text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))
        print("  ".join((line[0].ljust(widths[0]), *padded)))
    for name, ratio in compared.items():
        print(f"{name} = {ratio:.2f}")
    content = {
        "workload": NAME,
        "input": {
            "tuples_per_second": options.rate or TUPLES_PER_SECOND,
            "file_ms": FILE_MS,
            "keys": KEYS,
            "span_s": options.span_seconds or SPAN_SECONDS,
            "watermark_delay_ms": DELAY_US / 1e3,
            "seed": options.seed,
        },
        "machine": describe(),
        "memory": MEASURE,
        "rows": rows,
        "ratios": compared,
        "failures": failures,
    }
    path = options.out / f"{NAME}.json"
    write_json(path, content)
    print(f"\nwritten to {path}")
    for failure in failures:
        print(f"\nFAILED {failure}")
