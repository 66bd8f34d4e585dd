"""Loops of the user's on whole columns: the rows of all times that have expired run through the body together.

Rows of different times never meet in a body, as its windows last 1 µs: so instances share the times, and each runs the loop
for its own. Nothing is under way between two segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.operators.bags.held_bags import Expiring, HeldBags, KeyedTuples
from tidegate.operators.columns import Array, as_numpy, in_time_order
from tidegate.operators.joins.shared_join import SharedJoin
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.bag_functions import Iterate, keeps_times, past_last_round
from tidegate.query.nodes import (
    BagAggregate,
    Join,
    Node,
    Source,
    Stateless,
    Union,
    WindowAggregate,
    walk,
)
from tidegate.query.stateless import apply_stateless
from tidegate.watermark import END, START


@dataclass(slots=True)
class Body:
    """Runs the body of a loop over the rows of a round, all of it at once."""

    loop: Iterate
    _nodes: list[Node] = field(init=False)
    _panes: dict[int, Panes] = field(init=False)

    def __post_init__(self) -> None:
        # Each once, though both ends of the body may have it.
        both = {id(node): node for end in (self.loop.back, self.loop.out) for node in walk(end)}
        self._nodes = list(both.values())
        self._panes = {id(node): Panes(node) for node in self._nodes if isinstance(node, WindowAggregate)}

    def run(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """What is fed back and what leaves."""
        made: dict[int, pa.Table] = {}
        for node in self._nodes:
            made[id(node)] = self._run(node, rows, [made[id(upstream)] for upstream in node.inputs])
        return made[id(self.loop.back)], made[id(self.loop.out)]

    def _run(self, node: Node, rows: pa.Table, given: Sequence[pa.Table]) -> pa.Table:
        match node:
            case Source():
                return rows
            case Union():
                return pa.concat_tables(given)
            case WindowAggregate():
                return self._aggregate(node, given[0])
            case Join():
                return _join(node, given)
            case BagAggregate():
                return _bags(node, given)
            case _ if isinstance(node, Stateless):
                return apply_stateless(node, given[0])
            case _:
                raise InternalError(f"a body of a loop has a {type(node).__name__}")

    def _aggregate(self, node: WindowAggregate, tuples: pa.Table) -> pa.Table:
        panes, none = self._panes[id(node)], node.schema.empty_table()
        if tuples.num_rows == 0:
            return none
        times = as_numpy(tuples.column(node.time))
        found = panes.results(panes.lift(tuples.combine_chunks()), int(times.min()), int(times.max()))
        return pa.concat_tables([none, *found])


@dataclass(slots=True)
class EmitRounds:
    """The rows that leave a loop, an owner's share of the times, in the order of time."""

    body: Body

    def __call__(
        self, held: HeldBags, expiring: Expiring, keyed: Sequence[KeyedTuples], owned: Array | None
    ) -> Iterator[pa.Table]:
        node, loop = held.node, self.body.loop
        rows = keyed[0].rows if owned is None else keyed[0].rows[owned[keyed[0].shards]]
        running = expiring.tuples[0].take(pa.array(rows))
        left = [node.schema.empty_table()]
        for _ in range(loop.rounds):
            if running.num_rows == 0:
                break
            back, out = self.body.run(running.combine_chunks())
            for made in (back, out):
                keeps_times(node.name, running, made, loop.entry.time)
            left.append(out)
            running = back
        if running.num_rows:
            raise past_last_round(node.name, loop, running)
        out = pa.concat_tables(left)
        if out.num_rows:
            yield in_time_order(out, as_numpy(out.column(node.time)))[0]


def _join(node: Join, given: Sequence[pa.Table]) -> pa.Table:
    """The pairs of two tables."""
    join = SharedJoin(node)
    join.attach(0, -1, START)
    join.encode(0, [[table] for table in given])
    return pa.concat_tables([node.schema.empty_table(), *join.pairs_expired(0, START, END, None)])


def _bags(node: BagAggregate, given: Sequence[pa.Table]) -> pa.Table:
    """The rows of an Aggregate of bags over tables."""
    from tidegate.operators.bags.emit_bags import emitter_of

    held = HeldBags(node)
    for side, table in enumerate(given):
        held.hold(0, side, table)
    expiring = held.expire(0, START, END)
    found = iter(()) if expiring is None else emitter_of(node)(held, expiring, held.keyed(expiring, False), None)
    return pa.concat_tables([node.schema.empty_table(), *found])
