"""The benchmarks by name. To add one, write `run(options) -> exit code` in a file of its own and list it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from benchmarks.harness import run_windowed
from benchmarks.options import Options
from benchmarks.workloads import WINDOWED


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A name on the command line, a line for `--help`, and what runs: 1 is a wrong answer or a failed engine."""

    name: str
    summary: str
    run: partial[int]


def run_of(module: str, function: str) -> Callable[[Options], int]:
    """A function of a module under `benchmarks`."""
    found: Callable[[Options], int] = getattr(import_module(f"benchmarks.{module}"), function)
    return found


def _in(module: str, function: str = "run") -> partial[int]:
    """A benchmark whose module is imported when it runs: some start Spark in their process, some compile loops."""
    return partial(_run, module, function)


def _run(module: str, function: str, options: Options) -> int:
    return run_of(module, function)(options)


BENCHMARKS: Mapping[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        *(Benchmark(each.name, each.summary, partial(run_windowed, each)) for each in WINDOWED.values()),
        Benchmark(
            "matrix", "every aggregate, key, window and join in process, beside DuckDB and Polars", _in("matrix.run")
        ),
        Benchmark(
            "matrix-spark",
            "the same cells on Spark, beside native Spark, as far as it has them",
            _in("matrix.on_spark"),
        ),
        Benchmark(
            "applications",
            "the papers' applications and operators in process, one instance and two",
            _in("applications"),
        ),
        Benchmark("scalejoin", "all pairs near in time, in process, against the bare loop", _in("joins", "scalejoin")),
        Benchmark("bandjoin", "the same pairs found by sorting, against trying all", _in("joins", "bandjoin")),
        Benchmark(
            "scalejoin-spark",
            "all pairs near in time, on Spark, against native Spark with a constant key",
            _in("joins_on_spark", "scalejoin"),
        ),
        Benchmark("equijoin", "a join by key beside native Spark's", _in("joins_on_spark", "equijoin")),
        Benchmark("skew", "joins in process under Zipf keys, by key and over all pairs", _in("joins", "skew")),
        Benchmark("hedge", "trades that hedge each other, in process, against the bare loop", _in("joins", "hedge")),
        Benchmark(
            "forward", "the cost of sharing and ordering tuples alone: rate and latency, in process", _in("forward")
        ),
        Benchmark(
            "overlap-intra",
            "operators made of Aggregates as a share of dedicated ones, in process",
            _in("overlap_intra"),
        ),
        Benchmark(
            "overlap-inter",
            "twelve maps and joins of texts between engines, as in Semantic Overlap §6.2",
            _in("overlap.inter"),
        ),
        Benchmark("first-result", "process start to first result, 50,000 tuples of wordcount", _in("first_result")),
        Benchmark("sweep", "the highest rate sustained in process, and latency at half of it", _in("sweep")),
        Benchmark("state-growth", "the same micro-batch over stored state of 1x and 10x", _in("state_growth")),
        Benchmark(
            "move-state", "half of the state of a query to another cell, on Spark, under load", _in("move_state")
        ),
        Benchmark("reconfigure", "the number of instances changed under load, in process", _in("reconfigure")),
        Benchmark("snapshots", "what snapshots in process cost, and recovery from one of 1 GB", _in("snapshots")),
        Benchmark("soak", "ten minutes under load with a change of instances every 50 ms, in process", _in("soak")),
        Benchmark("scheduling", "cores for cells on 8 to 1,000 nodes, beside Elasticutor's table 3", _in("scheduling")),
        Benchmark("cell-instances", "one and two instances in one and two cells on Spark", _in("cell_instances")),
        Benchmark("latency-spark", "latency of results on Spark under an open-loop load", _in("latency_spark")),
        Benchmark(
            "skew-shuffle",
            "Zipf keys shuffled every ten seconds, in process: static and balanced beside uniform",
            _in("skew_shuffle"),
        ),
        Benchmark(
            "hot-key", "one key with most of the tuples on Spark, whole and split, beside uniform keys", _in("hot_key")
        ),
        Benchmark("skew-shuffle-spark", "the same in eight cells on Spark", _in("skew_on_spark")),
        Benchmark("nexmark", "the 23 queries of Nexmark beside DuckDB, native Spark and Flink", _in("nexmark.run")),
        Benchmark(
            "elastic-local",
            "a load that steps ten times up and down, followed in process",
            _in("elastic", "local"),
        ),
        Benchmark(
            "elastic-spark",
            "executors that follow a load, beside Spark's dynamic allocation",
            _in("elastic", "spark"),
        ),
    )
}
