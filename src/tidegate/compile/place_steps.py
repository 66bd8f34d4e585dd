"""Pass: each step is given the place where it runs, and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import narwhals as nw

from tidegate.compile.plan import Feed, Place, PlacedStep, Plan
from tidegate.compile.same_in_spark import is_same_in_spark
from tidegate.errors import InternalError
from tidegate.query.expressions import show_expression
from tidegate.query.forms import TupleForm
from tidegate.query.keys import Each, KeyFunction, Keys, Words
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Filter,
    Join,
    KeyedApply,
    LookupTable,
    MapBatches,
    Running,
    Select,
    SessionAggregate,
    Source,
    Stateful,
    Stateless,
    WindowAggregate,
    WithColumns,
)
from tidegate.query.predicates.bounds import band_of
from tidegate.query.translated.program import translated

_IN_THE_CELL = "whole columns of results, in the cell that emits them"
_ONCE_FOR_ALL = "whole columns of tuples that come to a worker once for all outputs"
_WHERE_READ = "whole columns of what the worker has read; no row of Spark's is built"
_WHERE_TAKEN_IN = "whole columns in the worker that takes tuples in, which has seen the times of all of them"


def place_steps(plan: Plan) -> Plan:
    """Choose where each step runs: on Arrow where tuples visit a worker, as native Spark where none of them has to.

    ::

        before   tweets ─ filter lang ─▶ count by user         tweets ─ filter lang ─▶ output
        after    filter: Arrow kernel                          filter: native Spark

    The watermark is that of the source, so the worker that decides which tuples are late must see the times of all of them,
    also of those that a filter takes away; and a step that runs there for one branch of a query and natively for another
    would have two meanings. A filter that Spark is to run, and to push down to what it reads, belongs to the DataFrame.

    >>> import narwhals as nw, pyarrow as pa
    >>> from tidegate.compile.split_at_stateful import split_at_stateful
    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> tweets = Builder(source("tweets", {"ts": pa.timestamp("us"), "text": pa.string()}, time="ts"))
    >>> told = tweets.filter(~nw.col("text").is_null(), name="told")
    >>> for query in (told, told.key_by("text").window("1 minute").aggregate(n=count())):
    ...     (subquery,) = place_steps(split_at_stateful(Plan(query.node, "spark"))).subqueries
    ...     print(subquery.feeds[0].steps[0].place.value)
    native Spark
    Arrow kernel
    """
    in_workers = visits_workers(plan)

    def placed(feed: Feed) -> Feed:
        return replace(feed, steps=tuple(_place(feed, plan, in_workers)))

    subqueries = []
    for subquery in plan.subqueries:
        place, why = _place_operator(subquery.operator, plan.runtime)
        feeds = tuple(map(placed, subquery.feeds))
        subqueries.append(replace(subquery, place=place, why=why, feeds=feeds))
    return replace(plan, subqueries=tuple(subqueries), outputs=tuple(map(placed, plan.outputs)))


def visits_workers(plan: Plan) -> bool:
    """Whether tuples visit Python workers on Spark: for state, for several results, or as these read them."""
    return (
        bool(plan.names)
        or any(subquery.operator is not None for subquery in plan.subqueries)
        or any(source.is_read_in_batches for source in plan.sources)
    )


def _place(feed: Feed, plan: Plan, in_workers: bool) -> Iterator[PlacedStep]:
    """The steps of a feed, each with its place."""
    nodes = [step.node for step in feed.steps]
    match plan.runtime:
        case "spark" if in_workers:
            return (PlacedStep(node, Place.KERNEL, _in_worker(node, _why_there(feed, plan))) for node in nodes)
        case "spark":
            return _native(nodes)
        case "local":
            return map(_in_process, nodes)
        case "reference":
            return (PlacedStep(node, Place.PYTHON, "one tuple at a time") for node in nodes)
        case _:
            raise InternalError(f"no places are known for the runtime '{plan.runtime}'")


def _why_there(feed: Feed, plan: Plan) -> str:
    """Why the steps of a feed run in a worker."""
    match feed.origin:
        case Source():
            return _WHERE_READ if feed.origin.is_read_in_batches else _WHERE_TAKEN_IN
        case number:
            return _ONCE_FOR_ALL if plan.subqueries[number].operator is None else _IN_THE_CELL


def _in_worker(node: Stateless, why: str) -> str:
    is_function = isinstance(node, MapBatches) and not isinstance(node, LookupTable)
    return "the user's function, on each batch in the worker" if is_function else why


def _in_process(node: Stateless) -> PlacedStep:
    if isinstance(node, MapBatches) and not isinstance(node, LookupTable):
        return PlacedStep(node, Place.PYTHON, "a user's function, once per segment, on any instance")
    return PlacedStep(node, Place.KERNEL, "whole columns of a segment at a time, on any instance")


def _native(nodes: list[Stateless]) -> Iterator[PlacedStep]:
    """The steps of a plan whose tuples need not leave Spark: native until one has to run on Arrow, as the rest then do."""
    first: Stateless | None = None
    for node in nodes:
        match node:
            case LookupTable():
                yield PlacedStep(
                    node, Place.KERNEL, "the table is shipped to workers, and Spark ships them Arrow batches"
                )
            case MapBatches():
                yield PlacedStep(
                    node, Place.PYTHON, "a user's function: Spark ships it Arrow batches in a Python worker"
                )
            case _ if first is not None:
                yield PlacedStep(node, Place.KERNEL, f"follows '{first.name}', which runs there")
            case _ if (other := _other_in_spark(node)) is not None:
                why = f"{show_expression(other)} may be another value in Spark: Arrow's is the one that every runtime gives"
                yield PlacedStep(node, Place.KERNEL, why)
            case _:
                yield PlacedStep(node, Place.NATIVE, "its expressions are Spark columns")
                continue
        first = first or node


def _other_in_spark(node: Stateless) -> nw.Expr | None:
    """The first of the expressions of a step that Spark may compute otherwise than Arrow."""
    match node:
        case Filter(predicate=predicate):
            exprs: tuple[nw.Expr, ...] = (predicate,)
        case WithColumns(exprs=exprs) | Select(exprs=exprs):
            pass
        case _:
            raise InternalError(f"{type(node).__name__} has no expressions")
    return next((expr for expr in exprs if not is_same_in_spark(expr, node.input.schema)), None)


def _place_operator(operator: Stateful | None, runtime: str) -> tuple[Place, str]:
    if runtime == "reference":
        return Place.PYTHON, "one tuple at a time"
    spark = runtime == "spark"
    match operator:
        case None:
            return (Place.NATIVE if spark else Place.KERNEL), "merges its branches"
        case WindowAggregate():
            how = (
                "combined per key and slice where tuples come in, merged and emitted in cells, on whole columns"
                if spark
                else "each segment aggregated once, windows emitted by the owners of their shards"
            )
            return Place.KERNEL, how + _about_keys(operator.keys)
        case SessionAggregate():
            how = (
                "combined per key where tuples come in, merged into sessions and emitted in cells, on whole columns"
                if spark
                else "each segment aggregated once, merged into sessions in the order of segments"
            )
            return Place.KERNEL, how + _about_keys(operator.keys)
        case KeyedApply(form=form):
            by = "one settled tuple at a time" if isinstance(form, TupleForm) else "on columns of settled tuples"
            where = "tuples are partitioned by their keys" if spark else "by the owners of their shards"
            how = _compiled(operator) if isinstance(form, TupleForm) else ""
            return Place.PYTHON, f"the user's functions, {by}; {where}{how}"
        case CountAggregate():
            where = "tuples are partitioned by their keys" if spark else "by the owners of their shards"
            how = f"settled tuples are numbered by key, and aggregated once, on whole columns; {where}"
            return Place.KERNEL, how + _about_keys(operator.keys[0])
        case Dedup():
            where = "tuples are partitioned by their keys" if spark else "by the owners of their shards"
            return Place.KERNEL, f"on whole columns of settled tuples; {where}"
        case AsOf():
            where = (
                "tuples are partitioned by their keys"
                if spark
                else "one instance matches a segment, any makes its rows"
            )
            return Place.KERNEL, f"on whole columns of settled tuples; {where}"
        case CountJoin():
            where = "tuples are partitioned by their keys" if spark else "any instance tries the pairs of a segment"
            loop = "a compiled loop tries each pair"
            if operator.where is not None and operator.where.tree is None:
                loop = f"the predicate is interpreted: {operator.where.obstacle}"
            return (
                Place.KERNEL,
                f"the last {operator.size:,} settled tuples of a key on each side are kept; {loop}; {where}",
            )
        case Running():
            where = "tuples are partitioned by their keys" if spark else "by the owners of their shards"
            how = "one settled tuple at a time; keys without tuples are emitted on whole columns"
            return Place.PYTHON, f"the user's functions, {how}; {where}"
        case Join():
            return _place_join(operator)
        case BagAggregate():
            where = "tuples are partitioned by their keys" if spark else "by the owners of their shards"
            return Place.KERNEL, f"tuples are kept until their windows end; then bags are made of them, {where}"
        case _:
            raise InternalError(f"no place is known for {type(operator).__name__}")


def _compiled(node: KeyedApply) -> str:
    """Which functions of one tuple are compiled, and what prevents it for others."""
    found = translated(node)
    if found.update is None:
        return f"; interpreted, since {found.obstacles[0]}"
    if found.obstacles:
        return f"; update is compiled once there is enough to do; output is interpreted, since {found.obstacles[0]}"
    return f"; {'update is' if found.output is None else 'both are'} compiled once there is enough to do"


def _about_keys(keys: Keys) -> str:
    match keys:
        case KeyFunction():
            return f"; Python builds the keys, {keys} once per batch"
        case Each() | Words():
            return f"; a tuple is not copied for the keys of {keys}"
        case _:
            return ""


def _place_join(node: Join) -> tuple[Place, str]:
    """How pairs are found and what evaluates the predicate."""
    band = band_of(node.where.tree) if node.bands and node.where is not None and node.where.tree is not None else None
    if node.on:
        found = "pairs found by key"
    else:
        found = f"pairs found by {f'sorting ({band})' if band is not None else 'trying all that are near in time'}"
    found += _leaving_alone(node)
    match node.where:
        case None:
            return Place.KERNEL, found
        case where if where.tree is not None:
            return Place.KERNEL, f"{found}; the predicate is compiled"
        case where if isinstance(where.given, nw.Expr):
            return (
                Place.KERNEL,
                f"{found}; the predicate is applied to whole columns of pairs, since of {where.obstacle}",
            )
        case where:
            return Place.PYTHON, f"{found}; the predicate is interpreted pair by pair, since of {where.obstacle}"


def _leaving_alone(node: Join) -> str:
    """Which tuples leave alone, and when."""
    when = "when their windows end" if node.window is not None else "when no partner can come any more"
    match node.how:
        case "inner":
            return ""
        case "semi":
            when = (
                "once for each of their windows"
                if node.window is not None
                else "once, when their first pair is settled"
            )
            return f"; left tuples in a pair leave {when}"
        case "anti":
            return f"; left tuples in no pair leave {when}"
        case how:
            return f"; {'' if how == 'full' else f'{how} '}tuples in no pair leave too, {when}"
