"""From bags that expire to result rows: the function of an Aggregate, the times of its rows, the check of their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError, InternalError
from tidegate.operators.bags.held_bags import Expiring, HeldBags, KeyedTuples
from tidegate.operators.bags.loops import emit_loop
from tidegate.operators.bags.pair_up import CompiledPairUp
from tidegate.operators.columns import Array
from tidegate.query.bag_functions import Embed, Iterate, PairUp
from tidegate.query.bags import BagFunction, BagRows, Bags
from tidegate.query.nodes import BagAggregate


def function_of(function: BagFunction | Iterate) -> Callable[[Bags], BagRows]:
    """The function of an Aggregate as runtimes call it: pairs are found by a compiled loop."""
    match function:
        case PairUp(join) if join.where is None or join.where.tree is not None:
            return CompiledPairUp(function)
        case Embed(inner):
            return Embed(function_of(inner))  # type: ignore[arg-type]
        case Iterate():
            raise InternalError("a loop is no function of bags")
        case _:
            return function


def emit_bags(
    held: HeldBags,
    function: Callable[[Bags], BagRows],
    expiring: Expiring,
    keyed: Sequence[KeyedTuples],
    owned: Array | None,
) -> Iterator[pa.Table]:
    """The rows of the bags that expire, an owner's share, in the order of time."""
    if held.node.loop_us is not None:
        yield from emit_loop(held, lambda bags: rows_of(held.node, bags, function), expiring, owned)
        return
    for bags in held.bags(expiring, keyed, owned):
        yield from rows_of(held.node, bags, function)


def rows_of(node: BagAggregate, bags: Bags, function: Callable[[Bags], BagRows]) -> Iterator[pa.Table]:
    """The rows of bags, in the order of time."""
    found = function(bags)
    if len(found.of) == 0:
        return
    if node.single and np.bincount(found.of).max() > 1:
        raise DataError(f"step '{node.name}': a window gave {np.bincount(found.of).max()} rows, and may give one")
    times, rows = bags.ends[found.of] - 1, found.rows
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        times, rows = times[order], rows.take(pa.array(order))
    moments = pa.array(times).view(node.schema.field(node.time).type)
    columns = [moments if name == node.time else rows.column(name) for name in node.schema.names]
    yield pa.table(columns, schema=node.schema)
