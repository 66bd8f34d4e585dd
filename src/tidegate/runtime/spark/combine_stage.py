"""The side of an aggregate before the exchange: Arrow batches of tuples in, packed pane tables out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.operators.exchange import Combiner
from tidegate.operators.memory import keep_memory
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.event_time import check_times
from tidegate.runtime.spark.delta_rows import Intake, delta_row


@dataclass(frozen=True)
class CombineStage:
    """The function that `mapInArrow` runs: the steps fused into the kernel, then the combiner.

    ``derived`` says that a stateful step makes the tuples; ``keys`` are the group keys of the cells.
    """

    intake: Intake
    panes: Panes
    keys: tuple[int, ...]
    derived: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_memory()
        combiner = Combiner(self.panes, len(self.keys), self._tuples)
        for cell, delta in combiner.deltas(pa.Table.from_batches([batch]) for batch in batches):
            yield delta_row(self.keys[cell], replace(delta, derived=self.derived))

    def _tuples(self, table: pa.Table) -> pa.Table:
        tuples = self.intake(table)
        if not self.derived:
            node = self.panes.node
            check_times(self.panes.times(tuples), f"step '{node.name}'", node.time)
        return tuples
