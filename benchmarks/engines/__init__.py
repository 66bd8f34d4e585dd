"""The engines that are compared: what each is called, what it needs, and how its adapter is made.

Adapters are imported in the engine's own process only, so that an engine that is not installed costs nothing.
To add one, write an adapter with the methods of `Engine` and list it in `ENGINES`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from benchmarks import peers
from benchmarks.inputs import Input
from benchmarks.workloads import WINDOWED, Workload


@dataclass(frozen=True, slots=True)
class Timing:
    """What one run took: all of it, and each micro-batch that had input (for an engine without batches, the run).

    `start_seconds` is what a query took to start before that, where there is such a thing.
    """

    seconds: float
    batch_ms: tuple[float, ...]
    start_seconds: float = 0.0


class Engine(Protocol):
    """An adapter, made once per process by `ENGINES[name].load(workload)`, then used from one thread.

    `run` is called once to warm up and then for every measured run, each time with a new `scratch` folder. It reads the
    input and times itself, leaving out its own set-up. `collect` follows a `run`, unmeasured, and writes the results of
    that run as parquet files into the folder `target`, with the columns of `Workload.columns` in any row order.
    """

    def run(self, data: Input, scratch: Path) -> Timing: ...

    def collect(self, target: Path) -> None: ...

    def close(self) -> None: ...


class StreamingEngine(Engine, Protocol):
    """An adapter that can say when its first result is there.

    `first_result` calls `seen` when it has a result in its hands, once or more often. It is all that is asked of its
    process, which is killed as soon as it has.
    """

    def first_result(self, data: Input, scratch: Path, seen: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine by name. `on_spark` engines run every batching; the others run the first input as one batch.

    A `peer` has an environment of its own. `most_tuples` says, for a workload, how much of the input a slow engine runs.
    `jvm` is true if it has a heap to reckon with, of `heap_gb` where that is not for the command line to say. One that is
    not `windowed` has no adapter for the windowed workloads.
    """

    name: str
    module: str
    factory: str
    needs: tuple[str, ...]
    on_spark: bool
    peer: bool = False
    most_tuples: Mapping[str, int] = field(default_factory=dict)
    jvm: bool = False
    heap_gb: int | None = None
    windowed: bool = True

    def reason_missing(self) -> str | None:
        """Why it cannot run here, such as the packages it needs that are not installed; None if it can."""
        if self.peer:
            return peers.reason_missing(self.name)
        missing = [package for package in self.needs if find_spec(package) is None]
        return f"not installed: {', '.join(missing)}" if missing else None

    @property
    def python(self) -> str:
        """The interpreter that runs it."""
        return str(peers.python_of(self.name)) if self.peer else sys.executable

    def load(self, workload: Workload) -> Engine:
        factory = getattr(import_module(f"benchmarks.engines.{self.module}"), self.factory)
        return cast(Engine, factory(workload))


# What an engine runs in about ten seconds.
FLINK_TUPLES = {"paircount-l": 50_000, "paircount-m": 20_000, "paircount-h": 20_000}
PATHWAY_TUPLES = {
    "wordcount": 50_000, "paircount-l": 10_000, "paircount-m": 5_000, "paircount-h": 5_000, "keyed": 200_000,
}  # fmt: skip
BYTEWAX_TUPLES = {
    "wordcount": 20_000, "paircount-l": 4_000, "paircount-m": 2_000, "paircount-h": 2_000, "keyed": 200_000,
}  # fmt: skip


def _peer(name: str, factory: str, most_tuples: Mapping[str, int], jvm: bool = False) -> EngineSpec:
    return EngineSpec(name, f"{name}_engine", factory, (name,), False, peer=True, most_tuples=most_tuples, jvm=jvm)


def _tidegate_on_spark(name: str, factory: str) -> EngineSpec:
    return EngineSpec(name, "tidegate_spark", factory, ("pyspark", "tidegate"), True, jvm=True, heap_gb=1)


ENGINES: Mapping[str, EngineSpec] = {
    spec.name: spec
    for spec in (
        EngineSpec("duckdb", "duckdb_engine", "DuckDBEngine", ("duckdb",), on_spark=False),
        EngineSpec("polars", "polars_engine", "PolarsEngine", ("polars",), on_spark=False),
        EngineSpec("spark-hdfs", "spark_native", "native_on_hdfs_state", ("pyspark",), on_spark=True, jvm=True),
        EngineSpec("spark-rocksdb", "spark_native", "native_on_rocksdb_state", ("pyspark",), on_spark=True, jvm=True),
        _peer("flink", "FlinkEngine", FLINK_TUPLES, jvm=True),
        _peer("bytewax", "BytewaxEngine", BYTEWAX_TUPLES),
        _peer("pathway", "PathwayEngine", PATHWAY_TUPLES),
        EngineSpec("tidegate-local", "tidegate_local", "two_instances", ("tidegate",), on_spark=False),
        EngineSpec("tidegate-local-1", "tidegate_local", "one_instance", ("tidegate",), on_spark=False),
        EngineSpec("tidegate-micro", "overlap", "overlap_engine", ("tidegate",), on_spark=False, windowed=False),
        _tidegate_on_spark("tidegate-spark", "over_files"),
        _tidegate_on_spark("tidegate-spark-df", "over_rows"),
        _tidegate_on_spark("tidegate-spark-2", "in_two_cells"),
    )
}

# Workloads that are no windows over one input: their adapters are made from the names of engine and workload, have methods
# of their own, which `EngineProcess.call` calls, and `close`.
OTHER_ADAPTERS: Mapping[str, tuple[str, str]] = {
    "equijoin": ("spark_joins", "JoinEngine"),
    "scalejoin-spark": ("spark_joins", "JoinEngine"),
    "latency-spark": ("spark_latency", "LatencyEngine"),
    "overlap-inter": ("overlap", "overlap_engine"),
    "nexmark": ("nexmark", "nexmark_engine"),
    "matrix-spark": ("matrix_spark", "MatrixOnSpark"),
}

SPARK_VARIANTS = ("spark-hdfs", "spark-rocksdb")  # the better of these is reported as `spark`
JUDGES = ("duckdb", "polars")  # engines that emit every window; the first installed one judges the others' results


def load(engine: str, workload: str) -> Any:
    """The adapter of an engine for a workload, both by name."""
    if workload in WINDOWED:
        return ENGINES[engine].load(WINDOWED[workload])
    module, factory = OTHER_ADAPTERS[workload]
    return getattr(import_module(f"benchmarks.engines.{module}"), factory)(engine, workload)


def expand_names(names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Engine names as given on the command line, `spark` standing for its variants; all engines for None."""
    if names is None:
        return tuple(ENGINES)
    expanded: list[str] = []
    for name in names:
        if name != "spark" and name not in ENGINES:
            raise ValueError(f"unknown engine {name!r}; valid are: spark, {', '.join(ENGINES)}")
        expanded.extend(SPARK_VARIANTS if name == "spark" else (name,))
    return tuple(dict.fromkeys(expanded))
