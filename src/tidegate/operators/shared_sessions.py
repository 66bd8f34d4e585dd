"""The sessions of an aggregate whose instances share memory.

Any instance combines the tuples of a segment into stretches; in the order of segments one instance merges them with the
sessions that are open, and takes out those that expire. So ownership of shards decides nothing, and no state moves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from tidegate.operators.cells import SHARDS, worth_merging
from tidegate.operators.columns import Array
from tidegate.operators.keys import shards_of
from tidegate.operators.readers import BEFORE
from tidegate.operators.session_runs import OpenSessions, SessionRun
from tidegate.operators.session_tables import SessionTables
from tidegate.state.chunks import Piece, decode, encode
from tidegate.state.snapshot import SnapshotStore
from tidegate.watermark import Watermark

MOST_RUNS = 8


FRESH = 0
"""The group of chunks with stretches that are not merged with open sessions yet."""


@dataclass(frozen=True, slots=True)
class SessionsCut:
    """The sessions that are open at a marker, from old runs to new ones, and stretches that are not merged with them yet."""

    tables: SessionTables
    runs: Sequence[SessionRun]
    fresh: Sequence[pa.Table]

    def write(self, store: SnapshotStore) -> None:
        """Put all of it into a snapshot; see `StateCut`."""
        for run in self.runs:
            store.put(run, partial(self._piece, run))
        for stretches in self.fresh:
            store.put_table(self.tables.compacted(stretches), group=FRESH)

    def _piece(self, run: SessionRun) -> Piece:
        data = encode(self.tables.compacted(run.table))
        return Piece(run.first_due(self.tables.node.session), run.last_end, run.rows, data)


@dataclass(slots=True, eq=False)
class SharedSessions:
    """The state of one aggregate over sessions. `hold` may be called from any thread; `advance` once a segment, in order."""

    sessions: OpenSessions
    _runs: list[SessionRun] = field(default_factory=list)
    _fresh: list[tuple[int, pa.Table]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> int:
        """How many stretches and sessions are held."""
        return sum(run.rows for run in tuple(self._runs)) + sum(int(each.num_rows) for _, each in tuple(self._fresh))

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return sum(run.nbytes for run in tuple(self._runs)) + sum(int(each.nbytes) for _, each in tuple(self._fresh))

    def shard_bytes(self) -> Array:
        """About how much memory the sessions of each shard take."""
        found = np.zeros(SHARDS)
        for run in tuple(self._runs):
            found += np.bincount(shards_of(run.hashes, SHARDS), minlength=SHARDS) * (run.nbytes / run.rows)
        return found

    def cut(self) -> SessionsCut:
        """All that is held, between two segments."""
        with self._lock:
            fresh = [table for _, table in self._fresh]
        return SessionsCut(self.sessions.tables, self._runs, fresh)

    def restore(self, store: SnapshotStore) -> None:
        """Begin with what a snapshot holds."""
        self._runs = store.parts(lambda data, _: self.sessions.run(decode(data)))
        self._fresh = [(BEFORE, stretches) for _, stretches in store.tables(FRESH)]

    def hold(self, segment: int, tuples: pa.Table) -> None:
        """Combine the tuples of a segment, none of which is late, and keep them until the watermark moves."""
        stretches = self.sessions.tables.lift(tuples)
        if stretches.num_rows:
            with self._lock:
                self._fresh.append((segment, stretches))

    def advance(self, segment: int, before: Watermark, after: Watermark) -> Iterator[pa.Table]:
        """The results of the sessions that expire after a segment, computed as they are asked for."""
        with self._lock:
            fresh = [table for number, table in self._fresh if number <= segment]
            self._fresh = [(number, table) for number, table in self._fresh if number > segment]
        advanced = self.sessions.advance(self._runs, fresh, before, after)
        runs = [run for run in self._runs if run.last_end > after]
        if advanced.changed is not None:
            runs.append(advanced.changed)
        if len(runs) > MOST_RUNS:
            chosen = worth_merging(runs[::-1], 0, MOST_RUNS)[::-1]
            kept = runs[: len(runs) - len(chosen)]
            merged = self.sessions.compacted(chosen, after, whole=not kept)
            runs = kept if merged is None else [*kept, merged]
        self._runs = runs
        return iter(()) if advanced.expired is None else self.sessions.tables.results(advanced.expired)
