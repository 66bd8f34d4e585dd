"""A run of a query on Spark: from the first file to the last window, through stops and restarts."""

from __future__ import annotations

import tempfile
import time
import uuid
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Plan
from tidegate.errors import SetAsideWarning, UnsupportedError
from tidegate.java import require_java
from tidegate.progress import Progress
from tidegate.query.nodes import Node, Source, sources
from tidegate.runtime.spark.checkpoint import STATELESS, Checkpoint, Head
from tidegate.runtime.spark.control import unknown_files
from tidegate.runtime.spark.dataframe import to_dataframe
from tidegate.runtime.spark.failure import full_disks_named, translated
from tidegate.runtime.spark.files_source import Pace, newest_time, read_stream, stage, stage_new
from tidegate.runtime.spark.from_future import notice
from tidegate.runtime.spark.session import Session, ground_of, needs_java, open_session, session_of_frames
from tidegate.runtime.spark.sinks import Sink
from tidegate.runtime.spark.stages import step_fingerprint
from tidegate.runtime.spark.tally import RESULTS, Tally
from tidegate.runtime.spark.watch import Watch, stop, stop_signals
from tidegate.state.cache import remove_caches


@dataclass(frozen=True, slots=True)
class Job:
    """What to run and how; ``report`` gets the progress of every batch, ``say`` remarks for people.

    ``beside`` is entered with the running query and its control folder, and left when that has ended. ``admit`` is called
    before, with the Spark session or the master URL of the one to come, and raises what would be refused then.
    """

    query: Node
    sink: Sink
    checkpoint: Path | None
    spark: SparkSession | str | None
    files_per_batch: int | None
    bounded: bool
    instances: int
    report: Callable[[Progress], None]
    say: Callable[[str], None]
    beside: Callable[[StreamingQuery, Path], AbstractContextManager[object]] = lambda *_: nullcontext()
    admit: Callable[[object], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did."""

    rows: int
    results: int
    late: int
    batches: int
    finished: bool
    notes: tuple[str, ...]
    ahead: int = 0


def execute(job: Job) -> Outcome:
    """Run a query on Spark, from where its checkpoint stands.

    A bounded run ends when every window is handed out, an unbounded one when a signal or the control stream ends it.
    What can be refused is refused before Spark is started. A bounded run that is asked to stop raises
    `KeyboardInterrupt` when it has stopped.
    """
    plan = compile_query(job.query, "spark")
    ground = ground_of(job.query, job.spark)
    if not isinstance(ground, SparkSession):
        job.admit(ground)
    if needs_java(job.query, job.spark):
        require_java()
    with ExitStack() as stack:
        checkpoint = Checkpoint(job.checkpoint or _temporary(stack))
        disks = (checkpoint.folder, *job.sink.folders, Path(tempfile.gettempdir()))
        stack.enter_context(full_disks_named(disks))
        checkpoint.check_path()
        held = stack.enter_context(checkpoint.locked())
        head = _opened(job, plan, checkpoint)
        paces = _stage(job, checkpoint)
        session = stack.enter_context(open_session(job.query, job.spark, head.cells if head else None, (held,)))
        job.admit(session.spark)
        mark = _fingerprint(plan, session.cells)
        if head is None:
            checkpoint.write(Head(mark, session.cells, str(job.sink), sources=len(sources(job.query))))
        else:
            checkpoint.accept(head, mark, str(job.sink), len(sources(job.query)))
        with full_disks_named(disks, session.folder.log if session.folder is not None else None):
            return _run(job, plan, checkpoint, session, paces)


def _temporary(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-run-", ignore_cleanup_errors=True)))


def _opened(job: Job, plan: Plan, checkpoint: Checkpoint) -> Head | None:
    """What the checkpoint says, if the run may go on from it; None if the run begins."""
    head = checkpoint.read()
    if head is not None and not _has_begun(head, job.sink, checkpoint):
        job.sink.clean()
        checkpoint.forget()
        head = None
    # Over DataFrames the number of cells is theirs, and known when their session is opened.
    if head is not None and session_of_frames(job.query) is None:
        checkpoint.accept(head, _fingerprint(plan, head.cells), str(job.sink), len(sources(job.query)))
    job.sink.check(checkpoint, resumed=head is not None)
    return head


def _has_begun(head: Head, sink: Sink, checkpoint: Checkpoint) -> bool:
    """Whether there is something to go on from, or to protect.

    A run that failed in its first batch has left nothing behind, and its query may have been mended since.
    """
    return head.finished or head.sink != str(sink) or checkpoint.has_commits() or not sink.is_empty()


def _fingerprint(plan: Plan, cells: int) -> str:
    marks = [step_fingerprint(sub.operator, cells) for sub in plan.subqueries if sub.operator is not None]
    return " | ".join(marks) or STATELESS


def _stage(job: Job, checkpoint: Checkpoint) -> dict[int, Pace]:
    """Put files and tables where Spark will read them; gives the pace of each source by its number."""
    return {
        number: stage(source, checkpoint.inputs(number), job.files_per_batch)
        for number, source in enumerate(sources(job.query))
        if not isinstance(source.origin, DataFrame)
    }


def _run(job: Job, plan: Plan, checkpoint: Checkpoint, session: Session, paces: dict[int, Pace]) -> Outcome:
    notes: list[str] = []

    def tell(*remarks: str) -> None:
        notes.extend(remarks)
        for remark in remarks:
            job.say(remark)

    controls: set[Path] = set()

    def keep_house() -> None:
        """What a run without end does now and then: take files that appeared, and keep the log short."""
        session.trim_log()
        for number, source in enumerate(sources(job.query)):
            stage_new(source, checkpoint.inputs(number))
        tell(*unknown_files(checkpoint.control, controls))

    tell(*(pace.why for pace in paces.values() if pace.why is not None))
    plan = _on_streams(job, plan, checkpoint, session.spark, paces)
    run = uuid.uuid4().hex
    df = _dataframe(plan, checkpoint, job.instances, run).observe(RESULTS, F.count(F.lit(1)).alias("rows"))
    stateful = any(subquery.operator is not None for subquery in plan.subqueries)
    tally = Tally(checkpoint.control)
    told: set[str] = set()

    def report(progress: Progress) -> None:
        for source in plan.sources:
            if source.name in tally.ahead and source.name not in told:
                told.add(source.name)
                notes.append(notice(source, tally.ahead[source.name]))
                warnings.warn(notes[-1], SetAsideWarning, stacklevel=2)
        job.report(progress)

    with stop_signals() as stop_requested, ExitStack() as beside:
        running = job.sink.start(df, checkpoint.spark)
        watch = Watch(running, tally, report, stop_requested)
        try:
            beside.enter_context(job.beside(running, checkpoint.control))
            if job.bounded:
                finished = watch.until_all_is_read() and (not stateful or watch.end(checkpoint.control))
            else:
                finished = watch.until_stopped(keep_house)
            watch.stop()
        except StreamingQueryException as error:
            ours = translated(str(error))
            if ours is not None:
                raise ours from error
            raise
        finally:
            try:
                stop(running)
            finally:
                remove_caches(run)
    if tally.damaged:
        tell(
            f"{tally.damaged} files of the local chunk cache were not what was put there; the chunks were read from the "
            "state store instead, and results are right; if no one altered the files, look after that disk"
        )
    tell(*unknown_files(checkpoint.control, controls))
    if finished:
        checkpoint.finish()
    job.sink.close(tally.results)
    if job.bounded and not finished:
        raise KeyboardInterrupt("the same command goes on from here" if job.checkpoint is not None else "")
    ahead = sum(tally.ahead.values())
    return Outcome(tally.rows, tally.results, tally.late, tally.batches, finished, tuple(notes), ahead)


def _on_streams(job: Job, plan: Plan, checkpoint: Checkpoint, spark: SparkSession, paces: dict[int, Pace]) -> Plan:
    """The plan over streaming DataFrames in place of files and tables."""
    streams: dict[str, tuple[DataFrame, bool]] = {}
    for number, source in enumerate(sources(job.query)):
        if number in paces:
            df = read_stream(spark, source, checkpoint.inputs(number), paces[number])
            newest = newest_time(source) if job.bounded else None
            # A replay that is known to lie in the past need not be looked at tuple by tuple.
            past = newest is not None and newest <= time.time_ns() // 1000
            streams[source.name] = df, past

    def streamed(source: Source) -> Source:
        if source.name not in streams:
            return source
        df, past = streams[source.name]
        return replace(source, origin=df, ahead_us=None if past else source.ahead_us)

    return plan.reading(streamed)


def _dataframe(plan: Plan, checkpoint: Checkpoint, instances: int, run: str) -> DataFrame:
    checkpoint.control.mkdir(exist_ok=True)
    try:
        return to_dataframe(plan, control=str(checkpoint.control), instances=instances, run=run)
    except NotImplementedError as error:
        raise UnsupportedError(f"an expression of the query has no counterpart on Spark: {error}") from error
