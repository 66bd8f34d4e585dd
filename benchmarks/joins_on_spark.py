"""Joins on Spark beside Spark's own: all pairs near in time, and by key.

For all pairs native Spark compares so slowly that the input of tidegate would take it an hour: each engine has an input of
its own, and the figure is comparisons a second. Both rates grow with the input, as the fixed cost of a batch weighs less, so
native Spark's is a lower bound that ``--tuples`` raises; the ratio on the same small input, where that cost is nearly all,
is printed beside it. By key all have one input. A file of each side is one micro-batch; checkpoint and parquet sink are on
the local disk.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.engine_process import EngineProcess
from benchmarks.engines import SPARK_VARIANTS
from benchmarks.harness import installed_engines
from benchmarks.inputs import PRIMER
from benchmarks.join_inputs import Sides, keyed_sides, scalejoin_sides
from benchmarks.ladder import held_against
from benchmarks.ladder import table as ladder_table
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.memory import MEASURE, PeakMemory
from benchmarks.options import CACHE, Options
from benchmarks.report import write_json

BATCHES = 6
FIRST_BATCHES = 2
BEGIN_US = 1_700_000_000_000_000  # Spark drops what is at or before 1970
NATIVE_TUPLES = 12_000
SCALE_TUPLES = 150_000
KEYED_TUPLES = 600_000
KEYS = 100_000
HEAP_GB = 4
OURS = ("tidegate-spark", "tidegate-spark-df", "tidegate-spark-2")
SAME_INPUT = "the same input"


@dataclass(slots=True)
class Entry:
    """One engine on one input, and what its runs took; `remark` tells two entries of an engine apart."""

    engine: str
    sides: Sides
    remark: str = ""
    seconds: list[float] = field(default_factory=list)
    batch_ms: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    found: list[int] | None = None
    """The fingerprint of its pairs; its first number is how many there are."""

    @property
    def label(self) -> str:
        return f"{self.engine}, {self.remark}" if self.remark else self.engine

    @property
    def rate(self) -> float:
        """Comparisons a second, if all near pairs were compared."""
        return self.sides.near_pairs / statistics.median(self.seconds)

    def as_json(self) -> dict[str, Any]:
        tuples = sorted(self.sides.tuples / each for each in self.seconds)
        return {
            "engine": self.label,
            "tuples": self.sides.tuples,
            "window": self.sides.window,
            "near_pairs": self.sides.near_pairs,
            "comparisons_per_second": round(self.rate),
            "tuples_per_second": round(statistics.median(tuples)),
            "spread": [round(tuples[0]), round(tuples[-1])],
            "batch_p50_ms": round(statistics.median(self.batch_ms)),
            "start_s": round(statistics.median(self.start_s), 2),
            "peak_rss_mb": round(max(self.peak_mb)),
            "output_rows": self.found[0] if self.found else 0,
        }


def scalejoin(options: Options) -> int:
    """All pairs near in time, band recognition off, against native Spark with a constant key."""
    few = options.tuples or NATIVE_TUPLES
    many = max(few, SCALE_TUPLES)
    small, large = (scalejoin_sides(tuples, tuples // 3, options.seed) for tuples in (few, many))
    entries = [
        Entry("spark-hdfs", small, "constant key"),
        Entry("tidegate-spark", small, SAME_INPUT),
        *(Entry(engine, large) for engine in OURS),
    ]
    entries, same = _measure("scalejoin-spark", entries, options)
    rates = {entry.label: entry.rate for entry in entries}
    native = rates.get("spark-hdfs, constant key")
    ours = [name for name in (*OURS, f"tidegate-spark, {SAME_INPUT}") if name in rates]
    ratios = {f"{name}/spark": round(rates[name] / native, 2) for name in ours} if native else {}
    return _report("scalejoin-spark", entries, ratios, options, same)


def equijoin(options: Options) -> int:
    """By key, against native Spark's stream-stream join on both of its state stores."""
    tuples = options.tuples or KEYED_TUPLES
    sides = keyed_sides(tuples, tuples // 6, KEYS, 0.0, options.seed)
    entries, same = _measure("equijoin", [Entry(engine, sides) for engine in (*SPARK_VARIANTS, *OURS)], options)
    rates = {entry.engine: entry.rate for entry in entries}
    native = {name: rates[name] for name in SPARK_VARIANTS if name in rates}
    ratios = {
        f"{name}/{peer}": round(rates[name] / rate, 2)
        for name in OURS
        if name in rates and native
        for peer, rate in {**native, "spark": max(native.values())}.items()
    }
    return _report("equijoin", entries, ratios, options, same)


def _measure(workload: str, entries: Sequence[Entry], options: Options) -> tuple[list[Entry], bool]:
    """Run the chosen engines in turns, each in a process of its own, after a turn to warm up.

    Also tells whether each gave the same pairs every time, and all of them the same of an input.
    """
    wanted = {spec.name for spec in installed_engines(options.engines or tuple({entry.engine for entry in entries}))}
    entries = [entry for entry in entries if entry.engine in wanted]
    heap_gb = options.driver_memory_gb or HEAP_GB
    right: dict[int, list[int]] = {}
    same = True
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="joins-", dir=CACHE) as scratch, ExitStack() as processes:
        folder = Path(scratch)
        places = {id(entry.sides): folder / f"in-{id(entry.sides)}" for entry in entries}
        running: dict[str, EngineProcess] = {}
        for entry in entries:
            _write(entry.sides, places[id(entry.sides)])
            if entry.engine not in running:
                running[entry.engine] = EngineProcess(entry.engine, workload, folder / entry.engine, heap_gb)
                processes.callback(running[entry.engine].stop)
        for turn in range(options.runs + 1):
            for entry in entries:
                process, given = running[entry.engine], {"within_us": entry.sides.within_us}
                place = places[id(entry.sides)]
                if turn:
                    # While others had their turn, the system may have taken its pages.
                    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as target:
                        process.call("join", **given, folder=str(place / "first"), files=FIRST_BATCHES, scratch=target)
                with (
                    tempfile.TemporaryDirectory(prefix="run-", dir=folder) as target,
                    PeakMemory(process.pid) as memory,
                ):
                    found = process.call("join", **given, folder=str(place), files=BATCHES, scratch=target)
                pairs = found["digest"][0]
                say(f"{entry.label}: {found['seconds']:.2f} s, {pairs:,} pairs{'' if turn else ' (warming up)'}")
                same = same and right.setdefault(id(entry.sides), found["digest"]) == found["digest"]
                entry.found = found["digest"]
                if turn:
                    entry.seconds.append(found["seconds"])
                    entry.batch_ms += found["batch_ms"]
                    entry.start_s.append(found["start_s"])
                    entry.peak_mb.append(memory.peak_mb)
    return entries, same


def _write(sides: Sides, folder: Path) -> None:
    """Each side as a file without rows, which starts the query, and then one for each micro-batch.

    In a folder ``first`` are the first of them once more.
    """
    for name, table in (("left", sides.left), ("right", sides.right)):
        place, first = folder / name, folder / "first" / name
        if place.exists():
            return
        place.mkdir(parents=True)
        first.mkdir(parents=True)
        times = pc.add(table.column("ts").cast(pa.int64()), BEGIN_US)
        table = table.set_column(0, "ts", times.cast(pa.timestamp("us", tz="UTC")))
        rows = -(-table.num_rows // BATCHES)
        for number in range(BATCHES + 1):
            part = table.slice((number - 1) * rows, rows) if number else table.schema.empty_table()
            file = place / (f"{number:04}.parquet" if number else PRIMER)
            pq.write_table(part, file)
            # Spark reads files in the order of their modification times.
            os.utime(file, (1_700_000_000 + 2 * number,) * 2)
            if number <= FIRST_BATCHES:
                os.link(file, first / file.name)


def _report(name: str, entries: Sequence[Entry], ratios: dict[str, float], options: Options, same: bool) -> int:
    rows = [entry.as_json() for entry in entries]
    print(
        f"{'engine':<32}{'tuples':>10}{'G comparisons/s':>17}{'tuples/s':>11}{'min - max':>22}{'batch p50 ms':>14}"
        f"{'start s':>9}{'peak MB':>9}"
    )
    for row in rows:
        spread = f"{row['spread'][0]:,} - {row['spread'][1]:,}"
        print(
            f"{row['engine']:<32}{row['tuples']:>10,}{row['comparisons_per_second'] / 1e9:>17.4f}"
            f"{row['tuples_per_second']:>11,}{spread:>22}{row['batch_p50_ms']:>14}"
            f"{row['start_s']:>9.2f}{row['peak_rss_mb']:>9,}"
        )
    for ratio, value in ratios.items():
        print(f"{ratio} = {value}")
    rungs = held_against(name, [], ratios)
    print(ladder_table(rungs))
    path = options.out / f"{name}.json"
    figures = {"rows": rows, "ratios": ratios, "ladder": [rung.as_json() for rung in rungs]}
    described = {"workload": name, "seed": options.seed, "machine": describe(), "memory": MEASURE}
    write_json(path, {**described, **figures})
    print(f"written to {path}")
    if not same:
        print("FAILED: the engines found different pairs")
    return int(not same)
