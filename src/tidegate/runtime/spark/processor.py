"""The stateful processor of a cell, which Spark calls.

Spark calls `handleInputRows` once per batch for a cell with input and `handleExpiredTimer` for one whose time has come. It
also starts a Python process on the driver for each run of a query, only to ask which states there are. So this file
imports nothing heavy, and the cell travels as bytes that are decoded where there is work to do.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

if TYPE_CHECKING:
    from tidegate.runtime.spark.operator import CellFrames, CellState


class CellProcessor(StatefulProcessor):
    """Passes Spark's calls to a `CellFrames`, shipped as bytes."""

    def __init__(self, shipped: bytes) -> None:
        self.shipped = shipped

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.directory = handle.getValueState("directory", "data binary")
        self.chunks = handle.getMapState("chunks", "id long", "data binary")
        self._frames: CellFrames | None = None

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]:
        frames, state = self._at_work(key)
        yield from frames.receive(state, rows, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        frames, state = self._at_work(key)
        yield from frames.advance(state, timerValues)

    def close(self) -> None:
        pass

    def _at_work(self, key: Any) -> tuple[CellFrames, CellState]:
        from tidegate.operators.cells import keep_memory
        from tidegate.runtime.spark.operator import CellState

        if self._frames is None:
            keep_memory()
            self._frames = pickle.loads(self.shipped)
        return self._frames, CellState(int(key[0]), self.handle, self.directory, self.chunks)
