"""From a plan to a streaming DataFrame: native steps, then the stages that run in Python workers (`operator`).

To Spark the whole query is stateless: it may be followed by anything native. The control stream is part of every query
from its first batch, and its branch is never pruned, so every step runs in every batch, whatever its sources bring.
"""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import takewhile
from pathlib import Path

import narwhals as nw
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.compile.plan import Place, Plan
from tidegate.errors import CheckpointError, InternalError, QueryError, UnsupportedError, UserError
from tidegate.operators.fingerprint import check_fingerprint
from tidegate.query.nodes import (
    Filter,
    Select,
    Source,
    Stateless,
    WithColumns,
    detached,
)
from tidegate.query.schema import TIME, conform
from tidegate.query.stateless import apply_stateless
from tidegate.runtime.spark import codec
from tidegate.runtime.spark.cell_batch import StateRoot
from tidegate.runtime.spark.codec import CLOCK, DELTA_ROWS
from tidegate.runtime.spark.control import Steering, control_rows
from tidegate.runtime.spark.inputs import CONTROL, INPUT, TEXT, column_name
from tidegate.runtime.spark.session import check_workers_python
from tidegate.runtime.spark.sources import FileNames
from tidegate.runtime.spark.stages import (
    BeforeExchange,
    ExchangedStage,
    FeedBranch,
    InputBranch,
    OneStage,
    PulseBranch,
    RunOptions,
    fingerprints,
    stages_of,
    steered_steps,
)
from tidegate.runtime.spark.types import spark_schema
from tidegate.runtime.spark.worker_process import send_at_once
from tidegate.sources.kafka import KAFKA_ON_SPARK, TopicOrigin
from tidegate.state.chunks import Directory
from tidegate.state.storage import open_storage

RETAIN = "spark.sql.streaming.minBatchesToRetain"
WATERMARK = "spark.watermarkDelayMs"
"""What Spark notes on the column that a DataFrame has a watermark on."""
UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")


def to_dataframe(plan: Plan, options: RunOptions | None) -> DataFrame:
    """Builds the streaming DataFrame of a plan whose sources are streaming DataFrames, or files by name.

    A plan without state over DataFrames is native and needs no options.
    """
    if not needs_workers(plan):
        return _native(plan)
    assert options is not None
    spark = next(frames_of(plan)).sparkSession
    _check_session(spark, plan.sources)
    # One DataFrame for all that read it: then Spark has one source of it, and one metric.
    control = _tagged(control_rows(spark, options.control, options.root.build), CONTROL, F.col("text"), ())
    if "://" not in options.control:
        Steering(Path(options.control.removeprefix("file:"))).describe(steered_steps(plan))
    results = reduce(DataFrame.unionByName, [_stage(each, control) for each in stages_of(plan, options)])
    return codec.decoded(results, options.root.build)


def _stage(stage: OneStage | ExchangedStage, control: DataFrame) -> DataFrame:
    """The rows that a stage gives."""
    if isinstance(stage, OneStage):
        rows = [_input(branch) for branch in stage.inputs]
        if stage.function.steps:
            rows.insert(stage.before_control, control)
        together = reduce(_union, rows)
        if stage.function.steps or stage.function.inputs.may_reject:
            together = together.coalesce(1)
        few = all(_brings_names(branch) for branch in stage.inputs)
        return _with_clock(together, few).mapInArrow(stage.function, spark_schema(stage.columns))
    rows = [_before_exchange(branch, control) for branch in stage.before]
    cells = reduce(DataFrame.unionByName, rows).repartition(stage.cells, F.col("cell"))
    return cells.mapInArrow(stage.function, spark_schema(stage.columns))


def _before_exchange(branch: BeforeExchange, control: DataFrame) -> DataFrame:
    """The rows that come to an exchange from one side."""
    match branch:
        case ExchangedStage():
            return _stage(branch, control).withColumn(CLOCK, _no_clock())
        case FeedBranch():
            rows = _with_clock(_input(branch.input), _brings_names(branch.input))
            deltas = rows.mapInArrow(branch.function, spark_schema(DELTA_ROWS))
            return deltas.withColumn(CLOCK, _no_clock())
        case PulseBranch():
            pulse = (
                control.coalesce(1).withColumn(CLOCK, _no_clock()).mapInArrow(branch.function, spark_schema(DELTA_ROWS))
            )
            return _with_clock(pulse, few=True)


def _brings_names(branch: InputBranch) -> bool:
    """Whether a row of an input is a file."""
    return isinstance(branch.source.origin, FileNames)


def _input(branch: InputBranch) -> DataFrame:
    """The rows of an input, as workers get them."""
    df = _frame(branch.source)
    if _brings_names(branch):
        return _tagged(df, branch.number, F.col("path"), ())
    df = _columns_of(branch.source)
    return _tagged(df, branch.number, F.lit(None).cast("string"), branch.columns)


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Where a user says that a query has its checkpoint, its state and its control stream; None for what is not said."""

    checkpoint: str | None = None
    state: str | None = None
    control: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def uri(self, spark: SparkSession) -> str:
        """The state folder."""
        if self.state is not None:
            return self.state
        root = self.checkpoint or spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        if root is None:
            raise QueryError(
                "a query with state keeps it in files; name the checkpoint that the query will have, "
                "to_spark(checkpoint='...'), or a folder that all workers reach, to_spark(state='...')"
            )
        return f"{root.rstrip('/')}/tidegate"


def build_dataframe(plan: Plan, place: StatePlace, instances: int, late_to: str | None) -> DataFrame:
    """The streaming DataFrame of a plan for a query of the user's own; one with the state of another query is refused."""
    if not needs_workers(plan):
        return to_dataframe(plan, None)
    spark = next(frames_of(plan)).sparkSession
    _warn_of_watermarks(plan.sources)
    context = SparkContext._active_spark_context
    if context is not None and str(context.master).startswith("local"):
        check_workers_python(context.pythonExec)
    root = state_root(place.uri(spark), place.options, spark)
    control = place.control or f"{root.storage.uri}/control"
    if root.storage.is_local or place.control is not None:
        Path(control.removeprefix("file:")).mkdir(parents=True, exist_ok=True)
    if place.checkpoint is not None:
        check_stored(root, place.checkpoint, plan)
    return to_dataframe(plan, RunOptions(root, control, instances, late_to))


def _warn_of_watermarks(sources: Iterable[Source]) -> None:
    """Says what Spark will refuse if the results get a watermark as well."""
    for source in sources:
        if any(WATERMARK in field.metadata for field in _frame(source).schema):
            warnings.warn(
                f"stream '{source.name}': its DataFrame has a watermark. tidegate does not use it (disorder= says how far "
                "out of order tuples come), and behind to_spark() Spark would refuse another ('Redefining watermark is "
                "disallowed'); remove withWatermark before tg.stream(...)",
                stacklevel=4,
            )


def check_stored(root: StateRoot, checkpoint: str, plan: Plan) -> None:
    """Refuses a checkpoint whose state, in the folder given, is that of another query or is gone."""
    try:
        metadata = open_storage(checkpoint, dict(root.options)).get("metadata")
    except UserError:
        return  # a scheme that Hadoop knows and Python does not
    if metadata is None:
        return
    query = json.loads(bytes(metadata))["id"]
    wanted = fingerprints(plan)
    steps = [subquery.number for subquery in plan.subqueries if subquery.operator is not None]
    found = sorted(name for name in root.storage.folders(query) if name.startswith("step-"))
    if not found:
        return
    if len(found) != len(steps):
        raise CheckpointError(
            f"{root.uri} was written by another query and cannot serve this one: it holds the state of {len(found)} "
            f"stateful steps, and the query has {len(steps)}. Start from a new checkpoint, or restore the query"
        )
    for number, fingerprint_wanted in zip(steps, wanted, strict=True):
        newest = root.storage.names(f"{query}/step-{number}/cell-0")[-1:]
        for name in newest:
            where = f"{query}/step-{number}/cell-0/{name}"
            data = root.storage.get(where)
            if data is not None:
                stored = Directory.decode(bytes(data), f"{root.uri}/{where}")
                check_fingerprint(stored.fingerprint, fingerprint_wanted, root.uri)


def state_root(uri: str, options: Mapping[str, str], spark: SparkSession) -> StateRoot:
    """Where a new build of a query keeps its state; leaves there what workers must find."""
    retain = int(spark.conf.get(RETAIN, "100") or 100)
    root = StateRoot(uri, tuple(sorted(options.items())), uuid.uuid4().hex[:12], retain)
    root.storage.put(root.probe, b"")
    return root


def frames_of(plan: Plan) -> Iterator[DataFrame]:
    """The streaming DataFrames behind the sources of a plan."""
    return map(_frame, plan.sources)


def needs_workers(plan: Plan) -> bool:
    """Whether a plan has state, several results, or reads files: then its tuples pass stages of ours."""
    return (
        bool(plan.names)
        or any(subquery.operator is not None for subquery in plan.subqueries)
        or any(not isinstance(source.origin, DataFrame) for source in plan.sources)
    )


def _tagged(df: DataFrame, number: int, text: Column, columns: Iterable[str]) -> DataFrame:
    """The rows of an input, with its number, a text, and columns under names of their own."""
    own = [F.col(name).alias(column_name(number, name)) for name in columns]
    return df.select(F.lit(number).alias(INPUT), text.alias(TEXT), *own)


def _with_clock(df: DataFrame, few: bool) -> DataFrame:
    """Rows with the batch's timestamp.

    It is a constant of the batch, so Spark compiles what it is part of anew for every batch, which may take longer than to
    compute it. Where there are ``few`` rows it is in a function of arrays that Spark interprets.
    """
    clock = F.current_timestamp()
    if few:
        one = F.array(F.lit(0))
        clock = F.zip_with(one, one, lambda _, __: F.current_timestamp())[0]
    return df.withColumn(CLOCK, clock)


def _no_clock() -> Column:
    return F.lit(None).cast("timestamp")


def _union(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.unionByName(right, allowMissingColumns=True)


def _native(plan: Plan) -> DataFrame:
    """A plan without state: its branches united, each native as far as Spark gives the same values."""
    branches = []
    for feed in (feed for subquery in plan.subqueries for feed in subquery.feeds):
        assert isinstance(feed.origin, Source)
        df = _columns_of(feed.origin)
        native = tuple(takewhile(lambda step: step.place is Place.NATIVE, feed.steps))
        for step in native:
            df = _stateless(step.node, df)
        if rest := [detached(step.node) for step in feed.steps[len(native) :]]:
            df = df.mapInArrow(_on_batches(rest), spark_schema(rest[-1].schema))
        branches.append(df)
    return reduce(DataFrame.unionByName, branches)


def _stateless(node: Stateless, df: DataFrame) -> DataFrame:
    match node:
        case WithColumns():
            after = nw.from_native(df).with_columns(*node.exprs).to_native()
        case Select():
            after = nw.from_native(df).select(*node.exprs).to_native()
        case Filter():
            return nw.from_native(df).filter(node.predicate).to_native()
        case _:
            raise InternalError(f"no DataFrame for {type(node).__name__}")
    wanted = spark_schema(node.schema)
    if [field.dataType for field in after.schema] == [field.dataType for field in wanted]:
        return after
    return after.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in wanted))


def _on_batches(nodes: Sequence[Stateless]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Steps on Arrow, where no stage of ours is."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        send_at_once()
        for batch in batches:
            table = conform(pa.Table.from_batches([batch]), nodes[0].input.schema)
            for node in nodes:
                table = apply_stateless(node, table)
            yield from conform(table, nodes[-1].schema).to_batches()

    return run


def _frame(source: Source) -> DataFrame:
    """The streaming DataFrame of a source: its rows, or the names of its files."""
    if isinstance(source.origin, FileNames):
        return source.origin.names
    if isinstance(source.origin, TopicOrigin):
        raise UnsupportedError(f"stream '{source.name}' reads {source.origin.topic} in process; {KAFKA_ON_SPARK}")
    if not isinstance(source.origin, DataFrame):
        raise UnsupportedError(
            f"stream '{source.name}' has no DataFrame behind it, so it cannot run on Spark; make it with "
            "tg.stream(df, time=...) from a streaming DataFrame, or from files and run it with tg.run(...)"
        )
    return source.origin


def _columns_of(source: Source) -> DataFrame:
    """The rows of a source, with their time of arrival where that is their event time: the batch's timestamp."""
    df = _frame(source).select(*source.read_schema.names)
    return df.withColumn(source.time, F.current_timestamp()) if source.stamped else df


def _check_session(spark: SparkSession, sources: Iterable[Source]) -> None:
    """Refuses sources that Spark would read otherwise than meant."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    for source in sources:
        df = _frame(source)
        if source.origin is df and source.schema.field(source.time).type != TIME and zone not in UTC:
            raise QueryError(
                f"stream '{source.name}': the times in '{source.time}' have no zone, and this session would read them as "
                f"times in {zone}; before the query is made, run\n    spark.conf.set('spark.sql.session.timeZone', 'UTC')"
            )
        if not df.isStreaming:
            raise QueryError(f"stream '{source.name}' is a batch DataFrame; make it with spark.readStream")
