"""A cell of an operator whose state is rows by key: tuples wait in chunks until they are settled, and runs are chunks.

What a batch settles is handled on whole columns; the rows that change are appended as one chunk. Where there are more than
`MOST_CHUNKS` the newest are merged, so each row is rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.operators.cells import SHARDS
from tidegate.operators.exchange import Delta
from tidegate.operators.keyed_apply_cell import KeyedApplyCell
from tidegate.operators.keyed_rows import KeyedRows, KeyedRun, owned_entries
from tidegate.operators.keys import step_shards
from tidegate.operators.log_rows import WINDOWS
from tidegate.operators.logged_slots import rows_of
from tidegate.operators.settling import Settled, Settling
from tidegate.query.nodes import AsOf, CountAggregate, CountJoin, Dedup
from tidegate.state import chunks
from tidegate.state.chunks import Chunk, Data, Piece
from tidegate.state.epochs import members
from tidegate.watermark import Watermark, has_ended

MOST_CHUNKS = 8


@dataclass(slots=True)
class KeyedRowsCell(KeyedApplyCell):
    """The working side of a directory; ``unfilled`` counts the windows that are not full at the end of input."""

    node: CountAggregate | AsOf | CountJoin | Dedup
    unfilled: int = 0

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Handle what is settled; see `OpenCell`."""
        directory, logic = self.store.directory, rows_of(self.node)
        if watermark <= directory.watermark:
            for delta in deltas:
                self.wait(delta.rows, delta.side)
            return iter(())
        settled = self._settle(Settling(self.node, SHARDS, directory.watermark), deltas, watermark)
        results = self._handle(logic, settled) if settled.size else iter(())
        if has_ended(watermark):
            self.unfilled = logic.unfilled(run.table for run in self.read(logic, self.listed))
        self._tidy(logic, watermark)
        directory.watermark = watermark
        return results

    def _handle(self, logic: KeyedRows, settled: Settled) -> Iterator[pa.Table]:
        """Handle settled tuples and append what changes; the results."""
        runs = self.read(logic, self.listed)
        shares = [owned_entries(settled, owned) for owned in self.instances.shares(settled.size)]
        handled = self.instances.spread(lambda entries: logic.advance(runs, settled, entries), shares)
        changed = logic.joined([each.changed for each in handled])
        if changed.num_rows:
            self.append(logic.run(changed))
        results = self.instances.run([iter(each.results) for each in handled])
        return (made for made in results if made.num_rows)

    @property
    def listed(self) -> list[Chunk]:
        """The chunks of runs."""
        return [chunk for chunk in self.store.directory.chunks if chunk.group == WINDOWS]

    def _tidy(self, logic: KeyedRows, watermark: Watermark) -> None:
        """Forget chunks of which nothing counts any more, and merge the newest if there are many."""
        for chunk in self.listed:
            if chunk.high <= watermark:
                self.store.drop(chunk)
        listed = self.listed
        if len(listed) > MOST_CHUNKS:
            number, merged = logic.merged(self.read(logic, listed), watermark, MOST_CHUNKS)
            for chunk in listed[len(listed) - number :]:
                self.store.drop(chunk)
            if merged is not None:
                self.append(merged)

    def append(self, run: KeyedRun) -> None:
        """Write a run."""
        piece = Piece(run.until, run.until, run.rows, chunks.encode(run.table))
        self.store.remember(self.store.append(piece, group=WINDOWS), run.nbytes, run)

    def read(self, logic: KeyedRows, listed: Sequence[Chunk]) -> list[KeyedRun]:
        """The run that each chunk holds in the shards for which it is listed."""

        def build(data: Data, chunk: Chunk) -> tuple[KeyedRun, int]:
            table = chunks.decode(data)
            if not chunk.is_whole:
                table = table.filter(pa.array(members(chunk.shards)[step_shards(logic.hashes(table))]))
            run = logic.run(table)
            return run, run.nbytes

        return self.store.read(listed, build, self.instances.spread)
