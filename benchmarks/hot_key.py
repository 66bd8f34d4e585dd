"""One key with 80 % of the tuples, in two cells on Spark: whole, and split by `hot_keys`, beside keys that are used alike.

    python -m benchmarks hot-key [--tuples 400000] [--runs 3] [--driver-memory-gb 2]

Three steps whose state of a key grows with its tuples: `distinct` over values that are all different, `collect`, and a join
by key. A file is a micro-batch, tidegate reads it, and each run begins with an empty one. The figure is tuples a second, for
the join comparisons a second: pairs of tuples with one key that are near in time, as one key has many more of them.
The results over the same tuples, whole and split, must agree.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import tidegate as tg
from benchmarks.compare import digest
from benchmarks.engines.spark_streaming import session, sink_of, timed
from benchmarks.engines.tidegate_spark import SETTINGS, TidegateOnSpark, rows_reported
from benchmarks.inputs import START_US, write_batches
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.options import CACHE, Options
from benchmarks.report import write_json

TUPLES, FILES, SPAN_SECONDS = 400_000, 4, 80
KEYS, HOT_SHARE = 1_000, 0.8
CELLS = 2
NEAR_SECONDS = 1.0
SAME_PAIRS_SECONDS = 40.0
"""Uniform keys are joined over a longer time, so that their pairs are enough to be measured."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step over streams with ``ts``, ``k`` and ``v``, and the columns of its results that are compared."""

    query: Callable[..., tg.Stream]
    columns: tuple[str, ...]
    streams: tuple[str, ...] = ("tuples",)


def _windows(stream: tg.Stream, value: tg.Aggregate, **_: float) -> tg.Stream:
    return stream.key_by("k").window("20 seconds", every="5 seconds").aggregate(value=value)


def _joined(left: tg.Stream, right: tg.Stream, near_seconds: float) -> tg.Stream:
    return left.join(
        right, on="k", within=f"{round(near_seconds * 1e6)} us", where=lambda l, r: abs(l.v - r.v) <= 3
    ).select("ts", "k", "v", "v_right")


STEPS: Mapping[str, Step] = MappingProxyType(
    {
        "distinct": Step(partial(_windows, value=tg.distinct("v")), ("window_start", "k", "value")),
        "collect": Step(partial(_windows, value=tg.collect("v")), ("window_start", "k", "value")),
        "join": Step(_joined, ("ts", "k", "v", "v_right"), ("left", "right")),
    }
)


def run(options: Options) -> int:
    """Runs each step over uniform keys, a hot key left whole, and a hot key that is split; 1 if results differ."""
    tuples = options.tuples or TUPLES
    spark = session({**SETTINGS, "spark.driver.memory": f"{options.driver_memory_gb or 2}g"})
    rows: dict[str, dict[str, Any]] = {}
    wrong = []
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="hot-key-", dir=CACHE) as scratch:
            for name, step in STEPS.items():
                bench = _Bench(spark, step, tuples, options, Path(scratch) / name)
                rows[name] = bench.measured()
                if rows[name]["hot, whole"]["digest"] != rows[name]["hot, split"]["digest"]:
                    wrong.append(name)
    finally:
        spark.stop()
    print(f"{'step':<10}{'keys':<12}{'per second':>14}{'of uniform':>12}")
    for name, measured in rows.items():
        for keys, each in measured.items():
            each["share_of_uniform"] = round(each["per_second"] / measured["uniform"]["per_second"], 3)
            print(f"{name:<10}{keys:<12}{each['per_second']:>14,.0f}{each['share_of_uniform']:>12.1%}")
    path = options.out / "hot-key.json"
    write_json(path, {"workload": "hot-key", "input": {"tuples": tuples}, "machine": describe(), "rows": rows})
    print(f"written to {path}")
    for name in wrong:
        print(f"\nWRONG {name}: whole and split give other results")
    return 1 if wrong else 0


class _Bench:
    """One step, its inputs, and what its runs took."""

    def __init__(self, spark: Any, step: Step, tuples: int, options: Options, folder: Path) -> None:
        self._spark, self._step, self._options, self._folder = spark, step, options, folder
        self._runs = 0
        self._inputs = {
            share: {name: drawn(tuples, share, options.seed + at) for at, name in enumerate(step.streams)}
            for share in (0.0, HOT_SHARE)
        }
        for share, streams in self._inputs.items():
            for name, table in streams.items():
                write_batches(table, self._folder_of(share) / name, FILES)

    def measured(self) -> dict[str, dict[str, Any]]:
        """Each form once to warm up, then all in turn."""
        forms = {"uniform": (0.0, False), "hot, whole": (HOT_SHARE, False), "hot, split": (HOT_SHARE, True)}
        taken: dict[str, list[float]] = {name: [] for name in forms}
        found = {}
        for turn in range(self._options.runs + 1):
            for name, (share, split) in forms.items():
                seconds, found[name] = self._run(share, split)
                say(f"  {self._folder.name}, {name}: {seconds:.2f} s{'' if turn else ' (warming up)'}")
                taken[name] += [seconds] if turn else []
        return {
            name: {
                "per_second": round(self._work(share) / statistics.median(taken[name])),
                "seconds": taken[name],
                "rows": found[name][0],
                "digest": found[name],
            }
            for name, (share, _) in forms.items()
        }

    def _run(self, share: float, split: bool) -> tuple[float, tuple[int, int, int]]:
        self._runs += 1
        place = self._folder / f"run-{self._runs}"
        engine = TidegateOnSpark(reads_files=True, cells=CELLS, instances=1, hot_keys=split)
        query = partial(self._step.query, near_seconds=near_seconds(share))
        folders = [self._folder_of(share) / name for name in self._step.streams]
        writer = engine.writer(self._spark, query, folders, place).trigger(availableNow=True)
        seconds = timed(writer, FILES, rows_reported).seconds
        results = pl.scan_parquet(sink_of(place) / "*.parquet").select(self._step.columns).collect()
        return seconds, digest(results)

    def _folder_of(self, share: float) -> Path:
        return self._folder / ("hot" if share else "uniform")

    def _work(self, share: float) -> int:
        """Tuples, or comparisons of a join."""
        streams = list(self._inputs[share].values())
        return streams[0].num_rows if len(streams) == 1 else near_pairs(*streams, near_seconds(share))


def near_seconds(share: float) -> float:
    """How far apart the tuples of a pair are at the most."""
    return NEAR_SECONDS if share else SAME_PAIRS_SECONDS


def drawn(tuples: int, hot_share: float, seed: int) -> pa.Table:
    """Tuples in the order of time, no two values the same; a share of them has one key, the others one of many."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.choice(SPAN_SECONDS * 1_000_000, tuples, replace=False)) + START_US
    keys = np.where(draw.random(tuples) < hot_share, 0, draw.integers(0, KEYS, tuples))
    stamped = pa.array(times).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": stamped, "k": pa.array(keys), "v": pa.array(draw.permutation(tuples))})


def near_pairs(left: pa.Table, right: pa.Table, seconds: float) -> int:
    """How many pairs have one key and are at most so far apart."""
    total, reach = 0, round(seconds * 1e6)
    ours, theirs = ((side["ts"].cast(pa.int64()).to_numpy(), side["k"].to_numpy()) for side in (left, right))
    for key in np.unique(ours[1]):
        own, other = ours[0][ours[1] == key], theirs[0][theirs[1] == key]
        total += int((np.searchsorted(other, own + reach, "right") - np.searchsorted(other, own - reach)).sum())
    return total
