"""The benchmarks by name. To add one, write `run(options) -> exit code` in a file of its own and list it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.harness import run_windowed
from benchmarks.options import Options
from benchmarks.workloads import WINDOWED


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A name on the command line, a line for `--help`, and what runs: 1 is a wrong answer or a failed engine."""

    name: str
    summary: str
    run: Callable[[Options], int]


def _state_growth(options: Options) -> int:
    # Imported when it runs: it needs Spark in this process.
    from benchmarks import state_growth

    return state_growth.run(options)


def _move_state(options: Options) -> int:
    # Imported when it runs: it needs Spark in this process.
    from benchmarks import move_state

    return move_state.run(options)


def _reconfigure(options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks import reconfigure

    return reconfigure.run(options)


def _snapshots(options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks import snapshots

    return snapshots.run(options)


def _soak(options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks import soak

    return soak.run(options)


def _scheduling(options: Options) -> int:
    # Imported when it runs, as the other one: the rest needs nothing of the control plane.
    from benchmarks import scheduling

    return scheduling.run(options)


def _sweep(options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks import sweep

    return sweep.run(options)


def _forward(options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks import forward

    return forward.run(options)


def _overlap_intra(options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks import overlap_intra

    return overlap_intra.run(options)


def _first_result(options: Options) -> int:
    from benchmarks import first_result

    return first_result.run(options)


def _cell_instances(options: Options) -> int:
    # Imported when it runs: it needs Spark in this process.
    from benchmarks import cell_instances

    return cell_instances.run(options)


def _latency_spark(options: Options) -> int:
    from benchmarks import latency_spark

    return latency_spark.run(options)


def _skew_shuffle(options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks import skew_shuffle

    return skew_shuffle.run(options)


def _applications(options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks import applications

    return applications.run(options)


def _matrix(options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks.matrix import run

    return run.run(options)


def _joins(name: str, options: Options) -> int:
    # Imported when it runs: it compiles loops.
    from benchmarks import joins

    run: Callable[[Options], int] = getattr(joins, name)
    return run(options)


def _joins_on_spark(name: str, options: Options) -> int:
    # Imported when it runs: it needs Spark in this process.
    from benchmarks import joins_on_spark

    run: Callable[[Options], int] = getattr(joins_on_spark, name)
    return run(options)


def _elastic(name: str, options: Options) -> int:
    # Imported when it runs: it needs the control plane.
    from benchmarks import elastic

    run: Callable[[Options], int] = getattr(elastic, name)
    return run(options)


_JOINS = (
    Benchmark("scalejoin", "all pairs near in time, in process, against the bare loop", partial(_joins, "scalejoin")),
    Benchmark("bandjoin", "the same pairs found by sorting, against trying all", partial(_joins, "bandjoin")),
    Benchmark(
        "scalejoin-spark",
        "all pairs near in time, on Spark, against native Spark with a constant key",
        partial(_joins_on_spark, "scalejoin"),
    ),
    Benchmark("equijoin", "a join by key beside native Spark's", partial(_joins_on_spark, "equijoin")),
    Benchmark("skew", "joins in process under Zipf keys, by key and over all pairs", partial(_joins, "skew")),
    Benchmark("hedge", "trades that hedge each other, in process, against the bare loop", partial(_joins, "hedge")),
)

_WINDOWED = (Benchmark(each.name, each.summary, partial(run_windowed, each)) for each in WINDOWED.values())

_STATE = Benchmark("state-growth", "the same micro-batch over stored state of 1x and 10x", _state_growth)

_MOVE = Benchmark("move-state", "half of the state of a query to another cell, on Spark, under load", _move_state)

_SCHEDULING = Benchmark("scheduling", "cores for cells on 8 to 1,000 nodes, beside Elasticutor's table 3", _scheduling)

_RECONFIGURE = Benchmark("reconfigure", "the number of instances changed under load, in process", _reconfigure)

_SNAPSHOTS = Benchmark("snapshots", "what snapshots in process cost, and recovery from one of 1 GB", _snapshots)

_SOAK = Benchmark("soak", "ten minutes under load with a change of instances every 50 ms, in process", _soak)

_SWEEP = Benchmark("sweep", "the highest rate sustained in process, and latency at half of it", _sweep)

_FORWARD = Benchmark("forward", "the cost of sharing and ordering tuples alone: rate and latency, in process", _forward)

_OVERLAP_INTRA = Benchmark(
    "overlap-intra", "operators made of Aggregates as a share of dedicated ones, in process", _overlap_intra
)

_FIRST_RESULT = Benchmark("first-result", "process start to first result, 50,000 tuples of wordcount", _first_result)

_CELL_INSTANCES = Benchmark("cell-instances", "one and two instances in one and two cells on Spark", _cell_instances)

_LATENCY_SPARK = Benchmark("latency-spark", "latency of results on Spark under an open-loop load", _latency_spark)

_APPLICATIONS = Benchmark(
    "applications", "the papers' applications and operators in process, one instance and two", _applications
)

_MATRIX = Benchmark("matrix", "every aggregate, key and window in process, beside DuckDB and Polars", _matrix)

_SKEW_SHUFFLE = Benchmark(
    "skew-shuffle",
    "Zipf keys shuffled every ten seconds, in process: static and balanced beside uniform",
    _skew_shuffle,
)


def _overlap_inter(options: Options) -> int:
    from benchmarks.overlap import inter

    return inter.run(options)


_OVERLAP = Benchmark(
    "overlap-inter", "twelve maps and joins of texts between engines, as in Semantic Overlap §6.2", _overlap_inter
)


def _nexmark(options: Options) -> int:
    # Imported when it runs: it needs polars and psutil.
    from benchmarks.nexmark import run

    return run.run(options)


_NEXMARK = Benchmark("nexmark", "the 23 queries of Nexmark beside DuckDB, native Spark and Flink", _nexmark)

_ELASTIC = (
    Benchmark(
        "elastic-local", "a load that steps ten times up and down, followed in process", partial(_elastic, "local")
    ),
    Benchmark(
        "elastic-spark", "executors that follow a load, beside Spark's dynamic allocation", partial(_elastic, "spark")
    ),
)

BENCHMARKS: Mapping[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        *_WINDOWED,
        _MATRIX,
        _APPLICATIONS,
        *_JOINS,
        _FORWARD,
        _OVERLAP_INTRA,
        _FIRST_RESULT,
        _SWEEP,
        _STATE,
        _MOVE,
        _RECONFIGURE,
        _SNAPSHOTS,
        _SOAK,
        _SCHEDULING,
        _CELL_INSTANCES,
        _LATENCY_SPARK,
        _SKEW_SHUFFLE,
        _OVERLAP,
        _NEXMARK,
        *_ELASTIC,
    )
}
