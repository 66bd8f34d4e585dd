"""tidegate on Spark: over files that its workers read, or over rows of a DataFrame, in one cell or two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamWriter

import tidegate as tg
from benchmarks.engines.spark_streaming import SparkEngine, checkpoint_of, read_rows, sink_of, to_parquet
from benchmarks.engines.tidegate_query import query_of
from benchmarks.workloads import Workload
from tidegate.compile.compiler import compile_query
from tidegate.query.nodes import Source, sources
from tidegate.runtime.spark.codec import reported
from tidegate.runtime.spark.dataframe import state_root, to_dataframe
from tidegate.runtime.spark.session import STREAMING, default_cells
from tidegate.runtime.spark.sinks import SparkFolder
from tidegate.runtime.spark.sources import StagedSource
from tidegate.runtime.spark.stages import RunOptions
from tidegate.runtime.spark.tally import RESULTS
from tidegate.stream import cores

# Tuples and state are in Python workers, so a small heap does.
SETTINGS: Mapping[str, str] = {**STREAMING, "spark.driver.memory": "1g"}

Query = Callable[..., tg.Stream]
"""A query of as many streams as it is given."""


@dataclass(frozen=True, slots=True)
class TidegateOnSpark:
    """How tidegate gets its tuples, by itself from files or as rows of a DataFrame, its cells, and the instances of each.

    None are as by default. With ``hot_keys`` single keys are split. A query has as many folders as streams; a file of each
    is a micro-batch.
    """

    reads_files: bool
    cells: int | None = None
    instances: int | None = None
    hot_keys: bool = False

    def writer(self, spark: SparkSession, query: Query, folders: Sequence[Path], scratch: Path) -> DataStreamWriter:
        """A query, not started yet, that writes its results as parquet to the sink in `scratch`."""
        if self.reads_files:
            streams = [tg.stream(str(folder / "*.parquet"), time="ts", name=folder.name) for folder in folders]
            return self._over_files(spark, query(*streams), scratch)
        streams = [tg.stream(read_rows(spark, folder), time="ts", name=folder.name) for folder in folders]
        shape = {"cells": self.cells, "instances": self.instances, "hot_keys": self.hot_keys}
        return to_parquet(query(*streams).to_spark(checkpoint=checkpoint_of(scratch), **shape), scratch)

    def _over_files(self, spark: SparkSession, query: tg.Stream, scratch: Path) -> DataStreamWriter:
        """What `tg.run` makes of a query over files, for a trigger of our own: it ends as native Spark's queries do."""
        checkpoint, sink = checkpoint_of(scratch), SparkFolder(sink_of(scratch), "parquet")
        staged = {
            source.name: StagedSource.of(source, checkpoint.parent / "staged" / str(number), files_per_batch=1)
            for number, source in enumerate(sources(query.node))
        }

        def streamed(source: Source) -> Source:
            return staged[source.name].streamed(spark, source)

        cells = self.cells or default_cells(spark)
        plan = compile_query(query.node, "spark", cells=cells, hot_keys=self.hot_keys).reading(streamed)
        control = checkpoint / "control"
        control.mkdir(parents=True)
        root = state_root(str(checkpoint / "tidegate"), {}, spark)
        options = RunOptions(root, str(control), self.instances or cores(), parts=str(sink.parts))
        results = to_dataframe(plan, options).observe(RESULTS, F.sum("rows").alias("rows"))
        return sink.committer(results, checkpoint)


ON_SPARK: Mapping[str, TidegateOnSpark] = {
    "tidegate-spark": TidegateOnSpark(reads_files=True),
    "tidegate-spark-df": TidegateOnSpark(reads_files=False),
    "tidegate-spark-2": TidegateOnSpark(reads_files=True, cells=2),
}
"""The engines of tidegate on Spark. No workload gives them settings of its own."""


def _windowed(name: str) -> Callable[[Workload], SparkEngine]:
    def build(spark: SparkSession, folder: Path, scratch: Path, workload: Workload) -> DataStreamWriter:
        return ON_SPARK[name].writer(spark, partial(query_of, workload=workload), (folder,), scratch)

    return lambda workload: SparkEngine(workload, build, SETTINGS, rows_reported)


over_files = _windowed("tidegate-spark")
over_rows = _windowed("tidegate-spark-df")
in_two_cells = _windowed("tidegate-spark-2")


def rows_reported(progress: StreamingQueryProgress) -> int:
    """The tuples of a micro-batch, as workers report them: Spark counts files where workers read them."""
    return sum(each["rows"] for each in reported(progress.observedMetrics) if "source" in each)
