"""Standing by a running query: telling how far it is, noticing its end, and stopping it cleanly."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from tidegate.progress import Progress
from tidegate.runtime.spark import control
from tidegate.runtime.spark.tally import Tally

POLL_SECONDS = 0.1
HOUSEKEEPING_SECONDS = 1.0
# How long a stop waits for the running batch; a batch that is cut short is done again by the next run.
GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Watch:
    """Reports the batches of a query and carries out requests to stop it. All waiting ends when one comes."""

    running: StreamingQuery
    tally: Tally
    report: Callable[[Progress], None]
    stop_requested: threading.Event

    def until_all_is_read(self) -> bool:
        """Wait until the query has nothing left to do; False if it was asked to stop before."""
        waiting = _Waiting(self.running)
        waiting.start()
        while waiting.is_alive() and not self.stop_requested.is_set():
            waiting.join(POLL_SECONDS)
            self._tell()
        if self.stop_requested.is_set():
            return False
        if waiting.failure is not None:
            raise waiting.failure
        self._tell()
        return True

    def end(self, folder: Path) -> bool:
        """End the input and wait until a batch has run at the end of time; False if asked to stop before.

        After a restart Spark runs no batch for a watermark that moved in the last one. Another control row is harmless
        and makes it run.
        """
        while not self.tally.ended:
            control.send(folder, control.END)
            # The row is seen by the second look at the latest: the first may have begun before it was there.
            if not (self.until_all_is_read() and self.until_all_is_read()):
                return False
        return True

    def until_stopped(self, keep_house: Callable[[], None]) -> bool:
        """Wait until a request to stop or the end of the input; True if the input has ended."""
        kept = time.monotonic()
        while not self.stop_requested.wait(POLL_SECONDS) and not self.tally.ended:
            if not self.running.isActive:
                self.running.awaitTermination()  # raises what ended it
                break
            self._tell()
            if time.monotonic() - kept >= HOUSEKEEPING_SECONDS:
                keep_house()
                kept = time.monotonic()
        return self.tally.ended

    def stop(self) -> None:
        """Stop the query, after the batch that is running if that does not take long."""
        batches, deadline = self.tally.batches, time.monotonic() + GRACE_SECONDS
        while self.running.status["isTriggerActive"] and self.tally.batches == batches and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            self._tell()
        stop(self.running)
        self._tell()

    def _tell(self) -> None:
        for progress in self.tally.poll(self.running):
            self.report(progress)


def stop(running: StreamingQuery) -> None:
    """Stop a query at once, if it runs."""
    if running.isActive:
        running.stop()


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turns the first SIGINT or SIGTERM into a request to stop; the second interrupts at once.

    Spark's own handler would cancel the running batch. Only the main thread can have handlers.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    before: dict[int, Any] = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Waiting(threading.Thread):
    """Waits for a query to be idle, on a thread of its own so that signals are not held up."""

    def __init__(self, query: StreamingQuery) -> None:
        super().__init__(daemon=True, name="tidegate-wait")
        self.query = query
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self.query.processAllAvailable()
        except Exception as error:
            self.failure = error
