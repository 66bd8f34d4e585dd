"""One process of several: its pipeline, and the pipes to the other processes and to the one that started them all.

A thread takes bytes from all pipes, so that two processes that send to each other never wait for each other. Sources are
read only while few of the messages sent are still unread, which bounds what lies in memory.
"""

from __future__ import annotations

import gc
import os
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal

from tidegate.errors import TidegateError
from tidegate.micro.encoding import decode, encode
from tidegate.micro.folder import ResultWriter, save_state
from tidegate.micro.graph import AggregateStage, Row
from tidegate.micro.pipeline import Message, Pipeline, Saved

UNREAD_MESSAGES = 8
IDLE_SECONDS = 0.002
ROWS_AT_ONCE = 5_000
ALLOCATIONS = 100_000
"""So many new objects are looked at for cycles at a time: rows come in great numbers and have none."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What a process is started with: ``folder`` None sends results back instead of writing them."""

    graph: AggregateStage
    worker: int
    workers: int
    folder: Path | None
    restored: tuple[Saved, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a process says: that it is there, rows, a part of a snapshot, that it has come to the end, or why it failed."""

    kind: Literal["ready", "rows", "snapshot", "ended", "failed"]
    rows: list[Row] | None = None
    state: str | None = None
    result: str | None = None
    count: int = 0
    error: TidegateError | None = None
    text: str = ""


def work(
    plan: WorkerPlan,
    control: Connection,
    outgoing: Mapping[int, Connection],
    incoming: Sequence[Connection],
    read_counts: Any,
) -> None:
    """The life of a process, until it is told to stop or the one that started it has gone."""
    try:
        gc.set_threshold(ALLOCATIONS)
        _Worker(plan, control, outgoing, incoming, read_counts).run()
    except Exception as error:
        told = error if isinstance(error, TidegateError) else None
        control.send(Report("failed", error=_portable(told), text=traceback.format_exc()))


def _portable(error: TidegateError | None) -> TidegateError | None:
    if error is None:
        return None
    error.__cause__ = error.__context__ = None
    return error


class _Worker:
    def __init__(
        self,
        plan: WorkerPlan,
        control: Connection,
        outgoing: Mapping[int, Connection],
        incoming: Sequence[Connection],
        read_counts: Any,
    ) -> None:
        self._plan, self._control, self._outgoing, self._incoming = plan, control, outgoing, incoming
        # Shared by all: how many messages of each sender each receiver has read, at receiver · workers + sender.
        self._read_counts = read_counts
        self._sent = dict.fromkeys(outgoing, 0)
        self._inbox: SimpleQueue[bytes | tuple[str, int]] = SimpleQueue()
        self._results = ResultWriter(plan.folder) if plan.folder is not None else None
        self._unsent: list[Row] = []
        self._pipeline = Pipeline(
            plan.graph, self._emit, self._save, self._send, plan.worker, plan.workers, plan.restored
        )

    def run(self) -> None:
        threading.Thread(target=self._take_in, name="tidegate-micro-inbox", daemon=True).start()
        self._control.send(Report("ready"))
        reading, begun, told = True, False, False
        while True:
            room = reading and begun and self._has_room()
            item = self._next(0.0 if room else None if told else IDLE_SECONDS)
            if isinstance(item, tuple):
                if item[0] == "stop":
                    return
                if item[0] == "begin":
                    begun = True
                else:
                    self._pipeline.mark(item[1])
            elif item is not None:
                message = Message(*decode(item))
                self._pipeline.receive(message)
                self._read_counts[self._plan.worker * self._plan.workers + message.sender] += 1
            elif room:
                reading = self._pipeline.read()
            if not reading and not told and self._pipeline.has_ended:
                self._send_rows()
                self._control.send(Report("ended"))
                told = True

    def _next(self, timeout: float | None) -> bytes | tuple[str, int] | None:
        try:
            return self._inbox.get_nowait() if timeout == 0.0 else self._inbox.get(timeout=timeout)
        except Empty:
            return None

    def _has_room(self) -> bool:
        read, own, workers = self._read_counts, self._plan.worker, self._plan.workers
        return all(sent - read[other * workers + own] < UNREAD_MESSAGES for other, sent in self._sent.items())

    def _send(self, worker: int, message: Message) -> None:
        self._sent[worker] += 1
        with suppress(OSError):  # that process has failed, and all will be told to stop
            self._outgoing[worker].send_bytes(encode(tuple(message)))

    def _emit(self, rows: list[Row]) -> None:
        if self._results is not None:
            self._results.write(rows)
            return
        self._unsent += rows
        if len(self._unsent) >= ROWS_AT_ONCE:
            self._send_rows()

    def _send_rows(self) -> None:
        if self._unsent:
            self._control.send(Report("rows", rows=self._unsent))
            self._unsent = []

    def _save(self, number: int, saved: Saved) -> None:
        assert self._results is not None and self._plan.folder is not None
        result, rows = self._results.cut()
        state = save_state(self._plan.folder, saved)
        self._control.send(Report("snapshot", state=state, result=result, count=rows))

    def _take_in(self) -> None:
        """Move what arrives into the inbox."""
        pipes = [self._control, *self._incoming]
        while pipes:
            for pipe in wait(pipes):
                assert isinstance(pipe, Connection)
                try:
                    self._inbox.put(self._control.recv() if pipe is self._control else pipe.recv_bytes())
                except (EOFError, OSError):
                    if pipe is self._control:
                        os._exit(1)  # the process that started this one is gone
                    pipes.remove(pipe)
