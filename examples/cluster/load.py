"""Calls that arrive as parquet files, at a rate that rises and falls; and the query that rates them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("ts", TIME), ("src", pa.int64())])
FILE_SECONDS = 0.5
CUSTOMERS, EXPONENT, SEED = 200, 1.0, 1
WINDOW_SECONDS = 5
COST_SECONDS = 1 / 200
"""A call waits so long for a service that rates it, so an executor completes 200 a second at most."""

MOST_WAITING = 1_500
"""No more calls than that wait, however slow the machine is."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A rate in calls a second, until there are so many executors; within limits of time."""

    rate: float
    executors: int
    least_seconds: float
    most_seconds: float


class Arrivals(threading.Thread):
    """Writes a file of calls every half second, phase after phase; `executors` says how many there are.

    A few customers make most of the calls. `sent` counts those of each, and is `complete` when all phases are over. Whoever
    reads them says in `read` how many were read.
    """

    def __init__(self, folder: Path, phases: Sequence[Phase], executors: Callable[[], int]) -> None:
        super().__init__(daemon=True, name="arrivals")
        self._folder, self._phases, self._executors = folder, phases, executors
        self._random = np.random.default_rng(SEED)
        self._ended = threading.Event()
        self._files = 0
        self.sent: Counter[int] = Counter()
        self.read = 0
        self.complete = False

    def run(self) -> None:
        for phase in self._phases:
            began = time.monotonic()
            while not self._ended.wait(FILE_SECONDS):
                if self.sent.total() - self.read < MOST_WAITING:
                    self.write(round(phase.rate * FILE_SECONDS))
                lasted = time.monotonic() - began
                there = lasted >= phase.least_seconds and self._executors() == phase.executors
                if there or lasted >= phase.most_seconds:
                    break
        if not self._ended.is_set():
            self.write(1, last=True)

    def end(self) -> None:
        """Write no more."""
        self._ended.set()

    def write(self, rows: int, last: bool = False) -> None:
        """A file of calls that come now; who has read the last one can know that it was."""
        now_us = int(time.time() * 1e6)
        shares = np.arange(1, CUSTOMERS + 1) ** -EXPONENT
        customers = self._random.choice(CUSTOMERS, rows, p=shares / shares.sum()).tolist()
        self.sent.update(customers)
        table = pa.table([pa.array(range(now_us - rows, now_us)).cast(TIME), customers], schema=SCHEMA)
        draft = self._folder.parent / "draft.parquet"
        pq.write_table(table, draft)
        self.complete = last
        draft.rename(self._folder / f"{self._files:06}.parquet")
        self._files += 1


def rated_calls(folder: Path) -> tg.Stream:
    """How many calls of each customer were rated, in windows of five seconds."""
    calls = tg.stream(f"{folder}/*.parquet", time="ts", schema=SCHEMA, name="calls", follow=True)
    return (
        calls.key_by("src")
        .window(f"{WINDOW_SECONDS} seconds")
        .apply(
            update=_rate,
            output=lambda window: {"src": window.key, "calls": window.state["calls"]},
            state={"calls": pa.int64()},
            initial={"calls": 0},
            returns={"src": pa.int64(), "calls": pa.int64()},
            name="rated",
        )
    )


def _rate(window: Any, call: Any) -> Any:
    time.sleep(COST_SECONDS)
    return tg.updated({"calls": window.state["calls"] + 1})
