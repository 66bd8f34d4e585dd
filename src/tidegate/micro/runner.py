"""Runs a graph from start to end: in this process, or by key in several that it starts and watches.

With a folder a run can be interrupted at any moment, by an error or a kill, and run again: it goes on from the last
snapshot. This process decides when a snapshot begins, one at a time, and commits it when every process has written its part.
"""

from __future__ import annotations

import multiprocessing
import pickle
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from operator import itemgetter
from pathlib import Path
from typing import Any

from tidegate.errors import EnvironmentFault, InternalError, QueryError
from tidegate.micro.folder import ResultWriter, RunFolder, save_state
from tidegate.micro.graph import AggregateStage, Row, walk_stages
from tidegate.micro.pipeline import Pipeline, Saved
from tidegate.micro.worker import Report, WorkerPlan, work

STOP_SECONDS = 5.0


def collect(graph: AggregateStage, *, processes: int = 1) -> list[Row]:
    """All results, in the order of their times."""
    rows: list[Row] = []
    run(graph, to=rows.extend, processes=processes)
    rows.sort(key=itemgetter(0))
    return rows


def run(
    graph: AggregateStage,
    *,
    to: Callable[[list[Row]], Any] | str | Path,
    processes: int = 1,
    snapshot_seconds: float = 1.0,
) -> int:
    """Run until the sources end; the number of result rows.

    ``to`` is a function that takes results in batches, or a folder, which gets snapshots too: a run that was interrupted
    goes on there when it is run again, with nothing lost and nothing twice, and one that has finished stays as it is. Read
    them with `results`. Several processes are started afresh (spawned), so functions must be defined in a module; the
    results of each are in the order of their times.
    """
    if not isinstance(graph, AggregateStage):
        raise QueryError(f"run takes a stage, micro.aggregate(…); got {type(graph).__name__}")
    if processes < 1 or snapshot_seconds < 0:
        raise QueryError(f"processes must be at least 1 and snapshot_seconds 0; got {processes} and {snapshot_seconds}")
    if processes > 1:
        _check_portable(graph)
    if callable(to):
        return _count(graph, to) if processes == 1 else _Coordinator(graph, processes, to, None, 0.0).run()
    folder = RunFolder(Path(to), graph)
    try:
        if folder.committed.finished:
            return folder.committed.rows
        if processes == 1:
            _with_snapshots(graph, folder, snapshot_seconds)
        else:
            _Coordinator(graph, processes, None, folder, snapshot_seconds).run()
        return folder.committed.rows
    finally:
        folder.close()


def _count(graph: AggregateStage, to: Callable[[list[Row]], Any]) -> int:
    """In this process, results to a function."""
    total = 0

    def emit(rows: list[Row]) -> None:
        nonlocal total
        total += len(rows)
        to(rows)

    def refuse(number: int, saved: Saved) -> None:
        raise InternalError("a run without folder takes no snapshots")

    pipeline = Pipeline(graph, emit, refuse)
    while pipeline.read():
        pass
    return total


def _with_snapshots(graph: AggregateStage, folder: RunFolder, snapshot_seconds: float) -> None:
    """In this process, with a folder."""
    writer = ResultWriter(folder.path)
    finished = False

    def commit(number: int, saved: Saved) -> None:
        written, rows = writer.cut()
        folder.commit([save_state(folder.path, saved)], [written] if written else [], rows, finished)

    pipeline = Pipeline(graph, writer.write, commit, restored=folder.restored())
    due = time.monotonic() + snapshot_seconds
    try:
        while pipeline.read():
            if time.monotonic() >= due:
                pipeline.mark(folder.committed.number + 1)
                due = time.monotonic() + snapshot_seconds
        finished = True
        pipeline.mark(folder.committed.number + 1)
    finally:
        writer.close()


class _Coordinator:
    """Starts processes, takes their reports, commits snapshots, and ends all when one fails."""

    def __init__(
        self,
        graph: AggregateStage,
        processes: int,
        to: Callable[[list[Row]], Any] | None,
        folder: RunFolder | None,
        snapshot_seconds: float,
    ) -> None:
        self._to, self._folder, self._seconds = to, folder, snapshot_seconds
        self._controls: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        self._parts: list[Report] = []
        self._ready = self._ended = 0
        self._rows = 0
        self._marked = self._last = False
        restored = tuple(folder.restored()) if folder is not None else ()
        context = multiprocessing.get_context("spawn")
        read_counts = context.RawArray("q", processes * processes)
        pipes = {
            (sender, receiver): context.Pipe(duplex=False)
            for sender in range(processes)
            for receiver in range(processes)
            if sender != receiver
        }
        for worker in range(processes):
            mine, theirs = context.Pipe()
            outgoing = {to: pipes[worker, to][1] for to in range(processes) if to != worker}
            incoming = [pipes[other, worker][0] for other in range(processes) if other != worker]
            plan = WorkerPlan(graph, worker, processes, folder.path if folder else None, restored)
            process = context.Process(
                target=work,
                args=(plan, theirs, outgoing, incoming, read_counts),
                daemon=True,
                name=f"tidegate-{worker}",
            )
            process.start()
            theirs.close()
            self._controls.append(mine)
            self._processes.append(process)
        for pair in pipes.values():
            for end in pair:
                end.close()

    def run(self) -> int:
        """Until all have ended; the number of rows that came back."""
        try:
            self._watch()
            return self._rows
        finally:
            self._stop()

    def _watch(self) -> None:
        workers = len(self._processes)
        due = time.monotonic() + self._seconds
        while True:
            may_mark = self._folder is not None and not self._marked and self._ready == workers
            if may_mark and (self._ended == workers or time.monotonic() >= due):
                self._mark()
                may_mark, due = False, time.monotonic() + self._seconds
            timeout = max(0.0, due - time.monotonic()) if may_mark else None
            ready = wait([*self._controls, *(process.sentinel for process in self._processes)], timeout)
            for worker, control in enumerate(self._controls):
                if control in ready:
                    self._take(worker, control)
            for worker, process in enumerate(self._processes):
                if process.sentinel in ready and not self._controls[worker].poll():
                    raise self._died(worker)
            if self._ended == workers and (self._folder is None or self._folder.committed.finished):
                return

    def _mark(self) -> None:
        assert self._folder is not None
        self._marked = True
        self._last = self._ended == len(self._processes)  # nothing comes behind this marker
        self._tell(("mark", self._folder.committed.number + 1))

    def _tell(self, message: tuple[str, int]) -> None:
        """Sends a message to all processes; one that cannot be reached has died."""
        for worker, control in enumerate(self._controls):
            try:
                control.send(message)
            except OSError:
                raise self._died(worker) from None

    def _take(self, worker: int, control: Connection) -> None:
        try:
            report: Report = control.recv()
        except (EOFError, OSError):
            raise self._died(worker) from None
        match report.kind:
            case "ready":
                self._ready += 1
                if self._ready == len(self._processes):  # nobody reads ahead of one that is still starting
                    self._tell(("begin", 0))
            case "rows":
                assert self._to is not None and report.rows is not None
                self._rows += len(report.rows)
                self._to(report.rows)
            case "ended":
                self._ended += 1
            case "snapshot":
                self._parts.append(report)
                if len(self._parts) == len(self._processes):
                    self._commit()
            case "failed":
                error = report.error or InternalError(f"process {worker} failed; what it raised follows")
                error.add_note(f"in process {worker}:\n{report.text}")
                raise error

    def _commit(self) -> None:
        assert self._folder is not None
        parts, self._parts, self._marked = self._parts, [], False
        states, results = ([getattr(part, kind) for part in parts] for kind in ("state", "result"))
        self._folder.commit(states, list(filter(None, results)), sum(part.count for part in parts), self._last)

    def _died(self, worker: int) -> EnvironmentFault:
        process = self._processes[worker]
        process.join(STOP_SECONDS)
        where = f" Run it again with the folder '{self._folder.path}' to go on from there." if self._folder else ""
        return EnvironmentFault(f"process {worker} of the run ended with exit code {process.exitcode}.{where}")

    def _stop(self) -> None:
        for control in self._controls:
            try:
                control.send(("stop", 0))
            except OSError:
                continue
        for process in self._processes:
            process.join(STOP_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        for control in self._controls:
            control.close()


def _check_portable(graph: AggregateStage) -> None:
    """Refuse functions that cannot be sent to another process."""
    for node in walk_stages(graph):
        parts = (node.function, node.key) if isinstance(node, AggregateStage) else (node.read, node.splits)
        for part in parts:
            try:
                pickle.dumps(part)
            except Exception as error:
                raise QueryError(
                    f"'{node.name}': {part!r} cannot be sent to another process ({error}); define it with def in a module, "
                    "or run with processes=1"
                ) from error
