"""Starting a query in this process: what is asked is checked, and a sink chosen, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.carry_over import stopped_run
from tidegate.errors import (
    EnvironmentFault,
    QueryError,
    UnsupportedError,
)
from tidegate.late_tuples import LateFolder
from tidegate.progress import Progress
from tidegate.query.advice import advised
from tidegate.query.event_time import Duration, parse_duration
from tidegate.query.outputs import names_of, schemas_of
from tidegate.results import (
    PartWriter,
    format_of,
    local_folder,
    require_empty,
    require_writable,
    result_folder,
)
from tidegate.sources.in_memory import check_unread
from tidegate.sources.kafka import KafkaTopic
from tidegate.stream import Stream, cores, one_query
from tidegate.tables import standard_output

if TYPE_CHECKING:
    from tidegate.compile.lower_to_aggregates import Operators
    from tidegate.compile.plan import Plan
    from tidegate.control.balancers.balance import Balancer
    from tidegate.control.controller import Controller
    from tidegate.control.rules import Rule, Rules
    from tidegate.elastic.options import Elastic
    from tidegate.query.nodes import Node
    from tidegate.runtime.local.checkpoint import StateFromSpark
    from tidegate.runtime.local.job import LocalJob
    from tidegate.runtime.local.sinks import Sink

    ElasticOption = Elastic | Rules | Rule | Controller | str | Path | bool | None
    BalanceOption = Balancer | str | bool | None

LOOK_SECONDS = 0.2
"""How often an elastic query in this process is looked at."""


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
    continue_from: str | Path | None = None,
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
    It reads files, tables, lists and topics (docs/local.md). With ``continue_from``, the checkpoint of a stopped run of this
    query on Spark, it goes on where that was, with a new checkpoint and a new folder.

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
    own = None if checkpoint is None else local_folder(checkpoint, "checkpoint")
    stopped = None if continue_from is None else stopped_run(continue_from, own, on)
    if checkpoint is not None:
        refuse_undurable(plan, {"late_to": late_to}, to, local_folder(checkpoint, "checkpoint"))
    late = None if late_to is None else late_folder(late_to, to)
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
    first, most = _instances(instances)
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
        continues = None if stopped is None else _from_spark(stopped, query.node, operators, plan)
        durable = Durable.open(plan, local_folder(checkpoint, "checkpoint"), output, every_seconds, continues)
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


def _from_spark(stopped: Path, query: Node, operators: Operators, plan: Plan) -> StateFromSpark:
    """The start of a run that goes on from one on Spark."""
    from tidegate.runtime.local.checkpoint import StateFromSpark

    try:
        from tidegate.carry_over.to_local import bring_to_local
    except ModuleNotFoundError as error:
        raise EnvironmentFault(
            f"continue_from: the package '{error.name}' is missing, which reads what a run on Spark has left; install "
            "Spark's part of tidegate: pip install 'tidegate[spark]'"
        ) from error
    return StateFromSpark(stopped, partial(bring_to_local, stopped, query, operators, plan))


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


def late_folder(late_to: str | Path, to: object, *, resumable: bool = False) -> LateFolder:
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


def _instances(instances: int | tuple[int, int]) -> tuple[int, int]:
    """How many instances each subquery has to begin with, and at most."""
    match instances:
        case bool():
            pass
        case int():
            return instances, max(instances, 32)
        case (int() as first, int() as most):
            return first, most
    raise QueryError(f"instances is a number, or two: how many to begin with and at most; got {instances!r}")
