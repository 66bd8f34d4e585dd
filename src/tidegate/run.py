"""Running a query to its end, or until it is stopped: the wiring between a query and a runtime."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.errors import (
    EnvironmentFault,
    QueryError,
    UnsupportedError,
    choices,
)
from tidegate.late_tuples import LateFolder
from tidegate.progress import Progress, ProgressLine
from tidegate.query.advice import advised
from tidegate.query.event_time import Duration, parse_duration
from tidegate.query.names import unique_names
from tidegate.query.nodes import is_stateful, sources, walk
from tidegate.query.outputs import names_of, schemas_of
from tidegate.results import (
    PartWriter,
    RunResult,
    format_of,
    local_folder,
    require_empty,
    require_writable,
    result_folder,
    standard_output,
)
from tidegate.sources import BatchOrigin
from tidegate.sources.growing import bounded_but_endless, endless_stream, interrupted_folder
from tidegate.sources.in_memory import check_unread
from tidegate.sources.kafka import KAFKA_ON_SPARK, KafkaTopic
from tidegate.stream import Stream, cores, one_query

if TYPE_CHECKING:
    from tidegate.compile.lower_to_aggregates import Operators
    from tidegate.control.balancers.balance import Balancer
    from tidegate.control.controller import Controller
    from tidegate.control.rules import Rule, Rules
    from tidegate.elastic.options import Elastic
    from tidegate.runtime.local.job import LocalJob
    from tidegate.runtime.local.sinks import Sink
    from tidegate.runtime.spark.types import SparkSession

    ElasticOption = Elastic | Rules | Rule | Controller | str | Path | bool | None
    BalanceOption = Balancer | str | bool | None

RUNTIMES = ("spark", "local", "micro", "reference")
_ELSEWHERE = {
    "checkpoint": "keeps none and begins anew",
    "spark": "needs no session",
    "files_per_batch": "reads one file after the other",
    "bounded": "runs until its input ends",
    "cells": "has none",
    "hot_keys": "pins no key to one instance but where tuples are handled in order",
}
LOOK_SECONDS = 0.2
"""How often an elastic query in this process is looked at."""


@advised
def run(
    query: Stream | Mapping[str, Stream],
    *,
    on: str = "spark",
    to: str | Path | KafkaTopic | Callable[..., None] | None = None,
    format: str | None = None,  # noqa: A002 - the word that Spark, pandas and Arrow use
    checkpoint: str | Path | None = None,
    spark: SparkSession | str | None = None,
    files_per_batch: int | None = None,
    progress: Callable[[Progress], None] | bool = True,
    bounded: bool | None = None,
    instances: int | tuple[int, int] | None = None,
    elastic: ElasticOption = None,
    balance: BalanceOption = None,
    late_to: str | Path | None = None,
    cells: int | tuple[int, int] | None = None,
    show: int = 20,
    operators: Operators = "dedicated",
    hot_keys: bool | str | Sequence[str] = False,
) -> RunResult:
    """Run a query and put its results in a folder, on the screen, or, in this process, into a function or a topic.

    ``to`` is a folder for the results, ``format`` 'parquet' or 'jsonl' (default: by the folder's suffix, else parquet), or
    in this process ``"-"``, for lines of JSON on standard output. Without it, at most ``show`` rows are printed. ``on`` is
    'spark', 'local' (this process, on ``instances`` threads; see `start`), 'micro', the engine of one operator
    (docs/micro.md), or 'reference', the slow and obvious interpreter. On
    'local' ``to`` may also be a function that is called with each table, or a topic of Kafka (see `kafka`). On Spark each
    stateful step has ``cells``, tasks that share its keys (default: one where Spark runs in one process, else one for each
    core, up to 8; or the least and the most, such as (1, 8)), and ``instances`` is how many threads each cell runs to begin
    with (default: the cores there are); `set_instances`, `set_cells` and `move_shards` on the ``control`` folder in the
    checkpoint change both while the query runs.

    ``query`` may be several results of one query, by name, as in ``{"alerts": a, "counts": b}`` or what `Stream.route`
    gives: steps that they share run once, and each result has a folder of its name in ``to``; a function is called with a
    name and a table. ``result.read("alerts")`` reads one of them.

    On Spark, a stopped or killed run goes on where it was when the same call is made again: ``checkpoint`` (default:
    ``_checkpoint`` in the results' folder) remembers that, and each result is in the folder exactly once. On 'local' it does
    so where a ``checkpoint`` is named (see `start`). Files and
    tables are ``bounded``: when all is read, every window is emitted and the checkpoint is finished. With
    ``bounded=False``, the default on Spark for DataFrames and for files made with ``follow=True``, the run goes on until
    SIGINT, SIGTERM or `end_input` on the ``control`` folder in its checkpoint; all files are then taken as they appear.

    ``spark`` is a session, or a master URL such as 'local[4]' to start one; by default the running one is used, or a
    local one is started and stopped afterwards. ``files_per_batch`` is how many files make a batch, given files that
    were written in the order of their names; otherwise all of them make one. ``progress`` is called after every batch;
    True prints to standard error.

    With ``elastic`` the query follows its load, in process by its instances, on Spark by its executors: True, a controller
    or its name, rules or the path of a rules file, or an `Elastic` with a ledger and more (docs/elasticity.md). With
    ``balance``, as in `start`, shards move between instances, on Spark between the cells of each step.

    ``late_to`` is a folder for tuples that came too late, with all their columns and the watermark that each missed:
    parquet files ``<step>/<position of the feed>-*.parquet``.

    ``operators`` says what maps, filters and joins are made of: 'dedicated' ones, or Aggregates alone, 'multi' with any
    number of rows for a window or 'single' with at most one (docs/lowering.md). The results are the same.

    With ``hot_keys`` a key that has most of the tuples is spread over the cells of a step on Spark, in all steps or in those
    that are named (docs/elasticity.md); `explain` says how, and where there is nothing to split. The results are the same.
    """
    query = one_query("run", query)
    if not isinstance(progress, bool) and not callable(progress):
        raise QueryError(f"progress is True, False, or a function of each Progress; got {progress!r}")
    if not isinstance(show, int):
        raise QueryError(f"show is how many rows are shown; got {show!r}")
    if on not in RUNTIMES:
        raise UnsupportedError(f"there is no runtime {on!r}; choose one of {choices(RUNTIMES)}")
    if files_per_batch is not None and files_per_batch < 1:
        raise QueryError(f"files_per_batch is at least 1; got {files_per_batch}")
    if to == "-":
        to, format = standard_output(on, format, names_of(query.node)), None  # noqa: A001 - as above
    taker = None if to is None or isinstance(to, str | Path) else to
    if isinstance(taker, KafkaTopic) and on != "local":
        remedy = KAFKA_ON_SPARK if on == "spark" else "name a folder"
        raise UnsupportedError(f"to={taker}: results go to a topic on='local'; {remedy}")
    if taker is not None and not isinstance(taker, KafkaTopic) and (on != "local" or not callable(taker)):
        raise QueryError(f"to={to!r}: results go to a folder, the screen or, with on='local', a function or a topic")
    if (to is None or taker is not None) and format is not None:
        raise QueryError(f"format={format!r} is for results in a folder; name one with to=...")
    folder = local_folder(to, "to") if isinstance(to, str | Path) else None
    kind = format_of(folder, format) if folder is not None else None
    for name, value in {
        "checkpoint": checkpoint,
        "spark": spark,
        "files_per_batch": files_per_batch,
        "bounded": bounded,
        "cells": cells,
        "hot_keys": hot_keys or None,
    }.items():
        if on != "spark" and value is not None and (on, name) != ("local", "checkpoint"):
            where = "on='spark' and on='local'" if name == "checkpoint" else "on='spark'"
            raise QueryError(f"{name}={value!r} is for {where}; on='{on}' {_ELSEWHERE[name]}, so leave it out")
    if on in ("reference", "micro"):
        from tidegate.run_micro import run_on_micro
        from tidegate.run_reference import run_on_reference

        runner = "the reference" if on == "reference" else "the engine of one operator"
        if instances is not None or elastic or balance:
            given = f"elastic={elastic!r}" if elastic else f"balance={balance!r}"
            given = given if instances is None else f"instances={instances}"
            raise QueryError(f"{given} is for on='local' and on='spark'; {runner} runs a query alone, so leave it out")
        if late_to is not None:
            raise QueryError(
                f"late_to={late_to!r} is for on='local' and on='spark'; tidegate.testing.answer(query).late_tuples has "
                "those that the reference counts, so leave it out"
            )
        run_alone = run_on_micro if on == "micro" else run_on_reference
        return run_alone(query, folder, kind, show, operators)
    asked = _Asked(query, folder, taker, kind, instances, progress, show, elastic, balance, late_to, operators)
    if on == "local":
        return asked.on_local(checkpoint)
    return asked.on_spark(checkpoint, spark, files_per_batch, bounded, cells, hot_keys)


@advised
def start(
    query: Stream | Mapping[str, Stream],
    *,
    on: str = "local",
    to: str | Path | KafkaTopic | Callable[..., None] | None = None,
    format: str | None = None,  # noqa: A002 - as in `run`
    instances: int | tuple[int, int] = 2,
    segment_rows: int | None = None,
    linger_seconds: float = 0.001,
    waiting_rows: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    elastic: ElasticOption = None,
    balance: BalanceOption = None,
    late_to: str | Path | None = None,
    operators: Operators = "dedicated",
    checkpoint: str | Path | None = None,
    every: Duration = "10 seconds",
    page: int | None = None,
) -> LocalJob:
    """Start a query in this process and return at once; the job is waited for, reconfigured and stopped by its methods.

    The job is also a context: ``with tg.start(...) as job`` waits for the end of the run, and cancels it on an error. A job
    that is dropped, or whose results are left before the last one, is cancelled.

    ``instances`` is how many threads each subquery has to begin with; of two numbers the second is how many it may get.
    ``to`` is a folder, a topic (see `kafka`), a function that is called with each table of results, or nothing: then
    ``for table in job`` gives them. Results come in the order of event time, whatever the instances are and whenever they
    change. Of several results,
    by name as in `run`, each has a folder in ``to``, a function is called with a name and a table, and
    ``for name, table in job`` gives both. What an iterable
    gives in small pieces is gathered for ``linger_seconds`` at most, so that they share segments of at most
    ``segment_rows``. At most ``waiting_rows`` (default: 200,000) wait in front of a subquery; then its sources do, which is
    what controllers that go by congestion look at. With ``elastic``, as in `run`, instances follow the load, and shards
    move between them where their loads differ; with ``balance=True`` alone, shards move and the number of instances
    stays. ``balance`` may also name a balancer, or be False for none. ``job.scaling`` tells what was decided.
    ``late_to``, as in `run`, is a folder for late tuples, and ``operators`` says what maps, filters and joins are made of.

    With a ``checkpoint``, a folder, a snapshot of the run is taken ``every`` so often, while it goes on. A run that was
    killed goes on from the last one when the same call is made again, on any number of instances, and each result is in the
    folder ``to`` exactly once, and in a topic for consumers that read what is committed; one that was finished does nothing.
    It reads files, tables, lists and topics (docs/local.md).

    ``page`` is a port for a page about the job, 0 for a free one: its address is printed, and is ``job.page_url``. It shows
    rates, lag, instances, decisions and more, on this machine alone, until the job ends (docs/page.md).

    >>> import pyarrow as pa, tidegate as tg
    >>> rows = pa.table({"ts": pa.array([0, 1, 2_000_000], pa.timestamp("us")), "k": ["a", "b", "a"]})
    >>> counts = tg.stream(rows, time="ts").key_by("k").window("1 second").aggregate(n=tg.count())
    >>> job = tg.start(counts, instances=(1, 4))
    >>> sorted(row["n"] for table in job for row in table.to_pylist())
    [1, 1, 1]
    >>> job.wait()
    True
    """
    from tidegate.compile.compiler import compile_query
    from tidegate.compile.draw import draw_plan
    from tidegate.elastic.options import Elastic, most_of
    from tidegate.elastic.scaling import Scaling
    from tidegate.runtime.local.checkpoint import refuse_undurable
    from tidegate.runtime.local.durable_folder import DraftWriter, ToDurableFolders
    from tidegate.runtime.local.job import LocalJob
    from tidegate.runtime.local.observe import (
        BALANCER_HERE,
        PLANNER_HERE,
        RECOMMENDED_HERE,
        LocalActuator,
        LocalObserver,
    )
    from tidegate.runtime.local.settings import SEGMENT_ROWS, Settings
    from tidegate.runtime.local.sinks import ToFolders, ToFunction, ToIterator
    from tidegate.runtime.local.snapshots import Durable

    query = one_query("start", query)
    if on != "local":
        raise UnsupportedError(f"start runs a query in this process, on='local'; got {on!r}. Did you mean tg.run(...)?")
    if to == "-":
        to, format = standard_output(on, format, names_of(query.node)), None  # noqa: A001 - as in `run`
    plan = compile_query(query.node, "local", all_columns=late_to is not None, operators=operators)
    check_unread((source.name, source.origin) for source in plan.sources)
    if format is not None and not isinstance(to, str | Path):
        raise QueryError(f"format={format!r} is for results in a folder; name one with to=...")
    every_seconds = parse_duration(every, "every") / 1e6
    if checkpoint is not None:
        refuse_undurable(plan, {"late_to": late_to}, to, local_folder(checkpoint, "checkpoint"))
    late = None if late_to is None else _late_folder(late_to, to)
    output: Sink
    match to:
        case None:
            output = ToIterator()
        case str() | Path():
            folder = local_folder(to, "to")
            folder, kind = require_writable(folder if checkpoint else require_empty(folder)), format_of(folder, format)
            parts = [
                (require_writable(result_folder(folder, name)), kind, schema)
                for name, schema in schemas_of(query.node).items()
            ]
            output = ToFolders(tuple(PartWriter(*each) for each in parts))
            if checkpoint is not None:
                output = ToDurableFolders(folder, tuple(DraftWriter(*each) for each in parts))
        case KafkaTopic():
            schemas = schemas_of(query.node)
            output = _to_topics(to, schemas, None if checkpoint is None else local_folder(checkpoint, "checkpoint"))
        case _:
            output = ToFunction(to, plan.names)
    first, most = _numbers(instances)
    wanted = Elastic.of(elastic, balance, page)
    limit = most if isinstance(instances, tuple) else max(cores(), first)
    rules = None if wanted is None else wanted.resolved(limit, RECOMMENDED_HERE, BALANCER_HERE)
    planner = None if wanted is None else wanted.planned_by(PLANNER_HERE)
    most = max(most, most_of(rules)) if rules else most
    rows = SEGMENT_ROWS if segment_rows is None else segment_rows
    settings = Settings(
        first, most, segment_rows=rows, linger_seconds=linger_seconds, waiting_rows=waiting_rows, late_to=late
    )
    durable = None
    if checkpoint is not None and isinstance(output, ToDurableFolders):
        durable = Durable.open(plan, local_folder(checkpoint, "checkpoint"), output, every_seconds)
    try:
        job = LocalJob(plan, output, settings, progress or (lambda _: None), durable)
    except BaseException:
        if durable is not None:
            durable.checkpoint.close()
        raise
    if wanted is not None and rules is not None:
        rules.check(job.subqueries)
        job.scaling = Scaling(
            LocalObserver(job.running, shards=not wanted.watches_only),
            LocalActuator(job.running),
            rules,
            wanted.period_seconds or LOOK_SECONDS,
            wanted,
            query.node.name,
            patience_seconds=5.0,
            planner=planner,
            graph=draw_plan(plan),
        )
    try:
        job.start()
        if job.scaling is not None:
            job.scaling.start()
    except BaseException:
        job.cancel()
        raise
    return job


def _to_topics(topic: KafkaTopic, schemas: Mapping[str | None, pa.Schema], checkpoint: Path | None) -> Sink:
    """A sink of topics; with a checkpoint, parts of results lie there until they are committed."""
    from tidegate.runtime.local.checkpoint import RESULTS
    from tidegate.runtime.local.durable_folder import DraftWriter
    from tidegate.runtime.local.kafka_sink import ToDurableKafka, ToKafka, topics_of

    topics = topics_of(topic, schemas)
    if checkpoint is None:
        return ToKafka.open(topics)
    folder = checkpoint / RESULTS
    parts = [(result_folder(folder, name), schema) for name, schema in schemas.items()]
    writers = tuple(DraftWriter(require_writable(part), "parquet", schema) for part, schema in parts)
    return ToDurableKafka(folder, writers, topics=topics)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of a run on either runtime, after it was checked."""

    query: Stream
    folder: Path | None
    taker: KafkaTopic | Callable[..., None] | None
    format: str | None
    instances: int | tuple[int, int] | None
    progress: Callable[[Progress], None] | bool
    show: int
    elastic: ElasticOption
    balance: BalanceOption
    late_to: str | Path | None
    operators: Operators

    def on_spark(
        self,
        checkpoint: str | Path | None,
        spark: SparkSession | str | None,
        files_per_batch: int | None,
        bounded: bool | None,
        cells: int | tuple[int, int] | None,
        hot_keys: bool | str | Sequence[str],
    ) -> RunResult:
        from tidegate.compile.split_hot_keys import checked_hot_keys
        from tidegate.operators.cells import checked_cells, checked_number

        number = checked_number(self.instances if self.instances is not None else cores())
        late = None if self.late_to is None else _late_folder(self.late_to, self.folder, resumable=True).path
        try:
            from tidegate.runtime.spark.job import SparkJob
            from tidegate.runtime.spark.sinks import SparkFolder, SparkScreen, SparkSink
        except ModuleNotFoundError as error:
            raise EnvironmentFault(
                f"the package '{error.name}' is missing; install Spark's part of tidegate: pip install 'tidegate[spark]'"
            ) from error

        from tidegate.autoscale import check_autoscale, prepare_autoscale, prepare_balance
        from tidegate.elastic.options import Elastic

        node, folder = self.query.node, self.folder
        endless = endless_stream(node)
        if bounded and endless is not None:
            raise bounded_but_endless(endless)
        if bounded is None:
            bounded = all(isinstance(source.origin, BatchOrigin | None) for source in sources(node))
        names = names_of(node)
        times: dict[str | None, str] = {None: node.time}
        if names:
            times = {name: result.time for name, result in zip(names, node.inputs, strict=True)}
        sink: SparkSink = SparkScreen(times, self.show, live=not bounded)
        if folder is not None and self.format is not None:
            sink = SparkFolder(folder, self.format, names)
        where = local_folder(checkpoint, "checkpoint") if checkpoint is not None else folder and folder / "_checkpoint"
        with self._reporting() as (report, say):
            job = SparkJob(
                query=unique_names(node),
                sink=sink,
                checkpoint=where,
                spark=spark,
                files_per_batch=files_per_batch,
                bounded=bounded,
                instances=number,
                cells=None if cells is None else checked_cells(cells),
                late_to=late,
                operators=self.operators,
                hot_keys=checked_hot_keys(hot_keys),
                report=report,
                say=say,
            )
            elastic = Elastic.of(self.elastic or None, self.balance)
            if elastic is not None and elastic.keeps_size:
                job = replace(job, beside=lambda running, control: prepare_balance(running, elastic, control).start())
            elif elastic is not None:
                stateful = any(map(is_stateful, walk(node)))
                job = replace(
                    job,
                    beside=lambda running, control: prepare_autoscale(
                        running, elastic, control=control if stateful else None
                    ).start(),
                    admit=lambda session, cells: check_autoscale(session, elastic, cells=cells, stateful=stateful),
                )
            return job.run()

    def on_local(self, checkpoint: str | Path | None) -> RunResult:
        from tidegate.runtime.local.sinks import ToScreen

        names = names_of(self.query.node)
        screen, on_screen = ToScreen(self.show, names), self.folder is None and self.taker is None
        endless = endless_stream(self.query.node)
        if endless is not None and self.folder is not None and checkpoint is None:
            raise interrupted_folder(endless)

        def shown(*given: Any) -> None:
            *name, table = given
            screen.write(table, names.index(name[0]) if name else 0)

        began = time.monotonic()
        # The job is a context, so that whatever interrupts the wait ends the run.
        with (
            self._reporting() as (report, _),
            start(
                self.query,
                to=self.folder or self.taker or shown,
                format=self.format,
                instances=self.instances or (1 if self.elastic else 2),
                progress=report,
                elastic=self.elastic,
                balance=self.balance,
                late_to=self.late_to,
                operators=self.operators,
                checkpoint=checkpoint,
            ) as job,
        ):
            try:
                job.wait()
            except KeyboardInterrupt:
                screen.close(complete=endless is not None and on_screen)
                raise
        if on_screen:
            screen.close(complete=True)
        return RunResult(
            to=self.folder,
            format=self.format,
            schema=self.query.schema,
            rows=job.rows,
            results=job.results,
            late=job.late,
            batches=job.segments,
            finished=True,
            seconds=time.monotonic() - began,
            notes=job.notes,
            malformed=job.malformed,
            ahead=job.ahead,
            outputs=names,
            unfilled=job.unfilled,
        )

    @contextmanager
    def _reporting(self) -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
        """What takes progress, and what takes remarks, while the run lasts."""
        if self.progress is not True:
            yield (self.progress if callable(self.progress) else lambda _: None), lambda _: None
            return
        line = ProgressLine()
        try:
            yield line, line.say
        finally:
            line.close()


def _late_folder(late_to: str | Path, to: object, *, resumable: bool = False) -> LateFolder:
    """A folder for late tuples, apart from the one for results; empty unless the run may go on from an earlier one."""
    if not isinstance(late_to, str | Path):
        raise QueryError(f"late_to is a folder; got {late_to!r}")
    folder = local_folder(late_to, "late_to")
    if isinstance(to, str | Path):
        late, results = folder.resolve(), local_folder(to, "to").resolve()
        if late.is_relative_to(results) or results.is_relative_to(late):
            raise QueryError(
                f"late_to={str(late_to)!r} and to={str(to)!r}: readers of the outer folder would take late tuples for "
                "results, or results for late tuples; choose a folder beside the results"
            )
    if not resumable:
        require_empty(folder, "late tuples")
    return LateFolder(require_writable(folder, "late tuples"))


def _numbers(instances: int | tuple[int, int]) -> tuple[int, int]:
    """How many instances each subquery has to begin with, and at most."""
    match instances:
        case bool():
            pass
        case int():
            return instances, max(instances, 32)
        case (int() as first, int() as most):
            return first, most
    raise QueryError(f"instances is a number, or two: how many to begin with and at most; got {instances!r}")
