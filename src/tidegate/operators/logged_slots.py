"""The state of an operator whose instances share memory and whose state is rows by key: its runs.

The owner of shards reads and appends rows of their keys alone, in the order of settling, so what another does at the same
time cannot matter to it. Where results take longer than rows, one instance changes the rows of all keys, and any makes the
results.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.as_of_rows import AsOfRows
from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array
from tidegate.operators.count_join_rows import CountJoinRows
from tidegate.operators.count_panes import CountPanes
from tidegate.operators.dedup_rows import DedupRows
from tidegate.operators.keyed_rows import KeyedRows, KeyedRun, owned_entries
from tidegate.operators.keyed_slots import KeyedSlots
from tidegate.operators.keys import shards_of
from tidegate.operators.settling import Settled
from tidegate.query.nodes import AsOf, CountAggregate, CountJoin, Dedup
from tidegate.watermark import START, has_ended

MOST_RUNS = 4
"""Every turn reads all of them, and what does not count any more is gone when they are merged."""


def rows_of(node: CountAggregate | AsOf | CountJoin | Dedup) -> KeyedRows:
    """How the rows of an operator are computed."""
    match node:
        case CountAggregate():
            return CountPanes(node)
        case AsOf():
            return AsOfRows(node)
        case CountJoin():
            return CountJoinRows(node)
        case Dedup():
            return DedupRows(node)


@dataclass(frozen=True)
class LoggedSlots(KeyedSlots):
    """The state of one operator; ``reached`` is how far each shard has come, ``runs`` are from old to new."""

    logic: KeyedRows
    runs: list[KeyedRun] = field(default_factory=list)
    reached: Array = field(default_factory=lambda: np.full(SHARDS, START, np.int64))
    counted: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> int:
        return self.waiting.rows + sum(run.rows for run in tuple(self.runs))

    @property
    def bytes(self) -> int:
        return self.waiting.bytes + sum(run.nbytes for run in tuple(self.runs))

    @property
    def unfilled(self) -> int:
        return sum(self.counted)

    def shard_bytes(self) -> Array:
        found = np.zeros(SHARDS)
        for run in tuple(self.runs):
            found += np.bincount(shards_of(run.hashes, SHARDS), minlength=SHARDS) * (run.nbytes / run.rows)
        return found

    def prepare(self, settled: Settled) -> Any:
        return None

    def process(self, settled: Settled, prepared: Any, owned: Array | None) -> Iterator[pa.Table]:
        yield from (made for made in self._handle(settled, owned) if made.num_rows)

    def _handle(self, settled: Settled, owned: Array | None) -> Iterable[pa.Table]:
        """Handle what is settled of owned shards, and change their rows; the results."""
        entries = owned_entries(settled, owned)
        handled = self.logic.advance(tuple(self.runs), settled, entries) if any(map(len, entries)) else None
        with self.lock:
            if handled is not None and handled.changed.num_rows:
                self.runs.append(self.logic.run(handled.changed))
            if has_ended(settled.watermark):
                self._end(owned)
            self.reached[slice(None) if owned is None else owned] = settled.watermark
            self._tidy()
        return () if handled is None else handled.results

    def _tidy(self) -> None:
        """Forget runs of which nothing counts any more, and merge the newest if there are many."""
        least = int(self.reached.min())
        going = [run for run in self.runs if run.until > least]
        number, merged = self.logic.merged(going, least, MOST_RUNS)
        kept = going[: len(going) - number]
        self.runs[:] = kept if merged is None else [*kept, merged]

    def _end(self, owned: Array | None) -> None:
        """Count what has not become full in owned shards."""
        mine = np.ones(SHARDS, np.bool_) if owned is None else owned
        self.counted.append(self.logic.unfilled(run.in_shards(mine) for run in self.runs))


@dataclass(frozen=True)
class InTurnSlots(LoggedSlots):
    """The same where rows change when what is settled is prepared, once for all shards, and `process` makes the results."""

    def prepare(self, settled: Settled) -> Iterable[pa.Table]:
        return self._handle(settled, None)

    def process(self, settled: Settled, prepared: Iterable[pa.Table], owned: Array | None) -> Iterator[pa.Table]:
        yield from (made for made in prepared if made.num_rows)
