"""A run of a query on Spark: from the first file to the last window, through stops and restarts."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.compile.choose_exchange import choose_exchange
from tidegate.compile.compiler import compile_query
from tidegate.compile.lower_to_aggregates import Operators
from tidegate.compile.plan import Plan
from tidegate.compile.split_hot_keys import HotKeys
from tidegate.errors import CheckpointError, SetAsideWarning, UnsupportedError
from tidegate.java import require_java
from tidegate.operators.cells import checked_cells
from tidegate.progress import Progress
from tidegate.query.nodes import Node, Source, sources
from tidegate.results import RunResult
from tidegate.runtime.spark.checkpoint import Checkpoint, CheckpointInfo
from tidegate.runtime.spark.continued import Continued
from tidegate.runtime.spark.control import EndInput, Steering, unknown_files
from tidegate.runtime.spark.dataframe import frames_of, needs_workers, state_root, to_dataframe
from tidegate.runtime.spark.failure import full_disks_named, translated
from tidegate.runtime.spark.operator import LETTERS, letters_name
from tidegate.runtime.spark.session import LOG, MOST_LOG_BYTES, JavaFolder, choose_session, default_cells, open_session
from tidegate.runtime.spark.sinks import SparkSink
from tidegate.runtime.spark.sources import StagedSource, ahead_note
from tidegate.runtime.spark.stages import RunOptions, fingerprints
from tidegate.runtime.spark.tally import RESULTS, Tally
from tidegate.sources.growing import LOOK_SECONDS, LOOK_SHARE

POLL_SECONDS = 0.1
# How long a stop waits for the running batch; a batch that is cut short is done again by the next run.
GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class StateFromProcess:
    """The checkpoint of a run in process that a new one goes on from, and what brings its state over, for a plan."""

    of: Path
    bring: Callable[[Plan, Checkpoint], Continued]


@dataclass(frozen=True, slots=True)
class SparkJob:
    """What to run and how; ``report`` gets the progress of every batch, ``say`` remarks for people.

    ``continues`` says whose run is gone on from, by a run that begins.

    ``beside`` is entered with the running query and its control folder, and left when that has ended. ``admit`` is called
    before, with the Spark session or the master URL of the one to come and the number of cells, and raises what would be
    refused then.
    """

    query: Node
    sink: SparkSink
    checkpoint: Path | None
    spark: SparkSession | str | None
    files_per_batch: int | None
    bounded: bool
    instances: int
    cells: tuple[int, int] | None
    late_to: Path | None
    operators: Operators
    hot_keys: HotKeys
    report: Callable[[Progress], None]
    say: Callable[[str], None]
    beside: Callable[[StreamingQuery, Path], AbstractContextManager[object]] = lambda *_: nullcontext()
    admit: Callable[[object, int], None] = lambda *_: None
    continues: StateFromProcess | None = None

    def run(self) -> RunResult:
        """Runs the query from the state of its checkpoint.

        A bounded run ends when every window is emitted, an unbounded one when a signal or the control stream ends it.
        What can be refused is refused before Spark is started. A bounded run that is asked to stop raises
        `KeyboardInterrupt` when it has stopped.
        """
        began, job = time.monotonic(), self
        chosen = choose_session(self.query, self.spark)
        cells = self.cells or checked_cells(default_cells(chosen))
        plan = compile_query(
            self.query,
            "spark",
            all_columns=self.late_to is not None,
            cells=cells,
            operators=self.operators,
            hot_keys=self.hot_keys,
        )
        if not isinstance(chosen, SparkSession):
            self.admit(chosen, cells[1])
            require_java()
        with ExitStack() as stack:
            checkpoint = Checkpoint(self.checkpoint or _temporary(stack))
            disks = [checkpoint.folder, self.sink.folder or checkpoint.folder, Path(tempfile.gettempdir())]
            stack.enter_context(full_disks_named(disks))
            held = stack.enter_context(checkpoint.locked())
            found = checkpoint.read()
            if found is not None and self.cells is None:
                plan = choose_exchange(plan, found.cells)
            found = self._resumed(plan, checkpoint, found)
            continued = self._continued(plan, checkpoint, found)
            if continued is not None:
                job = replace(self, sink=self.sink.beginning_with(continued.held))
            staged = {
                source.name: StagedSource.of(
                    source,
                    checkpoint.inputs(number),
                    self.files_per_batch,
                    None if continued is None else continued.positions[source.name],
                )
                for number, source in enumerate(sources(self.query))
                if not isinstance(source.origin, DataFrame)
            }
            spark, java = stack.enter_context(open_session(self.query, chosen, (held,)))
            self.admit(spark, plan.cells[1])
            checkpoint.write(info := self._info(plan, found, continued))
            run = _Run(job, checkpoint, tuple(staged.values()), java, info.letters, continued)

            def streamed(source: Source) -> Source:
                return staged[source.name].streamed(spark, source) if source.name in staged else source

            with full_disks_named(disks, java.log if java is not None else None):
                finished = run.execute(plan.reading(streamed))
            if finished:
                checkpoint.write(replace(info, finished=True))
            job.sink.close(run.tally.results)
        if self.bounded and not finished:
            raise KeyboardInterrupt("the same command goes on from here" if self.checkpoint is not None else "")
        return RunResult(
            to=self.sink.folder,
            format=self.sink.format,
            schema=self.query.schema,
            rows=run.tally.rows,
            results=run.tally.results,
            late=run.tally.late,
            unfilled=run.tally.unfilled,
            batches=run.tally.batches,
            finished=finished,
            seconds=time.monotonic() - began,
            notes=tuple(run.notes),
            malformed=sum(run.tally.malformed.values()),
            ahead=sum(run.tally.ahead.values()),
            outputs=plan.names,
        )

    def _info(self, plan: Plan, found: CheckpointInfo | None, continued: Continued | None = None) -> CheckpointInfo:
        """What the checkpoint is to say; dead letters that were there before the run are as long as they were then."""
        letters = {
            source.dead_letters: Path(source.dead_letters).stat().st_size if Path(source.dead_letters).exists() else 0
            for source in sources(self.query)
            if source.dead_letters is not None
        }
        fingerprint = " | ".join(fingerprints(plan)) or "no stateful step"
        known = letters if found is None else {**letters, **found.letters}
        results = [str(folder) for folder in self.sink.folders]
        of = None if continued is None else continued.of
        return CheckpointInfo(
            fingerprint, plan.cells, str(self.sink), len(sources(self.query)), known, results=results, continues=of
        )

    def _continued(self, plan: Plan, checkpoint: Checkpoint, found: CheckpointInfo | None) -> Continued | None:
        """What the run goes on from, if that is another one."""
        asked = None if self.continues is None else str(self.continues.of)
        if found is not None and asked not in (None, found.continues):
            raise CheckpointError(
                f"{checkpoint.folder} is of a run that {_begun(found)}, and continue_from={asked!r} is for one that begins; "
                "leave it out, or choose a new checkpoint and a new folder for results"
            )
        if found is not None:
            return None if found.continues is None else Continued.read(checkpoint)
        if checkpoint.continued.exists():
            checkpoint.forget()  # it was not complete
        return None if self.continues is None else self.continues.bring(plan, checkpoint)

    def _resumed(self, plan: Plan, checkpoint: Checkpoint, found: CheckpointInfo | None) -> CheckpointInfo | None:
        """What the checkpoint says, if the run may go on from it; None if the run begins."""
        unused = not checkpoint.has_commits() and self.sink.is_empty()
        if found is not None and unused and not (found.finished or found.continues) and found.sink == str(self.sink):
            # A run that failed in its first batch has left nothing behind, and its query may have been fixed since.
            self.sink.clean()
            checkpoint.forget()
            found = None
        if found is not None:
            checkpoint.accept(found, self._info(plan, found))
            LOG.info("resuming from %s", checkpoint.folder)
        self.sink.check(checkpoint, resumed=found is not None)
        return found


def _begun(found: CheckpointInfo) -> str:
    return "began anew" if found.continues is None else f"goes on from {found.continues}"


def _temporary(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-run-", ignore_cleanup_errors=True)))


class _Run:
    """One run of a job's query: starts it, polls it to its end or a requested stop, collects notes and totals."""

    def __init__(
        self,
        job: SparkJob,
        checkpoint: Checkpoint,
        staged: tuple[StagedSource, ...],
        java: JavaFolder | None,
        letters: dict[str, int],
        continued: Continued | None = None,
    ) -> None:
        self.job, self.checkpoint, self.staged, self.java, self.letters = job, checkpoint, staged, java, letters
        self.control = checkpoint.control
        self.continues = continued is not None
        self.tally = Tally(checkpoint.folder, 0 if continued is None else continued.rows)
        self.notes: list[str] = []
        self._stop_requested = threading.Event()
        self._waiting: threading.Thread | None = None
        self._controls: set[Path] = set()
        self._ahead: set[str] = set()

    def execute(self, plan: Plan) -> bool:
        """Runs a plan over its streams until it has ended or is stopped; True if it has ended."""
        self._note(*(source.limit.note for source in self.staged if source.limit.note is not None))
        self.control.mkdir(exist_ok=True)
        late_to = None if self.job.late_to is None else str(self.job.late_to)
        session = next(frames_of(plan)).sparkSession
        root = replace(state_root(str(self.checkpoint.state), {}, session), continues=self.continues)
        parts = self.job.sink.parts if needs_workers(plan) else None
        try:
            df = to_dataframe(
                plan,
                RunOptions(
                    root,
                    str(self.control),
                    self.job.instances,
                    late_to,
                    None if parts is None else str(parts),
                    self.job.sink.format or "parquet",
                ),
            )
        except NotImplementedError as error:
            raise UnsupportedError(f"an expression of the query has no counterpart on Spark: {error}") from error
        df = df.observe(RESULTS, (F.count(F.lit(1)) if parts is None else F.sum("rows")).alias("rows"))
        writer = self.job.sink.writer if parts is None else self.job.sink.committer
        with stop_signals(self._stop_requested), ExitStack() as beside:
            running = writer(df, self.checkpoint.spark).start()
            LOG.info("query %s started", running.id)
            try:
                beside.enter_context(self.job.beside(running, self.control))
                if self.job.bounded:
                    stateful = any(subquery.operator is not None for subquery in plan.subqueries)
                    finished = self._until_all_is_read(running) and (not stateful or self._end_input(running))
                else:
                    finished = self._until_stopped(running)
                self._stop_after_batch(running)
            except StreamingQueryException as error:
                ours = translated(str(error))
                if ours is not None:
                    raise ours from error
                raise
            finally:
                _stop(running)
                if self._waiting is not None:
                    self._waiting.join(GRACE_SECONDS)
                self._write_letters(running)
        LOG.info("query %s %s after %d batches", running.id, "ended" if finished else "stopped", self.tally.batches)
        self._note(*unknown_files(self.control, self._controls))
        return finished

    def _until_all_is_read(self, running: StreamingQuery) -> bool:
        """Waits until the query has nothing left to do; False if a stop was requested before."""
        failures: list[Exception] = []

        def wait() -> None:
            try:
                running.processAllAvailable()
            except Exception as error:
                failures.append(error)

        # On a thread of its own, so that signals are not held up.
        self._waiting = waiting = threading.Thread(target=wait, daemon=True, name="tidegate-wait")
        waiting.start()
        while waiting.is_alive() and not self._stop_requested.is_set():
            waiting.join(POLL_SECONDS)
            self._poll(running)
        if self._stop_requested.is_set():
            return False
        if failures:
            raise failures[0]
        self._poll(running)
        return True

    def _write_letters(self, running: StreamingQuery) -> None:
        """Puts the malformed records of all batches behind what was in their files before the first one."""
        folder = self.checkpoint.state / str(running.id) / LETTERS
        for source in sources(self.job.query):
            if source.dead_letters is not None:
                parts = sorted((folder / letters_name(source.name)).glob("[0-9]*"))
                path = Path(source.dead_letters)
                before = path.read_bytes()[: self.letters[source.dead_letters]] if path.exists() else b""
                path.write_bytes(before + b"".join(part.read_bytes() for part in parts))

    def _end_input(self, running: StreamingQuery) -> bool:
        """Ends the input and waits until a batch has run at the end of time; False if a stop was requested before."""
        while not self.tally.ended:
            Steering(self.control).send(EndInput())
            # The row is read by the second time at the latest: the first may have begun before it was there.
            if not (self._until_all_is_read(running) and self._until_all_is_read(running)):
                return False
        return True

    def _until_stopped(self, running: StreamingQuery) -> bool:
        """Waits until a stop is requested or the input ends; True if the input has ended."""
        polled, least = 0.0, LOOK_SECONDS if self.staged else POLL_SECONDS
        pause = least
        while not self._stop_requested.wait(pause) and not self.tally.ended:
            now = time.monotonic()
            for source in self.staged:
                source.add_new_files()
            pause = max(least, (time.monotonic() - now) / LOOK_SHARE)
            if now - polled < POLL_SECONDS:
                continue
            polled = now
            if not running.isActive:
                running.awaitTermination()  # raises what ended it
                break
            self._poll(running)
            self._note(*unknown_files(self.control, self._controls))
            if self.java is not None:
                self.java.empty_log(MOST_LOG_BYTES)
        return self.tally.ended

    def _stop_after_batch(self, running: StreamingQuery) -> None:
        """Stops the query, after the batch that is running if that does not take long."""
        batches, deadline = self.tally.batches, time.monotonic() + GRACE_SECONDS
        while running.status["isTriggerActive"] and self.tally.batches == batches and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            self._poll(running)
        _stop(running)
        self._poll(running)

    def _poll(self, running: StreamingQuery) -> None:
        for progress in self.tally.poll(running):
            for source in sources(self.job.query):
                if source.name in self.tally.ahead and source.name not in self._ahead:
                    self._ahead.add(source.name)
                    self.notes.append(ahead_note(source, self.tally.ahead[source.name]))
                    warnings.warn(self.notes[-1], SetAsideWarning, stacklevel=2)
            self.job.report(progress)

    def _note(self, *notes: str) -> None:
        self.notes += notes
        for note in notes:
            self.job.say(note)


def _stop(running: StreamingQuery) -> None:
    if running.isActive:
        running.stop()


@contextmanager
def stop_signals(requested: threading.Event) -> Iterator[None]:
    """Turns the first SIGINT or SIGTERM into a request to stop; the second interrupts at once.

    Spark's own handler would cancel the running batch. Only the main thread can have handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    before: dict[int, Any] = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
