"""The compiler: a query is rewritten, then a plan is built for a runtime, one pass after the other.

Each pass is a pure function in a file of its own, and its docstring shows what it does to a query. The order matters
where it is written down: every node has a name of its own before any is copied, unions move out of the way before
neighbours are folded, columns that nothing reads are dropped before steps become Aggregates, which read all, or two that
split hot keys, what a runtime
cannot do is refused before anything is planned for it, and all later passes work on the subqueries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidegate.compile.choose_combine import choose_combine
from tidegate.compile.choose_exchange import choose_exchange
from tidegate.compile.choose_slices import choose_slices
from tidegate.compile.fold_stateless import fold_stateless
from tidegate.compile.key_by_words import key_by_words
from tidegate.compile.lower_to_aggregates import Operators, lower_to_aggregates
from tidegate.compile.mark_regions import mark_regions
from tidegate.compile.place_steps import place_steps
from tidegate.compile.plan import Plan
from tidegate.compile.push_through_union import push_through_union
from tidegate.compile.read_used_columns import read_used_columns
from tidegate.compile.refuse_unsupported import refuse_unsupported
from tidegate.compile.split_at_stateful import split_at_stateful
from tidegate.compile.split_hot_keys import HotKeys, split_hot_keys
from tidegate.query.names import unique_names
from tidegate.query.nodes import Late, Node, walk

REWRITES: tuple[Callable[[Node], Node], ...] = (
    push_through_union,
    fold_stateless,
)

PASSES: tuple[Callable[[Plan], Plan], ...] = (
    refuse_unsupported,
    split_at_stateful,
    mark_regions,
    choose_slices,
    choose_combine,
    place_steps,
)

DROP_COLUMNS = (key_by_words, read_used_columns)
"""The passes that drop columns, which are left out where whole tuples are asked for, such as late ones."""


def compile_query(
    query: Node,
    runtime: str = "spark",
    all_columns: bool = False,
    cells: int | tuple[int, int] = 1,
    operators: Operators = "dedicated",
    hot_keys: HotKeys = False,
) -> Plan:
    """Compile a query for a runtime; raises `UnsupportedError` for what that runtime cannot do.

    With ``all_columns``, or where late tuples are a result, tuples reach a stateful step with all the columns of the query
    as it was written. ``cells`` is how
    many cells each stateful step has on Spark, or the least and the most. ``operators`` says whether maps, filters and joins
    are operators of their own or made of Aggregates (`lower_to_aggregates`), and ``hot_keys`` whether single keys are spread
    over cells on Spark, in all steps or in some (`split_hot_keys`).
    """
    query = unique_names(query)
    for rewrite in REWRITES:
        query = rewrite(query)
    plan = Plan(query, runtime)
    all_columns = all_columns or any(isinstance(node, Late) for node in walk(query))
    for drop in () if all_columns else DROP_COLUMNS:
        plan = drop(plan)
    query, told = split_hot_keys(lower_to_aggregates(plan.query, operators), hot_keys if runtime == "spark" else False)
    plan = replace(plan, query=query)
    for build in PASSES:
        plan = build(plan)
    subqueries = tuple(replace(subquery, hot_keys=told.get(subquery.name)) for subquery in plan.subqueries)
    return choose_exchange(replace(plan, subqueries=subqueries), cells)
