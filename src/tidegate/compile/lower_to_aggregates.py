"""Rewrite: maps, filters and joins become Aggregates ("On the Semantic Overlap of Operators", sections 4 and 5.1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from tidegate.errors import QueryError, UnsupportedError, choices
from tidegate.query.bag_functions import (
    INDEX,
    NUMBER,
    AtIndex,
    Embed,
    ForEach,
    Iterate,
    PairUp,
    Unfold,
    embedding,
)
from tidegate.query.bags import BagFunction
from tidegate.query.event_time import format_duration
from tidegate.query.keys import Columns, KeyFunction, Keys
from tidegate.query.names import DefaultName
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Filter,
    Join,
    KeyedApply,
    Late,
    MapBatches,
    Node,
    Running,
    Select,
    SessionAggregate,
    Stateless,
    WindowAggregate,
    WithColumns,
    detached,
    rewrite,
    sources,
    walk,
)
from tidegate.query.schema import common_type, is_scalar
from tidegate.query.windows import INSTANT, Window

Operators: TypeAlias = Literal["dedicated", "multi", "single"]
OPERATORS: tuple[str, ...] = get_args(Operators)
WATERMARK_STEP_US = 3_600_000_000
"""How far a watermark moves at most at once, for a stream that does not say so. Where one moves further it goes in steps,
and each of them loops for itself."""


def lower_to_aggregates(query: Node, operators: Operators, lateness_us: int | None = None) -> Node:
    """The query from Aggregates alone: ``multi`` ones, which give any number of rows for a window, or ``single`` ones.

    ::

        before   calls | filter n > 1
        multi    calls | aggregate of 1 µs by all columns: the filter of every tuple
        single   calls | aggregate of 1 µs: those rows in one | aggregate that loops: which of them | aggregate: that one

    Maps and filters that follow each other are one Aggregate over windows of 1 µs (listing 1), a join over windows is one of
    two inputs (listing 2, where the first two Aggregates only give both sides one type, which inputs here need not have).
    With ``single`` ones the rows of a window travel in one tuple, and a loop unfolds them (listing 3): the looping Aggregate
    takes its own rows up to ``lateness_us`` behind the watermark, which must not be less than a watermark of the sources
    moves at once. An aggregate is one already. What the paper does not lower is refused.

    >>> import narwhals as nw, pyarrow as pa
    >>> from tidegate.query.builder import Builder, source
    >>> from tidegate.query.nodes import walk
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "n": pa.int64()}, time="ts"))
    >>> query = calls.filter(nw.col("n") > 1, name="busy").node
    >>> [str(node.name) for node in walk(lower_to_aggregates(query, "single"))]
    ['calls', 'busy, embedded', 'busy, unfolded', 'busy']
    """
    if operators not in OPERATORS:
        raise QueryError(f"operators is one of {choices(OPERATORS)}; got {operators!r}")
    if operators == "dedicated":
        return query
    if operators == "single" and any(source.idle_us is not None for source in sources(query)):
        raise UnsupportedError(
            "operators='single': its loops need watermarks that move by watermark_step= at most, and one that was held back "
            "by an idle source moves at once as far as the others have come; leave idle_after out, or take 'multi'"
        )
    step_us = max(source.watermark_step_us or WATERMARK_STEP_US for source in sources(query))
    lateness_us = step_us if lateness_us is None else lateness_us
    if lateness_us < step_us:
        raise QueryError(
            f"operators='single': rows that loop may come {format_duration(lateness_us)} behind the watermark, and a "
            f"watermark of the sources may move {format_duration(step_us)} at once; allow them at least that"
        )

    originals = iter(list(walk(query)))
    readers = Counter(id(upstream) for node in walk(query) for upstream in node.inputs)
    inner = {
        id(node.input)
        for node in walk(query)
        if isinstance(node, Stateless) and isinstance(node.input, Stateless) and readers[id(node.input)] == 1
    }

    def lowered(node: Node) -> Node:
        # Nodes come in the order of `walk`, perhaps over new inputs.
        if id(next(originals)) in inner:
            return node
        match node:
            case WithColumns() | Select() | Filter() | MapBatches():
                steps: tuple[Stateless, ...] = (node,)
                while isinstance(before := steps[0].input, Stateless):
                    steps = (before, *steps)
                keys = Columns(tuple(field.name for field in before.schema if is_scalar(field.type)))
                function = ForEach(tuple(map(detached, steps)))
                whole = replace(node, inputs=(before,))
                single = _Lowered(whole, (keys,), keys.returns(before.schema, node.name), INSTANT, function)
            case Join(window=Window() as window, how="inner"):
                keys_of_both, key_schema = _join_keys(node)
                single = _Lowered(node, keys_of_both, key_schema, window, PairUp(detached(node)))
            case BagAggregate(function=Iterate() as loop):
                back, out = (lower_to_aggregates(end, operators, lateness_us) for end in (loop.back, loop.out))
                return replace(node, function=replace(loop, back=back, out=out))
            case _:
                _refuse(node, operators)
                return node
        return single.multi() if operators == "multi" else single.single(lateness_us)

    return rewrite(query, lowered)


class _Lowered:
    """A step on its way to Aggregates: its keys and windows, and what it computes of a bag."""

    def __init__(
        self, node: Node, keys: tuple[Keys, ...], key_schema: pa.Schema, window: Window, function: BagFunction
    ) -> None:
        self.node, self.keys, self.key_schema, self.window, self.function = node, keys, key_schema, window, function

    def multi(self) -> BagAggregate:
        """One Aggregate."""
        node = self.node
        return BagAggregate(
            node.name, node.inputs, node.schema, node.time, self.keys, self.key_schema, self.window, self.function
        )

    def single(self, lateness_us: int) -> BagAggregate:
        """An Embed (listing 1 or 2), and the two Aggregates that unfold it (listing 3)."""
        node, time = self.node, self.node.time
        schema = embedding(node.schema, time)
        embed = BagAggregate(
            _named(node, "embedded"),
            node.inputs,
            schema,
            time,
            self.keys,
            self.key_schema,
            self.window,
            Embed(self.function),
            single=True,
        )
        keys = Columns((time, INDEX, NUMBER))
        key_schema = pa.schema([schema.field(name) for name in keys.names])
        unfold = BagAggregate(
            _named(node, "unfolded"),
            (embed,),
            schema,
            time,
            (keys,),
            key_schema,
            INSTANT,
            Unfold(),
            single=True,
            loop_us=lateness_us,
        )
        return BagAggregate(
            node.name, (unfold,), node.schema, time, (keys,), key_schema, INSTANT, AtIndex(), single=True
        )


def _named(node: Node, what: str) -> str:
    name = f"{node.name}, {what}"
    return DefaultName(name) if isinstance(node.name, DefaultName) else name


def _join_keys(node: Join) -> tuple[tuple[Keys, ...], pa.Schema]:
    """The keys of both sides, in types that hold those of either; without any, all tuples of a window share a bag."""
    if not node.on:
        key = pa.schema([("key", pa.int8())])
        return tuple(KeyFunction(one_key, key, (side.time,), distinct=False) for side in node.inputs), key
    sides: tuple[Keys, ...] = tuple(Columns(tuple(names[side] for names in node.on)) for side in (0, 1))
    kinds = [tuple(node.inputs[side].schema.field(pair[side]).type for side in (0, 1)) for pair in node.on]
    return sides, pa.schema([(f"key{place}", common_type(*both)) for place, both in enumerate(kinds)])


def one_key(batch: pa.RecordBatch) -> pa.ListArray:
    """The same key for every row."""
    rows = batch.num_rows
    return pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), np.zeros(rows, np.int8))


def _refuse(node: Any, operators: str) -> None:
    """Refuse a step for which the paper has no composition of Aggregates."""
    problem = None
    match node:
        case Join(how=how) if how != "inner":
            problem = f"how='{how}' gives tuples beside pairs, or instead, and only inner joins are made of Aggregates"
        case Join():
            problem = "a join within a distance has no windows that both sides share; join over a window=... instead"
        case KeyedApply():
            problem = "apply handles tuples in order and keeps state of its own, which no function of a bag does"
        case Running():
            problem = "running state outlives windows, and a bag ends with its own"
        case Dedup():
            problem = "dedup compares a tuple with the last one kept, which may lie in any window before"
        case CountAggregate():
            problem = "count windows number tuples in order, and a bag knows no tuples but its own"
        case CountJoin():
            problem = "the last tuples of the other side may lie in any window before; join over a window=... instead"
        case AsOf():
            problem = "an as-of join looks for the last tuple before another, which may lie in any window before"
        case SessionAggregate():
            problem = "a session ends after its last tuple, and Aggregates have windows whose ends are known beforehand"
        case Late():
            problem = "late tuples leave where a step takes tuples in, and an Aggregate gives nothing but its results"
        case WindowAggregate() if node.window.lateness:
            problem = "a window with lateness= is emitted more than once, and Aggregates have one result for a window"
    if problem is not None:
        raise UnsupportedError(
            f"step '{node.name}' cannot be made of Aggregates (operators='{operators}'): {problem}; or leave operators out"
        )
