"""Operators made of Aggregates beside dedicated ones, in process ("On the Semantic Overlap of Operators", §6.1).

A synthetic map by selectivity and cost, as in the paper's figure 9, joins over windows by size and selectivity, and, where
`benchmarks/overlap` is there, the maps of table 1. Every query runs dedicated, `multi` and `single`, in turn, on one
instance, with the same functions; the rows must be the same. Throughput is tuples for a second of this process's CPU time,
so that what else the machine does counts little; latency is that at a rate which all three sustain.
"""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

import tidegate as tg
from benchmarks.loads import Pool
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.options import Options
from benchmarks.report import write_json
from benchmarks.sustain import probe
from tidegate.compile.lower_to_aggregates import OPERATORS
from tidegate.testing import difference

TIME = pa.timestamp("us", tz="UTC")
TUPLES, JOIN_TUPLES = 20_000, 100_000
PER_SECOND, JOINED_PER_SECOND = 1_000, 4_000
START_US = 1_704_067_200_000_000
SELECTIVITIES = (0.1, 1, 3)
COSTS = {"low": 0, "middle": 60, "high": 600}
"""Rounds of a checksum for each tuple: some 1.5, 6 and 40 µs, the paper's 0.6 to 46."""
KEYS = 7
LENGTHS = {"low": 8_000, "average": 1_000, "high": 300}
SHARE_OF_SLOWEST = 0.3
SPAN_SECONDS = 3.0
PAPER = {
    "map, low cost": "multi 30–38 %, single 3–28 %",
    "map, high cost": "multi 98–100 %, single 90–96 % at low selectivity",
    "queries M": "multi about 84 % (AHM) to 100 %, single 66 % (LLM) to 10 % (HLM)",
    "joins": "multi about 100 %",
}


@dataclass(frozen=True, slots=True)
class IntraCase:
    """A query over one stream of tuples; ``kind`` says which figures of the paper it stands beside."""

    name: str
    kind: str
    table: pa.Table
    build: Callable[[tg.Stream], tg.Stream]

    def query(self) -> tg.Stream:
        return self.build(tg.stream(self.table, time="ts", name="tuples"))


@dataclass(frozen=True, slots=True)
class Synthetic:
    """A map with a cost and a selectivity: a checksum, repeated, of each tuple; so many rows for a tuple on average."""

    selectivity: float
    rounds: int

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        values, of = [], []
        for number, value in enumerate(batch.column("n").to_pylist()):
            text = value.to_bytes(8, "little")
            check = crc32(text)
            for _ in range(self.rounds):
                check = crc32(text, check)
            rows = int(self.selectivity) if self.selectivity >= 1 else value % round(1 / self.selectivity) == 0
            values += [check + extra for extra in range(rows)]
            of += [number] * rows
        times = batch.column("ts").take(pa.array(of, pa.int64()))
        return pa.table([times, pa.array(values, pa.int64())], names=["ts", "check"])


def synthetic_maps(count: int, seed: int) -> Iterator[IntraCase]:
    """The map of figure 9."""
    numbers = np.random.default_rng(seed).integers(0, 2**40, count)
    table = pa.table({"ts": _times(count), "n": pa.array(numbers)})
    schema = {"ts": TIME, "check": pa.int64()}
    for cost, rounds in COSTS.items():
        for selectivity in SELECTIVITIES:
            function = Synthetic(selectivity, rounds)
            yield IntraCase(
                f"map, {cost} cost, selectivity {selectivity:g}",
                "map, high cost" if cost == "high" else "map, low cost",
                table,
                lambda stream, function=function: stream.map_batches(function, schema=schema),
            )


def joins(count: int, seed: int) -> Iterator[IntraCase]:
    """Pairs of equal length with one key, over windows of 3 and 10 seconds every second, as LLJ to HHJ of table 1."""
    random = np.random.default_rng(seed)
    keys, weights = random.integers(0, KEYS, count), random.random(count)
    for size in (3, 10):
        for selectivity, lengths in LENGTHS.items():
            columns = {"length": pa.array(random.integers(0, lengths, count)), "weight": pa.array(weights)}
            table = pa.table({"ts": _times(count, JOINED_PER_SECOND), "key": pa.array(keys), **columns})
            yield IntraCase(
                f"join, {size} s every 1 s, {selectivity} selectivity",
                "joins",
                table,
                lambda stream, size=size: stream.join(
                    stream,
                    on="key",
                    window=f"{size} seconds",
                    every="1 second",
                    where=lambda l, r: (l.length == r.length) & (l.weight < r.weight),
                ),
            )


def table_1(count: int, seed: int) -> Iterator[IntraCase]:
    """The queries over texts of table 1, where they are there."""
    if importlib.util.find_spec("benchmarks.overlap") is None:
        say("benchmarks/overlap is not there: the queries of table 1 are left out")
        return
    from benchmarks.overlap.on_tidegate import query_over
    from benchmarks.overlap.queries import QUERIES, MapQuery
    from benchmarks.overlap.texts import generate_texts

    table = generate_texts(count, seed, PER_SECOND)
    for name, query in QUERIES.items():
        if isinstance(query, MapQuery) and query.data == "texts":
            yield IntraCase(name, "queries M", table, lambda stream, query=query: query_over(stream, query))


def run(options: Options) -> int:
    """Run every case; 1 if operators made of Aggregates gave other rows."""
    count = options.tuples or TUPLES
    cases = [
        *synthetic_maps(count, options.seed),
        *table_1(count, options.seed),
        *joins(options.tuples or JOIN_TUPLES, options.seed),
    ]
    rows, wrong = [], []
    print(f"{'case':<46}{'operators':<11}{'tuples/CPU s':>14}{'share':>8}{'p50 ms':>9}{'p99 ms':>9}")
    for case in cases:
        found = _measure(case, options.runs)
        told = [difference(found[each][1], found["dedicated"][1]) for each in OPERATORS]
        wrong += [f"{case.name}, {each}: {what}" for each, what in zip(OPERATORS, told, strict=True) if what]
        rates = {each: case.table.num_rows / median(seconds) for each, (seconds, _) in found.items()}
        offered = SHARE_OF_SLOWEST * min(rates.values())
        for each in OPERATORS:
            probed = _latency(case, each, offered, options)
            share = rates[each] / rates["dedicated"]
            rows.append(
                {
                    "case": case.name,
                    "kind": case.kind,
                    "operators": each,
                    "tuples_per_cpu_second": round(rates[each]),
                    "share_of_dedicated": round(share, 3),
                    "output_rows": found[each][1].num_rows,
                    "offered_per_second": round(offered),
                    "p50_ms": probed[0],
                    "p99_ms": probed[1],
                }
            )
            shown = "".join(f"{'' if ms is None else f'{ms:.1f}':>9}" for ms in probed)
            print(f"{case.name:<46}{each:<11}{rates[each]:>14,.0f}{share:>8.0%}{shown}", flush=True)
    _beside_the_paper(rows)
    path = options.out / "overlap-intra.json"
    described = {"workload": "overlap-intra", "input": {"tuples": count, "seed": options.seed}, "machine": describe()}
    write_json(path, {**described, "rows": rows, "ratios": _least(rows), "paper": PAPER, "failures": wrong})
    print(f"written to {path}")
    for each in wrong:
        print(f"\nFAILED {each}")
    return int(bool(wrong))


def _measure(case: IntraCase, runs: int) -> dict[str, tuple[list[float], pa.Table]]:
    """CPU seconds of each run, operators in turn after one that warms up, and the rows."""
    taken: dict[str, tuple[list[float], pa.Table]] = {}
    for turn in range(runs + 1):
        for operators in OPERATORS:
            tables: list[pa.Table] = []
            gc.collect()  # what earlier runs left is not this one's to clean up
            began = time.process_time()
            tg.run(case.query(), on="local", to=tables.append, instances=1, operators=operators, progress=False)
            seconds = time.process_time() - began
            if turn == 0:
                taken[operators] = ([], pa.concat_tables([case.query().schema.empty_table(), *tables]))
            else:
                taken[operators][0].append(seconds)
    return taken


def _latency(case: IntraCase, operators: Any, rate: float, options: Options) -> tuple[float | None, float | None]:
    """The latency of results at a rate, p50 and p99."""
    pool = Pool((case.table.combine_chunks().to_batches()[0],), case.build)
    found = probe(
        pool, rate, round(1_000 / options.tick_ms), 1, options.span_seconds or SPAN_SECONDS, operators=operators
    )
    return found.p50_ms, found.p99_ms


def _least(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The least share of dedicated of each kind of case."""
    found: dict[str, float] = {}
    for row in rows:
        if row["operators"] != "dedicated":
            name = f"{row['kind']}: {row['operators']}/dedicated"
            found[name] = min(found.get(name, 9.9), row["share_of_dedicated"])
    return found


def _beside_the_paper(rows: list[dict[str, Any]]) -> None:
    print("\nshare of dedicated throughput, least to greatest, beside the paper's (Flink, a server of 8 threads)")
    for kind, paper in PAPER.items():
        for operators in OPERATORS[1:]:
            shares = [row["share_of_dedicated"] for row in rows if (row["kind"], row["operators"]) == (kind, operators)]
            if shares:
                print(f"  {kind:<16}{operators:<8}{min(shares):>5.0%} – {max(shares):<6.0%} paper: {paper}")


def _times(count: int, per_second: int = PER_SECOND) -> pa.Array:
    return pa.array(START_US + np.arange(count) * (1_000_000 // per_second)).cast(TIME)
