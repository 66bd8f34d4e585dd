"""From bags that expire to result rows: the function of an Aggregate, the times of its rows, the check of their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.operators.bags.held_bags import Expiring, HeldBags, KeyedTuples
from tidegate.operators.bags.loops import emit_loop
from tidegate.operators.bags.pair_up import CompiledPairUp, EmitPairs
from tidegate.operators.bags.rounds import Body, EmitRounds
from tidegate.operators.columns import Array
from tidegate.query.bag_functions import Embed, Iterate, PairUp
from tidegate.query.bags import BagFunction, BagRows, Bags
from tidegate.query.nodes import BagAggregate


def function_of(function: BagFunction) -> BagFunction:
    """The function of an Aggregate as runtimes call it: pairs are found by a compiled loop."""
    match function:
        case PairUp(join) if join.where is None or join.where.tree is not None:
            return CompiledPairUp(function)
        case Embed(inner):
            return Embed(function_of(inner))
        case _:
            return function


Emitter = Callable[[HeldBags, Expiring, Sequence[KeyedTuples], Array | None], Iterator[pa.Table]]
"""Gives the rows of what expires, an owner's share (None: all), in the order of time."""


def emitter_of(node: BagAggregate) -> Emitter:
    """How an Aggregate emits: bag by bag, through its loop, or through the rounds of a user's loop."""
    if isinstance(node.function, Iterate):
        return EmitRounds(Body(node.function))
    function = function_of(node.function)
    pairs = EmitPairs(function) if isinstance(function, CompiledPairUp) else None

    def emit(
        held: HeldBags, expiring: Expiring, keyed: Sequence[KeyedTuples], owned: Array | None
    ) -> Iterator[pa.Table]:
        found = None if pairs is None else pairs(held, expiring, keyed, owned)
        if found is not None:
            yield from found
            return
        for bags in held.bags(expiring, keyed, owned):
            rows = rows_of(node, bags, function)
            if rows.num_rows:
                yield rows

    def emit_looping(
        held: HeldBags, expiring: Expiring, keyed: Sequence[KeyedTuples], owned: Array | None
    ) -> Iterator[pa.Table]:
        yield from emit_loop(held, lambda bags: rows_of(node, bags, function), expiring, keyed, owned)

    return emit if node.loop_us is None else emit_looping


def rows_of(node: BagAggregate, bags: Bags, function: Callable[[Bags], BagRows]) -> pa.Table:
    """The rows of bags, in the order of time."""
    found = function(bags)
    times, rows = bags.ends[found.of] - 1, found.rows
    if node.single and len(times) and np.bincount(found.of).max() > 1:
        raise DataError(f"step '{node.name}': a window gave {np.bincount(found.of).max()} rows, and may give one")
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        times, rows = times[order], rows.take(pa.array(order))
    moments = pa.array(times).view(node.schema.field(node.time).type)
    columns = [moments if name == node.time else rows.column(name) for name in node.schema.names]
    return pa.table(columns, schema=node.schema)
