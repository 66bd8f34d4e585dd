"""A cell of an aggregate over sessions: stretches of time come in, and the sessions of its shards are a log of chunks.

A batch's stretches merge, under the watermark before it, with the sessions that are open; then the watermark advances, and
those that expire are emitted. What has changed is appended as one chunk. Where there are more than `MOST_CHUNKS` the newest
are merged, so each row is rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.operators.cells import Instances, worth_merging
from tidegate.operators.exchange import Delta
from tidegate.operators.keys import step_shards
from tidegate.operators.session_runs import OpenSessions, SessionRun
from tidegate.operators.session_tables import SessionTables
from tidegate.query.nodes import SessionAggregate
from tidegate.state import chunks
from tidegate.state.chunks import Chunk, ChunkStore, Data, Piece
from tidegate.state.epochs import members
from tidegate.watermark import Watermark

MOST_CHUNKS = 8


@dataclass(slots=True)
class SessionCell:
    """The working side of a directory."""

    node: SessionAggregate
    cell: int
    store: ChunkStore
    instances: Instances
    sessions: OpenSessions = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = OpenSessions(SessionTables(self.node))

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Add stretches and advance; see `OpenCell`."""
        directory = self.store.directory
        before, after = directory.watermark, max(directory.watermark, watermark)
        fresh = [delta.rows for delta in deltas if delta.rows.num_rows]
        results: Iterator[pa.Table] = iter(())
        if fresh or any(chunk.low <= after for chunk in directory.chunks):
            advanced = self.sessions.advance(self.read(directory.chunks), fresh, before, after)
            if advanced.changed is not None:
                self.append(advanced.changed)
            if advanced.expired is not None:
                # Computed when they are asked for: nothing of the store is needed any more.
                results = self.instances.run([self.sessions.tables.results(advanced.expired)])
        directory.watermark = after
        self._tidy(after)
        return results

    def _tidy(self, watermark: Watermark) -> None:
        """Forget chunks whose rows have all ended, and merge the newest if there are many."""
        listed = self.store.directory.chunks
        for chunk in [chunk for chunk in listed if chunk.high <= watermark]:
            self.store.drop(chunk)
        if len(listed) > MOST_CHUNKS:
            chosen = worth_merging(listed[::-1], 0, MOST_CHUNKS)[::-1]
            merged = self.sessions.compacted(self.read(chosen), watermark, whole=len(chosen) == len(listed))
            for chunk in chosen:
                self.store.drop(chunk)
            if merged is not None:
                self.append(merged)

    def append(self, run: SessionRun) -> None:
        """Write a run."""
        data = chunks.encode(self.sessions.tables.compacted(run.table))
        piece = Piece(run.first_due(self.node.session), run.last_end, run.rows, data)
        self.store.remember(self.store.append(piece), run.nbytes, run)

    def read(self, listed: Sequence[Chunk]) -> list[SessionRun]:
        """The run that each chunk holds in the shards for which it is listed."""

        def build(data: Data, chunk: Chunk) -> tuple[SessionRun, int]:
            table = chunks.decode(data)
            if not chunk.is_whole:
                mine = members(chunk.shards)[step_shards(self.sessions.tables.hashes(table))]
                table = table.filter(pa.array(mine))
            run = self.sessions.run(table)
            return run, run.nbytes

        return self.store.read(listed, build, self.instances.spread)
