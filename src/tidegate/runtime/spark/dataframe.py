"""From a compiled query to a streaming DataFrame."""

from __future__ import annotations

import atexit
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import narwhals as nw
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from tidegate.compile.plan import OUTPUT, Feed, Plan, Subquery
from tidegate.errors import EnvironmentFault, InternalError, QueryError, UnsupportedError
from tidegate.query.nodes import (
    Filter,
    MapBatches,
    Select,
    Source,
    Stateful,
    Stateless,
    WithColumns,
    apply_stateless,
)
from tidegate.query.schema import TIME, conform
from tidegate.runtime.spark.cells import cell_keys
from tidegate.runtime.spark.control import to_cells, with_control
from tidegate.runtime.spark.delta_rows import SCHEMA
from tidegate.runtime.spark.from_future import without_future
from tidegate.runtime.spark.outward import Outward
from tidegate.runtime.spark.stages import FeedBranch, branches, delay_ms, detached, processor, step_fingerprint
from tidegate.runtime.spark.stored_state import check_stored
from tidegate.runtime.spark.types import spark_schema
from tidegate.state.cache import cache_of, remove_caches

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
# With 2, files of state carry an id of the attempt that wrote them, and the commit of a batch says which attempt counts.
ATTEMPTS_APART = "spark.sql.streaming.stateStore.checkpointFormatVersion"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_FILES = "spark.hadoop.fs.file.impl"
UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def to_dataframe(
    plan: Plan,
    *,
    control: str | None = None,
    instances: int = 1,
    checkpoint: str | None = None,
    run: str | None = None,
) -> DataFrame:
    """The streaming DataFrame of a plan whose sources are streaming DataFrames.

    ``control`` is the folder of a control stream; it is there from a checkpoint's first batch or never. ``instances`` is
    how many each cell runs to begin with. A ``checkpoint`` that was written by another query is refused. Whoever names the
    ``run`` removes its caches when it has ended; those of one without a name go with this process.
    """
    if checkpoint is not None:
        spark = _origin(plan.sources[0]).sparkSession
        stored = [sub.operator for sub in plan.subqueries if sub.operator is not None]
        check_stored(spark, checkpoint, [step_fingerprint(node, shuffle_partitions(spark)) for node in stored])
    if run is None:
        run = uuid.uuid4().hex
        atexit.register(remove_caches, run)
    return _Builder(plan, control, instances, run).output()


def shuffle_partitions(spark: SparkSession) -> int:
    """How many cells a stateful step gets: Spark's shuffle partitions."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 200)


@dataclass(frozen=True, slots=True)
class _Builder:
    plan: Plan
    control: str | None
    instances: int
    run: str
    read: Counter[str] = field(default_factory=Counter)

    def output(self) -> DataFrame:
        """The results of the whole plan."""
        return _union([self._fed(feed, tuple(step.node for step in feed.steps)) for feed in self.plan.outputs])

    def _fed(self, feed: Feed, steps: Iterable[Stateless]) -> DataFrame:
        """The tuples of a feed after some of its steps."""
        if isinstance(feed.origin, Source):
            df = without_future(feed.origin, _origin(feed.origin).select(*feed.origin.schema.names), self.read)
        else:
            df = self._subquery(self.plan.subqueries[feed.origin])
        for step in steps:
            df = _stateless(step, df)
        return df

    def _subquery(self, subquery: Subquery) -> DataFrame:
        node = subquery.operator
        if node is None:
            return _union([self._fed(feed, tuple(step.node for step in feed.steps)) for feed in subquery.feeds])
        spark = _origin(self.plan.sources[0]).sparkSession
        _check_session(spark, node, self.plan.sources)
        cells = shuffle_partitions(spark)
        packed = _union([self._combined(branch) for branch in branches(subquery, cells)])
        if self.control is not None:
            packed = packed.unionByName(to_cells(spark, self.control, cell_keys(cells)), allowMissingColumns=True)
        number = subquery.number + 1
        run = f"{self.run}-{number}"
        cell = processor(node, cells, cache_of(self.run, number), self.instances, run)
        way = Outward(node.schema, node.time)
        out = packed.groupBy("cell").transformWithStateInPandas(
            cell, spark_schema(way.columns), "append", "eventTime", eventTimeColumnName=self._event_time(subquery)
        )
        return way.arrived(out, f"{number}:{node.name}")

    def _event_time(self, subquery: Subquery) -> str:
        """The column that carries the watermark on to a stateful step that reads this one; none if there is no such."""
        readers = [feed.target for feed in self.plan.feeds_from(subquery.number) if feed.target != OUTPUT]
        return subquery.time if any(self.plan.subqueries[reader].operator is not None for reader in readers) else ""

    def _combined(self, branch: FeedBranch) -> DataFrame:
        """One branch up to the exchange: native steps, control and watermark, then the kernel."""
        df = self._fed(branch.feed, branch.native).select(*branch.stage.intake.columns.names)
        source = branch.feed.origin
        if isinstance(source, Source):
            df = _with_zone(df, source.time)
            df = with_control(df, source, self.control)
            df = df.withWatermark(source.time, f"{delay_ms(source)} milliseconds")
        return df.mapInArrow(branch.stage, SCHEMA)


def _stateless(node: Stateless, df: DataFrame) -> DataFrame:
    match node:
        case WithColumns():
            made = nw.from_native(df).with_columns(*node.exprs).to_native()
        case Select():
            made = nw.from_native(df).select(*node.exprs).to_native()
        case Filter():
            return nw.from_native(df).filter(node.predicate).to_native()
        case MapBatches():
            return df.mapInArrow(_BatchFunction(detached(node), node.input.schema), spark_schema(node.schema))
        case _:
            raise InternalError(f"no DataFrame for {type(node).__name__}")
    wanted = spark_schema(node.schema)
    if [field.dataType for field in made.schema] == [field.dataType for field in wanted]:
        return made
    return made.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in wanted))


@dataclass(frozen=True)
class _BatchFunction:
    """A user's batch function as `mapInArrow` calls it."""

    step: Stateless
    columns: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = conform(pa.Table.from_batches([batch]), self.columns)
            yield from apply_stateless(self.step, table).to_batches()


def _origin(source: Source) -> DataFrame:
    df = source.origin
    if not isinstance(df, DataFrame):
        raise UnsupportedError(
            f"stream '{source.name}' has no DataFrame behind it, so it cannot run on Spark; make it with "
            "tg.stream(df, time=...) from a streaming DataFrame, or from files and run it with tg.run(...)"
        )
    return df


def _with_zone(df: DataFrame, time: str) -> DataFrame:
    """The data with event times as Spark's watermarks want them; `_check_session` saw to it that the zone is UTC."""
    if not isinstance(df.schema[time].dataType, TimestampNTZType):
        return df
    return df.withColumn(time, F.col(time).cast(TimestampType()))


def _union(frames: list[DataFrame]) -> DataFrame:
    made = frames[0]
    for other in frames[1:]:
        made = made.unionByName(other)
    return made


def _check_attempts(spark: SparkSession, node: Stateful) -> None:
    """Refuse a session in which what a killed attempt wrote stays in place of what the batch writes when it is run again."""
    renames = str(spark.conf.get(FILE_MANAGER, "")).endswith(".FileSystemBasedCheckpointFileManager")
    replaces = str(spark.conf.get(LOCAL_FILES, "")).endswith(".LocalFileSystem")
    if renames and not replaces and spark.conf.get(ATTEMPTS_APART, "1") != "2":
        raise EnvironmentFault(
            f"step '{node.name}': with {FILE_MANAGER} of this session the state of a batch that was killed stays in place "
            "of that of the batch run again, and the next crash destroys the checkpoint; before the query starts, run\n"
            f'    spark.conf.set("{ATTEMPTS_APART}", "2")\nand begin a new checkpoint, or start the session with\n'
            f"    {LOCAL_FILES}=org.apache.hadoop.fs.LocalFileSystem"
        )


def _check_session(spark: SparkSession, node: Stateful, sources: Iterable[Source]) -> None:
    if spark.conf.get(PROVIDER, "") != ROCKSDB:
        raise EnvironmentFault(
            f"step '{node.name}': a stateful step needs Spark's RocksDB state store; before the query starts, run\n"
            f'    spark.conf.set("{PROVIDER}", "{ROCKSDB}")'
        )
    _check_attempts(spark, node)
    for source in sources:
        naive = source.schema.field(source.time).type != TIME
        zone = str(spark.conf.get("spark.sql.session.timeZone"))
        if naive and zone not in UTC:
            raise QueryError(
                f"stream '{source.name}': the times in '{source.time}' have no zone, and this session would read them as "
                f"times in {zone}; before the query is made, run\n    spark.conf.set('spark.sql.session.timeZone', 'UTC')"
            )
        if not _origin(source).isStreaming:
            raise QueryError(f"stream '{source.name}' is a batch DataFrame; make it with spark.readStream")
        if any("spark.watermarkDelayMs" in (field.metadata or {}) for field in _origin(source).schema):
            raise QueryError(
                f"stream '{source.name}' already has a watermark, and Spark allows one; remove withWatermark(...) and tell "
                "tidegate how late tuples may be: tg.stream(df, time=..., disorder='10 seconds')"
            )
