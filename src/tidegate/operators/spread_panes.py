"""The costly work on a cell's panes, spread over its instances by shard.

Of a batch in a cell nearly all time goes into handing out windows: giving each key its slot and merging the panes of its
slices. Keys of different shards have nothing to do with each other, so each instance does that for its own shards.
Decoding comes first and knows no shards; instances take chunks as they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import as_numpy
from tidegate.operators.instances import Instances
from tidegate.operators.windowed_aggregate import SHARDS, SLICE, Panes, unify
from tidegate.query.schema import contiguous
from tidegate.state.chunk_store import Piece
from tidegate.state.slice_log import Encoded

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class SpreadPanes:
    """Does what `Panes` does with many panes, on several instances; with one it is the same as without."""

    panes: Panes
    instances: Instances

    def decode(self, encoded: Sequence[Encoded]) -> list[pa.Table]:
        """The pane tables of encoded runs."""
        return self.instances.spread(lambda run: self.panes.decode(run.data, run.low), encoded)

    def results(self, tables: Sequence[pa.Table], first: int, last: int) -> Iterator[pa.Table]:
        """The results of windows ``first`` to ``last``; each instance gives those of its shards, in their order."""
        if self.instances.number == 1:
            yield from self.instances.run([self.panes.results(pa.concat_tables(tables), first, last)])
            return
        panes = unify(pa.concat_tables(tables))
        owners = self._owners(panes)
        tasks = [self._results_of(panes, owners == i, first, last) for i in range(self.instances.number)]
        yield from self.instances.run(tasks)

    def merge_pieces(self, tables: Sequence[pa.Table]) -> Iterator[Piece]:
        """Merge pane tables into new pieces."""
        if self.instances.number == 1 or len(tables) == 1:
            return self.panes.merge_pieces(tables)
        panes = unify(pa.concat_tables(tables))
        owners = self._owners(panes)
        parts = self.instances.spread(
            lambda i: self.panes.merge_rows(panes.filter(pa.array(owners == i))), range(self.instances.number)
        )
        joined = unify(pa.concat_tables(parts))
        order = np.argsort(as_numpy(contiguous(joined.column(SLICE)), pa.int64()), kind="stable")
        return self.panes.pieces(joined.take(pa.array(order)))

    def _results_of(self, panes: pa.Table, mine: Array, first: int, last: int) -> Iterator[pa.Table]:
        return (yield from self.panes.results(panes.filter(pa.array(mine)), first, last, len(mine)))

    def _owners(self, panes: pa.Table) -> Array:
        """The instance of each pane; finding it is spread evenly, as nobody owns a pane before."""
        rows = -(-panes.num_rows // self.instances.number)
        stretches = [panes.slice(at, rows) for at in range(0, panes.num_rows, max(rows, 1))]
        shards = self.instances.spread(lambda part: self.panes.shards(part, SHARDS), stretches)
        return self.instances.owners(np.concatenate([*shards, np.zeros(0, np.int64)]))
