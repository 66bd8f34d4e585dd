"""Running a query to its end, or until it is stopped: the wiring between a query and a runtime."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.carry_over import stopped_run
from tidegate.errors import (
    EnvironmentFault,
    QueryError,
    UnsupportedError,
    choices,
)
from tidegate.progress import Progress, ProgressLine
from tidegate.query.advice import advised
from tidegate.query.names import unique_names
from tidegate.query.nodes import is_stateful, sources, walk
from tidegate.query.outputs import names_of
from tidegate.results import (
    RunResult,
    format_of,
    local_folder,
)
from tidegate.sources import BatchOrigin
from tidegate.sources.growing import bounded_but_endless, endless_stream, interrupted_folder
from tidegate.sources.kafka import KAFKA_ON_SPARK, KafkaTopic
from tidegate.start import late_folder, start
from tidegate.stream import Stream, cores, one_query
from tidegate.tables import standard_output

if TYPE_CHECKING:
    from tidegate.compile.lower_to_aggregates import Operators
    from tidegate.control.balancers.balance import Balancer
    from tidegate.control.controller import Controller
    from tidegate.control.rules import Rule, Rules
    from tidegate.elastic.options import Elastic
    from tidegate.runtime.spark.job import StateFromProcess
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
    continue_from: str | Path | None = None,
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

    With ``continue_from``, the checkpoint of a run of this query on the other runtime that was stopped or killed, a new run
    goes on where that was; its results go to a new folder, and ``continue_from`` is only read (docs/spark.md).

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
    own = None if checkpoint is None else local_folder(checkpoint, "checkpoint")
    stopped = None if continue_from is None else stopped_run(continue_from, own, on)
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
    asked = _Asked(query, folder, taker, kind, instances, progress, show, elastic, balance, late_to, operators, stopped)
    if on == "local":
        return asked.on_local(checkpoint)
    return asked.on_spark(checkpoint, spark, files_per_batch, bounded, cells, hot_keys)


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
    stopped: Path | None

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
        late = None if self.late_to is None else late_folder(self.late_to, self.folder, resumable=True).path
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
                continues=self._from_process(),
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

    def _from_process(self) -> StateFromProcess | None:
        """The start of a run on Spark that goes on from one in process."""
        from tidegate.carry_over.to_spark import bring_to_spark
        from tidegate.runtime.spark.job import StateFromProcess

        if self.stopped is None:
            return None
        return StateFromProcess(self.stopped, partial(bring_to_spark, self.stopped, self.query.node, self.operators))

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
                continue_from=self.stopped,
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
