"""Every runtime behind one face: batches of tuples in, the bag of results and the number of late tuples out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidegate as tg
from tests.kit.local_runs import run_in_step
from tests.kit.spark_driver import Batch, Driver
from tidegate import micro
from tidegate.compile.lower_to_aggregates import Operators, lower_to_aggregates
from tidegate.micro.lowered import graph_of, table_of_rows
from tidegate.query.names import unique_names
from tidegate.query.nodes import Node, Source, rewrite, sources
from tidegate.reference import Advance, Event, Rows, interpret
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.spark import control
from tidegate.runtime.spark.codec import reported
from tidegate.runtime.spark.types import spark_schema
from tidegate.watermark import END, START

Batches = Sequence[dict[str, pa.Table]]


@dataclass(frozen=True)
class Result:
    """What a runtime gave."""

    rows: pa.Table
    late: int
    unfilled: int = 0


class Runtime(Protocol):
    """Runs a query over batches; what a batch is, besides an arrival order, is the runtime's business."""

    def run(self, query: tg.Stream, batches: Batches) -> Result: ...


class OnReference:
    """The law, with the watermark moving after each batch."""

    def run(self, query: tg.Stream, batches: Batches) -> Result:
        law = interpret(query.node, self._events(query.node, batches))
        return Result(law.rows, law.late, law.unfilled)

    def _events(self, query: Node, batches: Batches) -> Iterator[Event]:
        latest = dict.fromkeys((source.name for source in sources(query)), START)
        for batch in batches:
            for source in sources(query):
                if source.name in batch:
                    yield Rows(source.name, batch[source.name])
                    seen = pc.max(batch[source.name].column(source.time).cast(pa.int64())).as_py()
                    latest[source.name] = max(latest[source.name], seen - source.disorder_us)
            yield Advance(min(latest.values()))
        yield Advance(END)


@dataclass(frozen=True)
class Lowered:
    """Another runtime, for a query that was made of Aggregates; one that cannot be is marked as `dedicated`."""

    runtime: Runtime
    operators: Operators

    def run(self, query: tg.Stream, batches: Batches) -> Result:
        lowered = lower_to_aggregates(unique_names(query.node), self.operators)
        late = "a tuple comes behind the watermark: late for a map that is an Aggregate, though a window may take it"
        assert not any(is_behind(query.node, batches)), f"{late}; mark the test as dedicated"
        return self.runtime.run(tg.Stream(lowered), batches)


def is_behind(query: Node, batches: Batches) -> Iterator[bool]:
    """Whether each table of each batch has a tuple before the watermark after the batch before."""
    watermark, latest = START, dict.fromkeys((source.name for source in sources(query)), START)
    for batch in batches:
        for source in sources(query):
            if source.name in batch and batch[source.name].num_rows:
                least, most = pc.min_max(batch[source.name].column(source.time).cast(pa.int64())).as_py().values()
                yield least < watermark
                latest[source.name] = max(latest[source.name], most - source.disorder_us)
        watermark = min(latest.values())


class OnMicro:
    """The engine of one operator; rows of a batch in the order of time, as it stops at rows that are further behind."""

    def run(self, query: tg.Stream, batches: Batches) -> Result:
        tables: dict[str, list[pa.Table]] = {}
        disorder = 0
        for source in sources(query.node):
            found = [batch[source.name] for batch in batches if source.name in batch and batch[source.name].num_rows]
            tables[source.name] = [table.sort_by(source.time) for table in found]
            newest = START
            for table in tables[source.name]:
                times = table.column(source.time).cast(pa.int64()).to_pylist()
                disorder = max(disorder, newest - times[0])
                newest = max(newest, times[-1])
        rows = micro.collect(graph_of(query.node, tables, disorder))
        return Result(table_of_rows(rows, query.node), 0)


@dataclass(frozen=True)
class OnDriver:
    """Spark's stages without Spark."""

    cells: int
    instances: int = 1

    def run(self, query: tg.Stream, batches: Batches) -> Result:
        driver = Driver(query.node, self.cells, instances=self.instances)
        outcome = driver.run([Batch({name: [table] for name, table in batch.items()}) for batch in batches])
        made = pa.concat_tables([query.schema.empty_table(), *outcome.tables])
        return Result(made, outcome.late, outcome.unfilled)


@dataclass(frozen=True)
class OnLocal:
    """Threads of this process."""

    instances: int

    def run(self, query: tg.Stream, batches: Batches) -> Result:
        arrivals = [{name: [table] for name, table in batch.items()} for batch in batches]
        run = run_in_step(query.node, arrivals, Settings(self.instances, split_panes=0, split_pairs=0, split_keys=0))
        made = pa.concat_tables([query.schema.empty_table(), *run.tables])
        return Result(made, run.job.late, run.job.unfilled)


@dataclass(frozen=True)
class OnSpark:
    """Real Structured Streaming: one file per batch, parquet sink, checkpoint, and the end of input in band."""

    spark: Any
    folder: Path
    instances: int = 1
    cells: int = 1

    def run(self, query: tg.Stream, batches: Batches) -> Result:
        shutil.rmtree(self.folder, ignore_errors=True)
        steering = self.folder / "control"
        steering.mkdir(parents=True)
        bound = rewrite(query.node, lambda node: self._bound(node, batches) if isinstance(node, Source) else node)
        df = tg.Stream(bound).to_spark(
            state=self.folder / "state", control=steering, cells=self.cells, instances=self.instances
        )
        before = self._run(df)
        control.Steering(steering).send(control.EndInput())
        after = self._run(df)
        made = self.spark.read.schema(spark_schema(query.schema)).parquet(str(self.folder / "out")).toArrow()
        return Result(made.cast(query.schema), *(sum(counts) for counts in zip(before, after, strict=True)))

    def _run(self, df: Any) -> tuple[int, int]:
        writer = df.writeStream.format("parquet").option("path", str(self.folder / "out"))
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        told = [each for progress in query.recentProgress for each in reported(progress.observedMetrics)]
        cells = [each for each in told if "step" in each]
        ran = {each["instances"] for each in cells}
        assert ran <= {self.instances}, f"asked for {self.instances} instances a cell, cells ran {ran}"
        return sum(each["late"] for each in cells), sum(each.get("unfilled", 0) for each in cells)

    def _bound(self, source: Source, batches: Batches) -> Node:
        place = self.folder / "in" / source.name
        place.mkdir(parents=True, exist_ok=True)
        for number, batch in enumerate(batches):
            file = place / f"{number:04}.parquet"
            pq.write_table(batch.get(source.name, source.schema.empty_table()), file)
            # Spark reads files in the order of their modification times.
            os.utime(file, (1_700_000_000 + 2 * number,) * 2)
        reader = self.spark.readStream.schema(spark_schema(source.schema)).option("maxFilesPerTrigger", 1)
        return replace(source, origin=reader.parquet(str(place)))
