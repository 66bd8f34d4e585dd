"""How the join benchmarks in this process are run and reported, and the bare loop they are held against."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from benchmarks.join_inputs import Sides
from benchmarks.ladder import Rung, held_against
from benchmarks.ladder import table as ladder_table
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import write_json
from tidegate.operators.joins.find_pairs import BLOCK, BUFFER
from tidegate.operators.joins.loop_source import LoopShape, loop_source
from tidegate.operators.kernels import compiled
from tidegate.query.nodes import Join, walk
from tidegate.query.predicates.tree import Column

Array = np.ndarray[Any, Any]

BATCH_ROWS = 1_000
WARM_UP_ROWS = 4 * BATCH_ROWS


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


Engine = Callable[[Sides, Row], None]


def run_here(query: tg.Stream, row: Row, instances: int, segment_rows: int = 2 * BATCH_ROWS) -> None:
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


def run_bare_loop(query: tg.Stream, sides: Sides, row: Row) -> None:
    """The loop of a query's join alone: blocks of the window against batches of new tuples, positions noted, no more."""
    node = next(each for each in walk(query.node) if isinstance(each, Join))
    assert node.where is not None and node.where.tree is not None
    shapes = [LoopShape(node.where.tree, side, 0, False, False) for side in (0, 1)]
    loops = [compiled(loop_source(shape)) for shape in shapes]
    times = [np.array(side.column("ts").cast(pa.int64())) for side in (sides.left, sides.right)]
    columns = _arrays(sides, [shape.new_columns for shape in shapes])
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


def _arrays(sides: Sides, read: Sequence[Sequence[Column]]) -> list[list[Array]]:
    """The columns that a loop takes of each side; texts as numbers, the same for the same text."""
    texts: dict[str, int] = {}

    def array(values: pa.ChunkedArray) -> Array:
        if not pa.types.is_string(values.type):
            return np.array(values)
        coded = values.combine_chunks().dictionary_encode()
        codes = [texts.setdefault(text, len(texts)) for text in coded.dictionary.to_pylist()]
        return np.array(codes, np.int64)[np.array(coded.indices)]

    return [
        [array(side.column(column.name)) for column in columns]
        for side, columns in zip((sides.left, sides.right), read, strict=True)
    ]


def measure(sides: Sides, engines: Mapping[str, Engine], options: Options) -> list[dict[str, Any]]:
    """Warm up, then run the engines in turns: a row of figures for each."""
    made = {engine: Row(engine, sides.tuples, sides.near_pairs, options.seed) for engine in engines}
    few = sides.few(WARM_UP_ROWS)
    for engine, run in engines.items():
        run(few, Row(engine, few.tuples, 1, options.seed))
    for _ in range(options.runs):
        for engine, run in engines.items():
            run(sides, made[engine])
    return [row.as_json() for row in made.values()]


def report(
    name: str,
    sides: Sides,
    rows: list[dict[str, Any]],
    options: Options,
    ratios: Sequence[str],
    same: bool = True,
    figures: Mapping[str, Any] | None = None,
) -> int:
    """Print and write what engines did; 1 if they found different pairs.

    ``figures`` are those of the workload as a whole; a number among them may have a place on the ladder.
    """
    print(
        f"{name}: {sides.tuples:,} tuples, {sides.window:,} a side in the window, {sides.near_pairs:,} pairs near in time"
    )
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
    known = {what: value for what, value in (figures or {}).items() if isinstance(value, float)}
    rungs: list[Rung] = held_against(name, [], {**found, **known})
    print(ladder_table(rungs))
    path = options.out / f"{name}.json"
    content = {"workload": name, "input": {"tuples": sides.tuples, "window": sides.window, "seed": options.seed}}
    made = {"rows": rows, "ratios": found, "ladder": [rung.as_json() for rung in rungs], **(figures or {})}
    write_json(path, {**content, "machine": describe(), **made})
    print(f"written to {path}\n")
    if same and len({row["output_rows"] for row in rows}) > 1:
        print("FAILED: the engines found different pairs")
        return 1
    return 0
