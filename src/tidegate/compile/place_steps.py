"""Pass: each step is told where it runs, and why there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidegate.compile.place_join import place_join
from tidegate.compile.plan import Place, Plan, Stage
from tidegate.errors import InternalError
from tidegate.query.expressions import columns_made
from tidegate.query.forms import TupleForm
from tidegate.query.keys import Each, KeyFunction, Words
from tidegate.query.nodes import (
    Filter,
    Join,
    KeyedApply,
    MapBatches,
    Node,
    Select,
    Source,
    Stateful,
    Stateless,
    Union,
    WindowAggregate,
    WithColumns,
    is_stateful,
    walk,
)

# Why a step joins the kernel of the stateful step it feeds.
_BATCHES = "the user's function runs in the worker that feeds the exchange, so batches are shipped to Python once"
_LIST = "makes the list that the keys are taken from: it costs more to ship than the columns it is made from"


def place_steps(plan: Plan) -> Plan:
    """Choose where each step runs: Spark's own engine unless the tuples have to visit Python anyway.

    ::

        before   tweets | filter lang | with words = split(text) | aggregate by each(words)
        after    tweets, filter: native Spark      with words, aggregate: Arrow kernel

    Before the exchange, a batch goes to a Python worker once, to be combined or dealt out there by Arrow kernels. Two kinds
    of steps below a stateful step wait for that visit, and all steps after them with them: the last of the user's own
    functions over batches, which would cost a second visit, and the making of the list that ``each`` reads, because a list
    costs more to ship than the column it is made from. A step that something else reads too cannot be hidden in the kernel.

    >>> import narwhals as nw, pyarrow as pa
    >>> from tidegate.compile.split_at_stateful import split_at_stateful
    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> from tidegate.query.keys import each
    >>> tweets = Builder(source("tweets", {"ts": pa.timestamp("us"), "text": pa.string()}, time="ts"))
    >>> split = tweets.filter(~nw.col("text").is_null()).with_columns(words=nw.col("text").str.split(" "))
    >>> query = split.key_by(each("words")).window("1 minute").aggregate(n=count())
    >>> for stage in place_steps(split_at_stateful(Plan(query.node, "spark"))).stages:
    ...     print(stage.node.name, stage.place.value, sep=": ")
    tweets: native Spark
    filter_1: native Spark
    with_columns_2: Arrow kernel
    aggregate_3: Arrow kernel
    """
    match plan.runtime:
        case "spark":
            stages = {id(node): _unfused(node) for node in walk(plan.query)} | _fused(plan.query)
        case "local":
            stages = {id(node): _in_process(node) for node in walk(plan.query)}
        case "reference":
            stages = {id(node): Stage(node, Place.PYTHON, "one tuple at a time") for node in walk(plan.query)}
        case _:
            raise InternalError(f"no places are known for the runtime '{plan.runtime}'")
    return replace(
        plan,
        subqueries=tuple(
            replace(subquery, stages=tuple(stages[id(node)] for node in subquery.nodes)) for subquery in plan.subqueries
        ),
    )


def _in_process(node: Node) -> Stage:
    match node:
        case Source():
            return Stage(node, Place.KERNEL, "a thread reads it into the gate")
        case MapBatches():
            return Stage(node, Place.PYTHON, "a user's function, once per segment, on any instance")
        case WindowAggregate():
            return Stage(
                node, Place.KERNEL, _aggregate_why(node, "each segment lifted once, windows by their shards' owners")
            )
        case KeyedApply(form=TupleForm()):
            return Stage(
                node, Place.PYTHON, "the user's functions, one settled tuple at a time, by their shards' owners"
            )
        case KeyedApply():
            return Stage(
                node, Place.PYTHON, "the user's functions on columns of settled tuples, by their shards' owners"
            )
        case Join():
            return Stage(node, *place_join(node))
        case Union():
            return Stage(node, Place.KERNEL, "the gate merges its branches")
        case _:
            return Stage(node, Place.KERNEL, "whole columns of a segment at a time, on any instance")


def _unfused(node: Node) -> Stage:
    match node:
        case Source():
            return Stage(node, Place.NATIVE, "Spark reads it")
        case WithColumns() | Select() | Filter():
            return Stage(node, Place.NATIVE, "its expressions are Spark columns")
        case Union():
            return Stage(node, Place.NATIVE, "Spark brings the branches together")
        case MapBatches():
            return Stage(node, Place.PYTHON, "a user's function: Spark ships it Arrow batches in a Python worker")
        case WindowAggregate():
            why = "combined per key and slice before the exchange, merged and emitted after it, on whole columns"
            return Stage(node, Place.KERNEL, _aggregate_why(node, why))
        case Join():
            return Stage(node, *place_join(node))
        case KeyedApply(form=form):
            by = "one settled tuple at a time" if isinstance(form, TupleForm) else "on columns of settled tuples"
            return Stage(node, Place.PYTHON, f"the user's functions, {by}; tuples are dealt to cells by their keys")
        case _:
            raise InternalError(f"no place is known for {type(node).__name__}")


def _aggregate_why(node: WindowAggregate, why: str) -> str:
    match node.keys:
        case KeyFunction():
            return f"{why}; Python makes the keys, {node.keys} once per batch"
        case Each() | Words():
            return f"{why}; a tuple is not copied for the keys of {node.keys}"
        case _:
            return why


def _fused(query: Node) -> dict[int, Stage]:
    """The stages of all steps that join the kernel of the stateful step they feed, by the identity of their node."""
    readers = _readers(query)
    return {
        id(stage.node): stage
        for stateful in walk(query)
        if is_stateful(stateful)
        for side, below in enumerate(stateful.inputs)
        for chain in _chains(below)
        for stage in _fused_of_chain(
            _read_by_nothing_else(chain, below, stateful, readers), _list_of_keys(stateful, side)
        )
    }


def _list_of_keys(node: Stateful, side: int) -> str | None:
    """The list column that the keys of an input are taken from, if they are."""
    match node:
        case WindowAggregate(keys=Each(column=column)):
            return column
        case KeyedApply() if isinstance(keys := node.keys[side], Each):
            return keys.column
        case _:
            return None


def _fused_of_chain(chain: tuple[Stateless, ...], listed: str | None) -> Iterator[Stage]:
    waiting = [_why_it_waits(step, listed) for step in chain]
    first = min(_last(waiting, _BATCHES), _last(waiting, _LIST))
    for step, why in zip(chain[first:], waiting[first:], strict=True):
        yield Stage(step, Place.KERNEL, why or f"follows '{chain[first].name}', which runs there")


def _why_it_waits(step: Stateless, listed: str | None) -> str:
    match step:
        case MapBatches():
            return _BATCHES
        case WithColumns() if listed in columns_made(step.exprs, step.input.schema, step.name):
            return _LIST
        case _:
            return ""


def _last(reasons: list[str], reason: str) -> int:
    """Where a reason is given for the last time; past the end if never."""
    return max((position for position, given in enumerate(reasons) if given == reason), default=len(reasons))


def _chains(below: Node) -> Iterator[tuple[Stateless, ...]]:
    """The stateless steps of each branch of an input, in the order in which tuples pass them."""
    for branch in below.inputs if isinstance(below, Union) else (below,):
        steps: list[Stateless] = []
        node = branch
        while isinstance(node, WithColumns | Select | Filter | MapBatches):
            steps.insert(0, node)
            node = node.input
        yield tuple(steps)


def _read_by_nothing_else(
    chain: tuple[Stateless, ...], below: Node, stateful: Stateful, readers: dict[int, set[int]]
) -> tuple[Stateless, ...]:
    """The end of a chain whose steps feed only each other and the stateful step."""
    if readers[id(below)] != {id(stateful)}:
        return ()
    inside = {id(stateful), id(below), *map(id, chain)}
    shared = [position for position, step in enumerate(chain) if not readers[id(step)] <= inside]
    return chain[shared[-1] + 1 :] if shared else chain


def _readers(query: Node) -> dict[int, set[int]]:
    readers: dict[int, set[int]] = {id(node): set() for node in walk(query)}
    for node in walk(query):
        for upstream in node.inputs:
            readers[id(upstream)].add(id(node))
    return readers
