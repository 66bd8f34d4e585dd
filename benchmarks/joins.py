"""Joins in this process: comparisons a second against the bare loop, sorting for bands, and skewed keys.

``scalejoin`` is the benchmark of STRETCH §8.3 with the recognition of bands off: every pair that is near in time is
compared, the window full and sliding. The peer, `bare-loop`, is the same compiled loop over the same blocks on one thread,
with nothing around it. ``bandjoin`` is the same with recognition on. ``skew`` joins under Zipf's keys.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from benchmarks.join_inputs import KEYED, LEFT, RIGHT, Sides, batches, keyed_sides, scalejoin_sides
from benchmarks.ladder import held_against
from benchmarks.ladder import table as ladder_table
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import write_json
from tidegate.operators.joins.loop_source import LoopShape, loop_source
from tidegate.operators.joins.try_pairs import BLOCK, BUFFER
from tidegate.operators.kernels.pairs import compiled
from tidegate.query.nodes import Join

BATCH_ROWS = 1_000
BAND_ROWS = 10_000
WINDOW = 100_000
SKEW_WINDOW = 20_000
SKEW_KEYS = 10_000
EXPONENTS = (0.0, 1.0, 2.0)


@dataclass(slots=True)
class Row:
    """One engine: its runs, in seconds, and what they did."""

    engine: str
    tuples: int
    comparisons: int
    seed: int
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    output_rows: int = -1
    state_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        rates = sorted(self.comparisons / each for each in self.seconds)
        return {
            "engine": self.engine,
            "tuples_per_second": round(self.tuples / statistics.median(self.seconds)),
            "comparisons_per_second": round(statistics.median(rates)),
            "spread": [round(rates[0]), round(rates[-1])],
            "comparisons_per_cpu_second": round(self.comparisons / statistics.median(self.cpu_seconds)),
            "output_rows": self.output_rows,
            "state_bytes": self.state_bytes,
        }


def near(l: Any, r: Any) -> Any:
    """The predicate of ScaleJoin's benchmark."""
    return (abs(l.x - r.a) <= 10) & (abs(l.y - r.b) <= 10)


def scalejoin(options: Options) -> int:
    """All pairs, with one and two instances, against the bare loop."""
    tuples = options.tuples or 2 * WINDOW
    sides = scalejoin_sides(tuples, min(WINDOW, tuples // 2), options.seed)
    engines = {
        "bare-loop": _bare_loop,
        "tidegate-local-1": partial(_near, bands=False, instances=1),
        "tidegate-local": partial(_near, bands=False, instances=2),
    }
    return _report("scalejoin", sides, engines, options, ["tidegate-local/bare-loop", "tidegate-local-1/bare-loop"])


def bandjoin(options: Options) -> int:
    """The same with and without sorting, a window of 100,000 tuples a side."""
    tuples = options.tuples or 2 * WINDOW
    sides = scalejoin_sides(tuples, min(WINDOW, tuples // 2), options.seed)
    engines = {
        "tidegate-local (all pairs)": partial(_near, bands=False, instances=2, rows=BAND_ROWS),
        "tidegate-local-1": partial(_near, bands=True, instances=1, rows=BAND_ROWS),
        "tidegate-local": partial(_near, bands=True, instances=2, rows=BAND_ROWS),
    }
    return _report("bandjoin", sides, engines, options, ["tidegate-local/tidegate-local (all pairs)"])


def skew(options: Options) -> int:
    """Keys by Zipf's distribution: by key with a selective predicate, and all pairs."""
    tuples = options.tuples or 3 * SKEW_WINDOW
    worst = 0
    sides = keyed_sides(tuples, tuples // 3, SKEW_KEYS, 0.0, options.seed)
    for kind in ("on", "theta"):
        engines = {
            f"tidegate-local {kind} {exponent:g}": partial(_keyed, exponent=exponent, kind=kind)
            for exponent in EXPONENTS
        }
        names = list(engines)
        worst |= _report(f"skew-{kind}", sides, engines, options, [f"{names[-1]}/{names[0]}"], same=False)
    return worst


def _near_query(sides: Sides, bands: bool, rows: int = BATCH_ROWS) -> tg.Stream:
    left = tg.stream(list(batches(sides.left, rows)), time="ts", schema=LEFT, name="left")
    right = tg.stream(list(batches(sides.right, rows)), time="ts", schema=RIGHT, name="right")
    return left.join(right, within=sides.within_us, where=near, bands=bands)


def _keyed_query(sides: Sides, kind: str) -> tg.Stream:
    left = tg.stream(list(batches(sides.left, BATCH_ROWS)), time="ts", schema=KEYED, name="left")
    right = tg.stream(list(batches(sides.right, BATCH_ROWS)), time="ts", schema=KEYED, name="right")
    if kind == "on":
        return left.join(right, on="key", within=sides.within_us, where=lambda l, r: l.value + r.value > 1.995)
    return left.join(
        right, within=sides.within_us, where=lambda l, r: (l.key == r.key) & (l.value + r.value > 1.995), bands=False
    )


def _near(sides: Sides, row: Row, bands: bool, instances: int, rows: int = BATCH_ROWS) -> None:
    _local(_near_query(sides, bands, rows), row, instances, 2 * rows)


def _keyed(sides: Sides, row: Row, exponent: float, kind: str) -> None:
    made = keyed_sides(sides.left.num_rows, sides.window, SKEW_KEYS, exponent, row.seed)
    _local(_keyed_query(made, kind), row, 2)


def _local(query: tg.Stream, row: Row, instances: int, segment_rows: int = 2 * BATCH_ROWS) -> None:
    """One run in this process."""
    rows = 0

    def note(table: pa.Table) -> None:
        nonlocal rows
        rows += table.num_rows

    began, began_cpu = time.perf_counter(), time.process_time()
    job = tg.start(query, to=note, instances=instances, segment_rows=segment_rows)
    held = 0
    while not job.wait(0.05):
        held = max(held, job.state_bytes)
    row.seconds.append(time.perf_counter() - began)
    row.cpu_seconds.append(time.process_time() - began_cpu)
    row.output_rows, row.state_bytes = rows, held


def _bare_loop(sides: Sides, row: Row) -> None:
    """The loop alone: blocks of the window against batches of new tuples, positions noted and nothing else."""
    node = _near_query(sides, bands=False).node
    assert isinstance(node, Join) and node.where is not None and node.where.tree is not None
    loops = [compiled(loop_source(LoopShape(node.where.tree, side, 0, False, False))) for side in (0, 1)]
    times = [np.array(side.column("ts").cast(pa.int64())) for side in (sides.left, sides.right)]
    columns = [
        [np.array(sides.left.column(name)) for name in ("x", "y")],
        [np.array(sides.right.column(name)) for name in ("a", "b")],
    ]
    out = np.empty(BUFFER, np.int64), np.empty(BUFFER, np.int64)
    found = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    for first in range(0, len(times[0]), BATCH_ROWS):
        stop = min(first + BATCH_ROWS, len(times[0]))
        for side, end in ((0, stop), (1, first)):
            new, stored = slice(first, stop), times[1 - side][:end]
            lows = np.searchsorted(stored, times[side][new] - sides.within_us, "left")
            highs = np.searchsorted(stored, times[side][new] + sides.within_us, "right")
            starts = np.arange(int(lows.min()) // BLOCK * BLOCK, max(end, 1), BLOCK)
            at = np.zeros(3, np.int64)
            while at[0] < len(starts):
                mine = [column[new] for column in columns[side]]
                found += loops[side](lows, highs, starts, starts + BLOCK, at, *out, *mine, *columns[1 - side])
    row.seconds.append(time.perf_counter() - began)
    row.cpu_seconds.append(time.process_time() - began_cpu)
    row.output_rows = found


def _report(
    name: str,
    sides: Sides,
    engines: dict[str, Callable[[Sides, Row], None]],
    options: Options,
    ratios: list[str],
    same: bool = True,
) -> int:
    """Warm up, run the engines in turns, print and write what they did; 1 if they found different pairs."""
    comparisons = sides.near_pairs
    made = {engine: Row(engine, sides.tuples, comparisons, options.seed) for engine in engines}
    few = sides.few(4 * BATCH_ROWS)
    for engine, run in engines.items():
        run(few, Row(engine, few.tuples, 1, options.seed))
    for _ in range(options.runs):
        for engine, run in engines.items():
            run(sides, made[engine])
    rows = [row.as_json() for row in made.values()]
    print(f"{name}: {sides.tuples:,} tuples, {sides.window:,} a side in the window, {comparisons:,} pairs near in time")
    for row in rows:
        spread = " – ".join(f"{each / 1e9:.2f}" for each in row["spread"])
        print(
            f"{row['engine']:>28}  {row['comparisons_per_second'] / 1e9:8.2f} G comparisons/s  ({spread})  "
            f"{row['comparisons_per_cpu_second'] / 1e9:6.2f} G per CPU second  "
            f"{row['tuples_per_second']:>10,} tuples/s  {row['output_rows']:>9,} pairs  {row['state_bytes'] / 1e6:6.1f} MB"
        )
    rates = {row["engine"]: row["comparisons_per_second"] for row in rows}
    found = {each: round(rates[each.split("/")[0]] / rates[each.split("/")[1]], 3) for each in ratios}
    for ratio, value in found.items():
        print(f"{ratio} = {value:.2f}")
    rungs = held_against(name, [], found)
    print(ladder_table(rungs))
    path = options.out / f"{name}.json"
    content = {"workload": name, "input": {"tuples": sides.tuples, "window": sides.window, "seed": options.seed}}
    write_json(
        path,
        {**content, "machine": describe(), "rows": rows, "ratios": found, "ladder": [rung.as_json() for rung in rungs]},
    )
    print(f"written to {path}\n")
    if same and len({row["output_rows"] for row in rows}) > 1:
        print("FAILED: the engines found different pairs")
        return 1
    return 0
