"""Pass: each step is given the place where it runs, and the reason."""

from __future__ import annotations

from dataclasses import replace

import narwhals as nw

from tidegate.compile.plan import Feed, Place, PlacedStep, Plan, Subquery
from tidegate.errors import InternalError
from tidegate.query.expressions import columns_made
from tidegate.query.forms import TupleForm
from tidegate.query.keys import Each, KeyFunction, Keys, Words
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    Dedup,
    Filter,
    Join,
    KeyedApply,
    LookupTable,
    MapBatches,
    Running,
    SessionAggregate,
    Source,
    Stateful,
    Stateless,
    WindowAggregate,
    WithColumns,
)
from tidegate.query.predicates.bounds import band_of
from tidegate.query.translated.program import translated

# Why a step joins the kernel of the stateful step it feeds.
_BATCHES = "the user's function runs in the worker that feeds the exchange, so batches are shipped to Python once"
_TABLE = "the table is there, in the worker that feeds the exchange, so batches are shipped to Python once"
_IN_THE_CELL = "whole columns of results, in the cell that emits them"
_ONCE_FOR_ALL = "whole columns of tuples that come to a worker once for all outputs"
_WHERE_READ = "whole columns of what the worker has read; no row of Spark's is built"
_DROPS = "running state is emitted up to the last tuple of its sources, so the worker must see the time of every one"
_LIST = "builds the list that the keys are taken from: it costs more to ship than the columns it is built from"


def place_steps(plan: Plan) -> Plan:
    """Choose where each step runs: Spark's own engine unless the tuples have to visit Python anyway.

    ::

        before   tweets ─ filter lang ─ with words = split(text) ─▶ aggregate by each(words)
        after    filter: native Spark      with words, aggregate: Arrow kernel

    Before the exchange a batch goes to a Python worker once, to be combined or partitioned there by Arrow kernels. Three
    kinds of steps wait for that visit, and all steps after them with them: the last of the user's own functions over
    batches, which would cost a second visit; the construction of the list that ``each`` reads, because a list costs more to
    ship than the column it comes from; and before running state what may drop tuples.

    >>> import narwhals as nw, pyarrow as pa
    >>> from tidegate.compile.split_at_stateful import split_at_stateful
    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> from tidegate.query.keys import each
    >>> tweets = Builder(source("tweets", {"ts": pa.timestamp("us"), "text": pa.string()}, time="ts"))
    >>> split = tweets.filter(~nw.col("text").is_null()).with_columns(words=nw.col("text").str.split(" "))
    >>> query = split.key_by(each("words")).window("1 minute").aggregate(n=count())
    >>> (subquery,) = place_steps(split_at_stateful(Plan(query.node, "spark"))).subqueries
    >>> for step in (*subquery.feeds[0].steps, subquery):  # doctest: +ELLIPSIS
    ...     print(f"{step.place.value}: {step.why}")
    native Spark: its expressions are Spark columns
    Arrow kernel: builds the list that the keys are taken from: it costs more to ship than the columns it is built from
    Arrow kernel: combined per key and slice where tuples come in, merged and emitted in cells, on whole columns; ...
    """
    timed = _before_running(plan)
    subqueries = tuple(_placed(subquery, plan.runtime, subquery.number in timed) for subquery in plan.subqueries)
    return replace(plan, subqueries=subqueries, outputs=tuple(_placed_output(feed, plan) for feed in plan.outputs))


def _before_running(plan: Plan) -> set[int]:
    """The subqueries that keep running state, and those before them."""
    found: set[int] = set()
    for subquery in reversed(plan.subqueries):
        if subquery.number in found or isinstance(subquery.operator, Running):
            found |= {subquery.number, *(feed.origin for feed in subquery.feeds if isinstance(feed.origin, int))}
    return found


def _placed(subquery: Subquery, runtime: str, timed: bool) -> Subquery:
    place, why = _place_operator(subquery.operator, runtime)
    feeds = tuple(_placed_feed(feed, subquery.operator, runtime, timed) for feed in subquery.feeds)
    return replace(subquery, place=place, why=why, feeds=feeds)


def _placed_output(feed: Feed, plan: Plan) -> Feed:
    placed = _placed_feed(feed, None, plan.runtime)
    if plan.runtime != "spark" or not isinstance(feed.origin, int) or plan.subqueries[feed.origin].operator is not None:
        return placed
    return replace(
        placed, steps=tuple(replace(step, why=_in_worker(step.node, _ONCE_FOR_ALL)) for step in placed.steps)
    )


def _placed_feed(feed: Feed, operator: Stateful | None, runtime: str, timed: bool = False) -> Feed:
    nodes = [step.node for step in feed.steps]
    match runtime:
        case "spark" if not isinstance(feed.origin, Source):
            steps = [PlacedStep(node, Place.KERNEL, _in_worker(node, _IN_THE_CELL)) for node in nodes]
        case "spark" if isinstance(feed.origin, Source) and feed.origin.is_read_in_batches:
            steps = [PlacedStep(node, Place.KERNEL, _in_worker(node, _WHERE_READ)) for node in nodes]
        case "spark":
            fused = _fused(nodes, _list_of_keys(operator, feed.side), timed) if operator is not None else {}
            steps = [fused.get(position) or _native(node) for position, node in enumerate(nodes)]
        case "local":
            steps = [_in_process(node) for node in nodes]
        case "reference":
            steps = [PlacedStep(node, Place.PYTHON, "one tuple at a time") for node in nodes]
        case _:
            raise InternalError(f"no places are known for the runtime '{runtime}'")
    return replace(feed, steps=tuple(steps))


def _in_worker(node: Stateless, why: str) -> str:
    is_function = isinstance(node, MapBatches) and not isinstance(node, LookupTable)
    return "the user's function, on each batch in the worker" if is_function else why


def _in_process(node: Stateless) -> PlacedStep:
    if isinstance(node, MapBatches) and not isinstance(node, LookupTable):
        return PlacedStep(node, Place.PYTHON, "a user's function, once per segment, on any instance")
    return PlacedStep(node, Place.KERNEL, "whole columns of a segment at a time, on any instance")


def _native(node: Stateless) -> PlacedStep:
    if isinstance(node, LookupTable):
        return PlacedStep(node, Place.PYTHON, "the table is shipped to workers, and Spark ships them Arrow batches")
    if isinstance(node, MapBatches):
        return PlacedStep(node, Place.PYTHON, "a user's function: Spark ships it Arrow batches in a Python worker")
    return PlacedStep(node, Place.NATIVE, "its expressions are Spark columns")


def _fused(nodes: list[Stateless], keys: str | None, timed: bool) -> dict[int, PlacedStep]:
    """The steps that join the kernel of the operator they feed, by their position; if it is timed, all that drop tuples."""
    waiting = [_why_it_waits(node, keys, timed) for node in nodes]
    first = min(_last(waiting, _BATCHES), _last(waiting, _TABLE), _last(waiting, _LIST))
    if timed:
        drops = (at for at, node in enumerate(nodes) if isinstance(node, Filter | MapBatches))
        first = min(first, next(drops, first))
    return {
        position: PlacedStep(
            nodes[position], Place.KERNEL, waiting[position] or f"follows '{nodes[first].name}', which runs there"
        )
        for position in range(first, len(nodes))
    }


def _why_it_waits(node: Stateless, keys: str | None, timed: bool) -> str:
    match node:
        case LookupTable():
            return _TABLE
        case MapBatches():
            return _BATCHES
        case Filter() if timed:
            return _DROPS
        case WithColumns() if keys in columns_made(node.exprs, node.input.schema, node.name):
            return _LIST
        case _:
            return ""


def _last(reasons: list[str], reason: str) -> int:
    """The last position of a reason; past the end if it is not given."""
    return max((position for position, given in enumerate(reasons) if given == reason), default=len(reasons))


def _list_of_keys(operator: Stateful, side: int) -> str | None:
    """The list column that the keys of an input are taken from, if they are."""
    match operator:
        case WindowAggregate(keys=Each(column=column)) | SessionAggregate(keys=Each(column=column)):
            return column
        case KeyedApply() | Running() | CountAggregate() if isinstance(keys := operator.keys[side], Each):
            return keys.column
        case _:
            return None


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
        case Dedup() | AsOf():
            where = "tuples are partitioned by their keys" if spark else "by the owners of their shards"
            return Place.KERNEL, f"on whole columns of settled tuples; {where}"
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
        return f"; interpreted, since of {found.obstacles[0]}"
    if found.obstacles:
        return f"; update is compiled once there is enough to do; output is interpreted, since of {found.obstacles[0]}"
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
