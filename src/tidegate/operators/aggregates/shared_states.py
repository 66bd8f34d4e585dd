"""States that are the same for several aggregates of one step: they are computed once.

What is kept for the first price of a key and for the volume that came with it, or for the sum of prices and their mean,
differs in nothing but the value that is made of it in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import pyarrow as pa

from tidegate.operators.aggregates import Logic
from tidegate.operators.aggregates.of_columns import FloatSum, IntegerSum
from tidegate.operators.aggregates.of_decimals import DecimalSum
from tidegate.operators.aggregates.of_tuples import LeadingTuple, RankedLogic
from tidegate.operators.columns import Array


def state_of(logic: Logic) -> Hashable:
    """What is equal for aggregates that have equal states, whatever they are computed of."""
    if type(logic) is RankedLogic or type(logic) is LeadingTuple:
        ranked = logic.ranked
        return RankedLogic, ranked.limit, ranked.descending, ranked.by, logic.tuple_fields, logic.time
    return (replace(logic, mean=False) if isinstance(logic, IntegerSum | FloatSum | DecimalSum) else logic,)


def _states_of_all(
    logics: Sequence[Logic],
    compute: Callable[[Logic, Sequence[pa.Array]], list[pa.Array]],
    states: Sequence[pa.Array] = (),
) -> list[pa.Array]:
    """The states of all aggregates one after the other; ``compute`` gets an aggregate's own ``states``."""
    found: dict[Hashable, list[pa.Array]] = {}
    all_states, at = [], 0
    for logic in logics:
        width = len(logic.fields)
        same = state_of(logic)
        if same not in found:
            found[same] = compute(logic, states[at : at + width])
        all_states += found[same]
        at += width
    return all_states


def lifted_states(
    logics: Sequence[Logic], rows: pa.Table, take: Array | None, groups: Array, size: int
) -> list[pa.Array]:
    """Tuples reduced to one state per slot, for all aggregates."""
    return _states_of_all(logics, lambda logic, _: logic.lift(rows, take, groups, size))


def merged_states(
    logics: Sequence[Logic], states: Sequence[pa.Array], take: Array | None, groups: Array, size: int
) -> list[pa.Array]:
    """The states of all aggregates, merged into one per slot."""
    return _states_of_all(logics, lambda logic, own: logic.merge(own, take, groups, size), states)
