"""Rewrite: where keys may be hot, what a stateful step keeps of one key is spread over cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from tidegate.errors import QueryError, UnsupportedError, choices
from tidegate.query.aggregates import Aggregate, Count, Distinct, Extreme, Monoid, Ranked, Sum
from tidegate.query.keys import PART, PARTS, Columns, KeyParts, OneForAll
from tidegate.query.names import DefaultName
from tidegate.query.nodes import (
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Join,
    KeyedApply,
    Late,
    Node,
    Running,
    SessionAggregate,
    Stateful,
    WindowAggregate,
    is_stateful,
    rewrite,
    walk,
)
from tidegate.query.partial_aggregates import Merged, Partial
from tidegate.query.windows import INSTANT

HotKeys: TypeAlias = bool | tuple[str, ...]
"""Whether the keys of all stateful steps may be hot, or the names of the steps whose keys may be."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What becomes of a step whose keys may be hot, and why: it is split, there is nothing to split, or it never is."""

    why: str
    split: Callable[[], Stateful] | None = None
    refused: bool = False


def split_hot_keys(query: Node, hot_keys: HotKeys) -> tuple[Node, dict[str, str]]:
    """Spread single keys over cells, in the steps that are named or in all; and what became of each of them, in words.

    ::

        before   aggregate by k: users = distinct(user)
        after    aggregate by k, in 16 parts by user: users = distinct(user)
                 aggregate of 1 µs by k, window_start, window_end: users = sum(users)

    An aggregate of large states becomes two: the first keeps the parts of each key, told by what a tuple holds, in as many
    shards, and the second merges the parts of a window, all of which leave the first in the batch in which it expires. So
    the second keeps nothing between batches. Where only distinct values of one column are large, a value decides the part,
    so that the parts have none in common and are counted, not merged. A join gets tuples by what they hold: its cells form a
    grid, as they do without keys. What sees the tuples of a key in order is never split.

    >>> from tidegate.query.aggregates import distinct
    >>> from tidegate.query.builder import Builder, source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "k": pa.int64(), "user": pa.string()}, time="ts"))
    >>> query = calls.key_by("k").window("1 minute").aggregate(users=distinct("user"), name="users").node
    >>> split, told = split_hot_keys(query, True)
    >>> [str(node.name) for node in walk(split)]
    ['calls', 'users', 'users, merged']
    >>> told["users"]
    'split: each key in 16 parts by user, merged when a window is emitted'
    """
    if hot_keys is False:
        return query, {}
    steps = {str(node.name): node for node in walk(query) if is_stateful(node)}
    named = tuple(steps) if hot_keys is True else hot_keys
    for name in named:
        if name not in steps:
            raise QueryError(
                f"hot_keys: there is no stateful step {name!r}; there is {choices(steps) if steps else 'none'}"
            )
    told: dict[str, str] = {}

    def split(node: Node) -> Node:
        if isinstance(node, Late) and node.operator.name not in steps:
            # Tuples come to the first of the two.
            return replace(node, inputs=node.operator.inputs)
        if not is_stateful(node) or node.name not in named:
            return node
        verdict = _verdict(node)
        if verdict.refused:
            others = tuple(name for name, other in steps.items() if _verdict(other).split is not None)
            instead = f"name the steps to split, hot_keys={others!r}" if others else "leave hot_keys out"
            raise UnsupportedError(f"hot_keys: step '{node.name}' is never split: {verdict.why}; {instead}")
        told[str(node.name)] = verdict.why
        if verdict.split is None:
            return node
        last = verdict.split()
        if last.name != node.name:
            told[str(last.name)] = f"merges the parts of '{node.name}', and keeps nothing between batches"
        return last

    return rewrite(query, split), told


def checked_hot_keys(hot_keys: object) -> HotKeys:
    """What a user says of hot keys: whether there are any, or in which steps."""
    if isinstance(hot_keys, bool):
        return hot_keys
    names = (hot_keys,) if isinstance(hot_keys, str) else tuple(hot_keys) if isinstance(hot_keys, tuple | list) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise QueryError(f"hot_keys is True, False, or the names of the steps whose keys may be hot; got {hot_keys!r}")
    return names


def _verdict(node: Stateful) -> _Verdict:
    match node:
        case Join(on=()):
            return _Verdict("nothing to split: there are no keys, and cells form a grid in any case")
        case Join(how=how) if how != "inner":
            return _never(
                f"how='{how}' asks whether a tuple has a partner, which is known where all of its key meet, in one cell"
            )
        case Join():
            why = "split: the pairs of one key meet in many cells, which form a grid; a tuple goes to a row or column of it"
            return _Verdict(why, lambda: replace(node, spread=True))
        case WindowAggregate() | SessionAggregate() if not any(_is_large(each) for _, each in node.aggregates):
            part = "slice" if isinstance(node, WindowAggregate) else "part of a session"
            return _Verdict(f"nothing to split: of each key one state of bounded size for a {part} leaves a task")
        case WindowAggregate(window=window) if window.lateness:
            return _never("a window with lateness= is emitted anew from all that is known of a key, in one cell")
        case WindowAggregate():
            by = _deciding(node)
            why = f"split: each key in {PARTS} parts by {', '.join(by)}, merged when a window is emitted"
            return _Verdict(why, lambda: _in_two(node, by))
        case SessionAggregate():
            return _never("which tuples make a session is known only where all tuples of a key are")
        case CountJoin():
            return _never("which tuples are the last depends on the order of all tuples of a key")
        case CountAggregate():
            return _never("which tuples make a window depends on the order of all tuples of a key")
        case KeyedApply():
            return _never("apply sees the tuples of a key in order")
        case Running():
            return _never("running state is that of all tuples of a key, in order")
        case Dedup():
            return _never("dedup compares a tuple with the one before it of its key")
        case BagAggregate():
            return _never("a bag has all tuples of a key and window")
        case _:
            return _never("it handles all tuples of a key in one cell")


def _never(why: str) -> _Verdict:
    return _Verdict(why, refused=True)


def _is_large(aggregate: Aggregate) -> bool:
    """Whether the state of an aggregate grows with the number of tuples, or may.

    That of `top_k` does not: its k tuples would be kept once for each part, which costs more than it gives.
    """
    match aggregate:
        case Distinct() | Monoid():
            return True
        case Ranked(limit=limit):
            return limit is None
        case _:
            return False


def _deciding(node: WindowAggregate) -> tuple[str, ...]:
    """The columns that decide the part of a tuple: those of the only large aggregate, if it counts distinct values."""
    large = [each for _, each in node.aggregates if _is_large(each)]
    if isinstance(large[0], Distinct) and all(each == large[0] for each in large):
        return large[0].columns()
    return tuple(field.name for field in node.input.schema if not pa.types.is_nested(field.type))


def _in_two(node: WindowAggregate, by: tuple[str, ...]) -> WindowAggregate:
    """An aggregate of the parts of keys, and one that merges the parts of a window."""
    tuples, moment = node.input.schema, node.schema.field(node.time).type
    steps = {name: _two(name, aggregate, node, by) for name, aggregate in node.aggregates}
    own = () if isinstance(node.keys, OneForAll) else tuple(node.key_schema)
    window = tuple(pa.field(name, moment) for name in ("window_start", "window_end"))
    assert not isinstance(node.keys, KeyParts)
    parts = replace(
        node,
        keys=KeyParts(node.keys, by),
        key_schema=node.key_schema.append(pa.field(PART, pa.int64())),
        aggregates=tuple((name, part) for name, (part, _) in steps.items()),
        schema=pa.schema(
            [
                pa.field(node.time, moment),
                *own,
                *window,
                *(pa.field(name, part.returns(tuples, node.name)) for name, (part, _) in steps.items()),
            ]
        ),
    )
    key_schema = pa.schema([*own, *window])
    name = f"{node.name}, merged"
    # The results of a window carry its end − 1 µs, so a window of 1 µs has all of its parts and ends when it does. What
    # window that was is part of the key, which also puts the windows of one key into many cells.
    return replace(
        node,
        name=DefaultName(name) if isinstance(node.name, DefaultName) else name,
        inputs=(parts,),
        keys=Columns(tuple(key_schema.names)),
        key_schema=key_schema,
        window=INSTANT,
        aggregates=tuple((name, whole) for name, (_, whole) in steps.items()),
    )


def _two(name: str, aggregate: Aggregate, node: WindowAggregate, by: tuple[str, ...]) -> tuple[Aggregate, Aggregate]:
    """An aggregate over the tuples of a part, and one over the parts."""
    if isinstance(aggregate, Count) or (isinstance(aggregate, Distinct) and aggregate.columns() == by):
        return aggregate, Sum(name)
    if isinstance(aggregate, Extreme):
        return aggregate, replace(aggregate, column=name)
    return Partial(aggregate), Merged(name, aggregate, node.input.schema, node.time)
