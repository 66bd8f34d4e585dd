"""The law of loops of the user's: at each advance the settled rows run through the body, round after round.

A round is the body as a query of its own, over the rows of the round and then the end of input. What it feeds back is the
next round; what leaves is emitted. When nothing is fed back the watermark moves on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.query.bag_functions import Iterate, keeps_times, past_last_round
from tidegate.query.nodes import BagAggregate, Node
from tidegate.reference.rows import LateTuple, python_row
from tidegate.watermark import START, Watermark

RunBody = Callable[[Node, pa.Table], pa.Table]


@dataclass
class FeedbackLaw:
    """One loop at work; ``run`` interprets a query over the rows of its one stream."""

    node: BagAggregate
    run: RunBody
    watermark: Watermark = START
    waiting: list[tuple[int, pa.Table]] = field(default_factory=list)
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Keep a row until it is settled; one before the watermark is late."""
        tuple_ = python_row(row, self.node.input)
        time = tuple_[self.node.input.time]
        if time < self.watermark:
            self.late.append(LateTuple(self.node.name, side, self.watermark, tuple_))
        else:
            self.waiting.append((time, row))
        yield from ()

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Run what is settled through the body until nothing is fed back."""
        self.watermark = watermark
        loop = self.node.function
        assert isinstance(loop, Iterate)
        settled = [row for time, row in self.waiting if time < watermark]
        self.waiting = [(time, row) for time, row in self.waiting if time >= watermark]
        rows = pa.concat_tables([loop.entry.schema.empty_table(), *settled])
        for _ in range(loop.rounds):
            if rows.num_rows == 0:
                return
            back, out = self.run(loop.back, rows), self.run(loop.out, rows)
            for made in (back, out):
                keeps_times(self.node.name, rows, made, loop.entry.time)
            yield out
            rows = back
        if rows.num_rows:
            raise past_last_round(self.node.name, loop, rows)
