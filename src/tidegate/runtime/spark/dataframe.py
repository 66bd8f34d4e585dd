"""From a plan to a streaming DataFrame; `stage_of` and `processor` need no Spark session, so that tests can drive them."""

from __future__ import annotations

import atexit
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeVar, cast

import narwhals as nw
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from tidegate.compile.plan import OUTPUT, Feed, Place, Plan, Subquery
from tidegate.errors import EnvironmentFault, InternalError, QueryError, UnsupportedError
from tidegate.operators.cells import CellLogic
from tidegate.operators.exchange import RouteByKeys, Router
from tidegate.operators.joins.join_cell import JoinLogic
from tidegate.operators.joins.route_join import Grid, RouteByEqualKeys, RouteOnGrid
from tidegate.operators.keyed_apply_cell import KeyedApplyLogic
from tidegate.operators.window_cell import WindowCellLogic
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import (
    Filter,
    Join,
    KeyedApply,
    MapBatches,
    Select,
    Source,
    Stateful,
    Stateless,
    WindowAggregate,
    WithColumns,
    with_inputs,
)
from tidegate.query.predicates.tree import LEFT, RIGHT
from tidegate.query.schema import TIME
from tidegate.runtime.spark import processor as light
from tidegate.runtime.spark import session as settings
from tidegate.runtime.spark.checkpoint import check_stored, fingerprint
from tidegate.runtime.spark.codec import DELTA_ROWS, ResultCodec, cell_keys
from tidegate.runtime.spark.control import to_cells, with_control
from tidegate.runtime.spark.operator import CellFrames, CombineStage, FusedSteps, TupleStage
from tidegate.runtime.spark.sources import without_future
from tidegate.runtime.spark.types import spark_schema
from tidegate.state.cache import ChunkCache, cache_of, remove_caches

UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")
Step = TypeVar("Step", bound=Stateful | Stateless)


def to_dataframe(
    plan: Plan,
    *,
    control: str | None = None,
    instances: int = 1,
    checkpoint: str | None = None,
    run: str | None = None,
) -> DataFrame:
    """Builds the streaming DataFrame of a plan whose sources are streaming DataFrames.

    ``control`` is the folder of a control stream; it is there from a checkpoint's first batch or never. ``instances`` is
    how many each cell runs to begin with. A ``checkpoint`` that was written by another query is refused. A caller that names
    the ``run`` removes its caches when it has ended; those of one without a name go with this process.
    """
    if checkpoint is not None:
        spark = _origin(plan.sources[0]).sparkSession
        check_stored(spark, checkpoint, fingerprints(plan, settings.shuffle_partitions(spark)))
    if run is None:
        run = uuid.uuid4().hex
        atexit.register(remove_caches, run)
    return _Builder(plan, control, instances, run).output()


def fingerprints(plan: Plan, cells: int) -> list[str]:
    """What a checkpoint of a plan holds, by stateful step."""
    operators = [subquery.operator for subquery in plan.subqueries if subquery.operator is not None]
    return [fingerprint(detached(operator), cells) for operator in operators]


def detached(step: Step) -> Step:
    """A step as workers get it: without what lies before it."""
    bare = tuple(Source(below.name, below.schema, below.time, 0) for below in step.inputs)
    return cast(Step, with_inputs(step, bare))


def delay_ms(source: Source) -> int:
    """The delay to ask of Spark: 1 ms more than the disorder, because Spark drops ties with its watermark."""
    return -(-source.disorder_us // 1000) + 1


def native_steps(feed: Feed) -> tuple[Stateless, ...]:
    """The steps of a feed that Spark computes itself."""
    return tuple(step.node for step in feed.steps if step.place is not Place.KERNEL)


def stage_of(subquery: Subquery, feed: Feed, cells: int) -> CombineStage | TupleStage:
    """What runs in workers before the exchange: aggregates combine there, other steps partition whole tuples."""
    assert subquery.operator is not None
    native = native_steps(feed)
    kernel = tuple(detached(step.node) for step in feed.steps if step.place is Place.KERNEL)
    fused = FusedSteps(native[-1].schema if native else feed.entering, kernel)
    node, keys, side = detached(subquery.operator), cell_keys(cells), feed.side
    derived = not isinstance(feed.origin, Source)
    if subquery.combine is not None and subquery.combine.before_exchange and isinstance(node, WindowAggregate):
        return CombineStage(fused, Panes(node), keys, derived)
    match node, subquery.safety().partitioning:
        case KeyedApply(), "keys":
            router: Router = RouteByKeys(node.keys[side], cells)
        case Join(), "keys":
            router = RouteByEqualKeys(tuple(names[side] for names in node.on), cells)
        case Join(), "pairs":
            router = RouteOnGrid(LEFT if side == 0 else RIGHT, Grid.of(cells))
        case _:
            raise InternalError(f"no exchange is known for {type(node).__name__}")
    below = node.inputs[side]
    return TupleStage(fused, below.schema, node.name, below.time, side, router, keys, derived)


def processor(node: Stateful, cells: int, cache: ChunkCache | None, instances: int, run: str) -> light.CellProcessor:
    """The stateful step behind the exchange, with so many instances in each cell; ``run`` names the run.

    Its class travels by value, so that the process Spark starts on the driver need not import tidegate.
    """
    cloudpickle.register_pickle_by_value(light)  # type: ignore[no-untyped-call] # pyspark has no types for it
    node = detached(node)
    match node:
        case WindowAggregate():
            logic: CellLogic = WindowCellLogic(node)
        case Join():
            logic = JoinLogic(node)
        case KeyedApply():
            logic = KeyedApplyLogic(node, cells)
        case _:
            raise InternalError(f"no cells are known for {type(node).__name__}")
    cell = CellFrames(logic, fingerprint(node, cells), cache, cell_keys(cells), instances, run)
    return light.CellProcessor(cloudpickle.dumps(cell))  # type: ignore[no-untyped-call] # pyspark has no types for it


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds the DataFrames of a plan's feeds and subqueries."""

    plan: Plan
    control: str | None
    instances: int
    run: str
    read: Counter[str] = field(default_factory=Counter)

    def output(self) -> DataFrame:
        """The results of the whole plan."""
        return self._union(self.plan.outputs)

    def _union(self, feeds: Iterable[Feed]) -> DataFrame:
        return _union([self._fed(feed, (step.node for step in feed.steps)) for feed in feeds])

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
            return self._union(subquery.feeds)
        spark = _origin(self.plan.sources[0]).sparkSession
        _check_session(spark, node, self.plan.sources)
        cells = settings.shuffle_partitions(spark)
        packed = _union([self._before_exchange(subquery, feed, cells) for feed in subquery.feeds])
        if self.control is not None:
            packed = packed.unionByName(to_cells(spark, self.control, cell_keys(cells)), allowMissingColumns=True)
        number = subquery.number + 1
        cell = processor(node, cells, cache_of(self.run, number), self.instances, f"{self.run}-{number}")
        codec = ResultCodec(node.schema, node.time)
        out = packed.groupBy("cell").transformWithStateInPandas(
            cell, spark_schema(codec.columns), "append", "eventTime", eventTimeColumnName=self._event_time(subquery)
        )
        return codec.decoded(out, f"{number}:{node.name}")

    def _event_time(self, subquery: Subquery) -> str:
        """The column that carries the watermark on to a stateful step that reads this one; none if there is no such."""
        readers = [feed.target for feed in self.plan.feeds_from(subquery.number) if feed.target != OUTPUT]
        return subquery.time if any(self.plan.subqueries[reader].operator is not None for reader in readers) else ""

    def _before_exchange(self, subquery: Subquery, feed: Feed, cells: int) -> DataFrame:
        """One feed up to the exchange: native steps, control and watermark, then the kernel."""
        stage = stage_of(subquery, feed, cells)
        df = self._fed(feed, native_steps(feed)).select(*stage.fused.columns.names)
        source = feed.origin
        if isinstance(source, Source):
            if isinstance(df.schema[source.time].dataType, TimestampNTZType):
                # Spark's watermarks want times with a zone; `_check_session` has checked that the session's is UTC.
                df = df.withColumn(source.time, F.col(source.time).cast(TimestampType()))
            df = with_control(df, source, self.control)
            df = df.withWatermark(source.time, f"{delay_ms(source)} milliseconds")
        return df.mapInArrow(stage, spark_schema(DELTA_ROWS))


def _stateless(node: Stateless, df: DataFrame) -> DataFrame:
    match node:
        case WithColumns():
            after = nw.from_native(df).with_columns(*node.exprs).to_native()
        case Select():
            after = nw.from_native(df).select(*node.exprs).to_native()
        case Filter():
            return nw.from_native(df).filter(node.predicate).to_native()
        case MapBatches():
            steps = FusedSteps(node.input.schema, (detached(node),))
            return df.mapInArrow(steps.on_batches, spark_schema(node.schema))
        case _:
            raise InternalError(f"no DataFrame for {type(node).__name__}")
    wanted = spark_schema(node.schema)
    if [field.dataType for field in after.schema] == [field.dataType for field in wanted]:
        return after
    return after.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in wanted))


def _origin(source: Source) -> DataFrame:
    df = source.origin
    if not isinstance(df, DataFrame):
        raise UnsupportedError(
            f"stream '{source.name}' has no DataFrame behind it, so it cannot run on Spark; make it with "
            "tg.stream(df, time=...) from a streaming DataFrame, or from files and run it with tg.run(...)"
        )
    return df


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)


def _check_session(spark: SparkSession, node: Stateful, sources: Iterable[Source]) -> None:
    """Refuses a session without the state store that steps need, and sources that Spark would read otherwise than meant."""
    if spark.conf.get(settings.PROVIDER, "") != settings.ROCKSDB:
        raise EnvironmentFault(
            f"step '{node.name}': a stateful step needs Spark's RocksDB state store; before the query starts, run\n"
            f'    spark.conf.set("{settings.PROVIDER}", "{settings.ROCKSDB}")'
        )
    renames = str(spark.conf.get(settings.FILE_MANAGER, "")).endswith(".FileSystemBasedCheckpointFileManager")
    replaces = str(spark.conf.get(settings.LOCAL_FILES, "")).endswith(".LocalFileSystem")
    if renames and not replaces and spark.conf.get(settings.ATTEMPTS_APART, "1") != "2":
        # What a killed attempt wrote would stay in place of what the batch writes when it is run again.
        raise EnvironmentFault(
            f"step '{node.name}': with {settings.FILE_MANAGER} of this session the state of a batch that was killed stays "
            "in place of that of the batch run again, and the next crash destroys the checkpoint; before the query starts, "
            f'run\n    spark.conf.set("{settings.ATTEMPTS_APART}", "2")\nand begin a new checkpoint, or start the session '
            f"with\n    {settings.LOCAL_FILES}=org.apache.hadoop.fs.LocalFileSystem"
        )
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    for source in sources:
        if source.schema.field(source.time).type != TIME and zone not in UTC:
            raise QueryError(
                f"stream '{source.name}': the times in '{source.time}' have no zone, and this session would read them as "
                f"times in {zone}; before the query is made, run\n    spark.conf.set('spark.sql.session.timeZone', 'UTC')"
            )
        df = _origin(source)
        if not df.isStreaming:
            raise QueryError(f"stream '{source.name}' is a batch DataFrame; make it with spark.readStream")
        if any("spark.watermarkDelayMs" in (field.metadata or {}) for field in df.schema):
            raise QueryError(
                f"stream '{source.name}' already has a watermark, and Spark allows one; remove withWatermark(...) and tell "
                "tidegate how late tuples may be: tg.stream(df, time=..., disorder='10 seconds')"
            )
