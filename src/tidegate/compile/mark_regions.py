"""Pass: each subquery gets the properties that make it safe to run in parallel (Gedik §2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.compile.plan import Partitioning, Plan, Region, Subquery
from tidegate.errors import InternalError
from tidegate.query.keys import Keys, OneForAll
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Join,
    KeyedApply,
    Running,
    SessionAggregate,
    Stateful,
    WindowAggregate,
)
from tidegate.query.predicates.tree import LEFT


def mark_regions(plan: Plan) -> Plan:
    """Say which tuples of a subquery must meet, when its results leave, and who waits for its watermarks.

    ::

        before   subquery 0: aggregate by src
        after    partitioned by keys; settled; nothing else leads to the output, so no watermark is awaited

    >>> import narwhals as nw, pyarrow as pa
    >>> from tidegate.compile.split_at_stateful import split_at_stateful
    >>> from tidegate.query.builder import Builder, source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "k": pa.int64()}, time="ts"))
    >>> plan = mark_regions(split_at_stateful(Plan(calls.filter(nw.col("k") > 1, name="f").node, "local")))
    >>> region = plan.subqueries[0].region
    >>> region.partitioning, region.settled, region.why
    ('none', False, 'any instance may take any tuple')
    """
    return replace(plan, subqueries=tuple(replace(sub, region=_region(sub, plan)) for sub in plan.subqueries))


def _region(subquery: Subquery, plan: Plan) -> Region:
    operator = subquery.operator
    onward = plan.feeds_from(subquery.number)
    # Late tuples may leave with any segment, by any instance.
    awaited = onward != plan.outputs or len(plan.outputs) != 1 or onward[0].late_side is not None
    # A window without refinements says itself when it ends; everything else may have something to emit at any segment.
    windowed = isinstance(operator, WindowAggregate) and not operator.window.lateness
    settled = operator is not None and not _leaves_as_tuples_come(operator)
    partitioning, why = _partitioning(subquery, plan.runtime)
    return Region(partitioning, settled, awaited, eager=awaited or not windowed, why=why)


def _leaves_as_tuples_come(operator: Stateful) -> bool:
    """Whether results leave before the watermark is past them: pairs within a distance, with both of their tuples there."""
    return isinstance(operator, Join) and operator.window is None and operator.gives_pairs


def _partitioning(subquery: Subquery, runtime: str) -> tuple[Partitioning, str]:
    match subquery.operator:
        case None:
            return "none", "any instance may take any tuple"
        case Join() if runtime != "spark":
            return "pairs", "every instance sees every tuple and tries its share of the pairs, whatever their keys"
        case Join() as join if join.is_on_grid:
            return "pairs", _on_grid(join)
        case Join() as join:
            keys = dict.fromkeys(name if name == other else f"{name} = {other}" for name, other in join.on)
            return "keys", f"tuples that share keys ({', '.join(keys)}) meet in one cell"
        case WindowAggregate(keys=keys) | SessionAggregate(keys=keys):
            return "keys", _meeting((keys,))
        case KeyedApply() | BagAggregate() | Running() | Dedup() | CountAggregate() | AsOf() | CountJoin() as keyed:
            return "keys", _meeting(keyed.keys)
        case operator:
            raise InternalError(f"no partitioning is known for {type(operator).__name__}")


def _on_grid(join: Join) -> str:
    """Which cells get a tuple of a join that is not partitioned by keys."""
    match join.judged_sides:
        case ():
            return (
                "cells form a grid: a left tuple goes to a row of it, a right one to a column, and each pair meets in "
                "one cell"
            )
        case (side,):
            one, other = ("left", "right") if side == LEFT else ("right", "left")
            return (
                f"each {one} tuple goes to one cell and each {other} one to every cell, so that one cell meets all "
                f"partners of a {one} tuple and knows whether there are any"
            )
        case _:
            return (
                "every cell gets all tuples, and knows of its share of them whether there are partners; a pair is tried in "
                "the cells of both of its tuples, and leaves from that of the left one"
            )


def _meeting(keys: Sequence[Keys]) -> str:
    if any(isinstance(each, OneForAll) for each in keys):
        return "there is one key, so all tuples meet in one instance"
    return f"tuples that share a key ({' and '.join(dict.fromkeys(map(str, keys)))}) meet in one instance"
