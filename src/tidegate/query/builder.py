"""The fluent face: each call checks one step and returns a new query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import narwhals as nw
import pyarrow as pa

from tidegate.errors import QueryError
from tidegate.query import expressions
from tidegate.query.advice import Advises, advised
from tidegate.query.arrival import ArrivalTime
from tidegate.query.as_of import SUFFIX, How, as_of_node
from tidegate.query.classes.operator import ClassOperator, ClassUpdate
from tidegate.query.dedup import dedup_node
from tidegate.query.event_time import Duration, parse_duration
from tidegate.query.joins import SUFFIXES, On, join_extent, join_nodes
from tidegate.query.keyed import CountWindows, Keyed, Sessions, Windowed
from tidegate.query.keys import Columns, Each, KeyFunction, OneForAll
from tidegate.query.late import late_node
from tidegate.query.lookups import lookup_in_changes, lookup_in_table
from tidegate.query.loops import loop_entry, loop_node
from tidegate.query.names import check_names, step_name
from tidegate.query.nodes import (
    Filter,
    JoinHow,
    MapBatches,
    Node,
    Select,
    Source,
    Union,
    WithColumns,
)
from tidegate.query.routing import Routed, route
from tidegate.query.schema import as_schema, column_type, normal_schema, show_columns
from tidegate.query.stateless import apply_stateless

AHEAD = "1 hour"
"""How far after the clock a tuple may lie, unless its stream says otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Builder(Advises):
    """A query under construction: a node, and the calls that add a step to it."""

    node: Node

    @property
    def schema(self) -> pa.Schema:
        """The columns of the tuples this stream carries."""
        return self.node.schema

    @property
    def time(self) -> str:
        """The column that holds event time."""
        return self.node.time

    def with_columns(self, *exprs: nw.Expr | str, name: str | None = None, **named: Any) -> Self:
        """Add or replace columns by element-wise Narwhals expressions."""
        step = self._step("with_columns", name)
        computed = self._expressions(exprs, named, step)
        schema = normal_schema(expressions.derive(step, self.schema, expressions.with_columns, computed), step)
        touched = set(expressions.derive(step, self.schema, expressions.select, computed).names)
        if self.time in touched:
            raise QueryError(f"step '{step}': '{self.time}' is the event time and cannot be replaced; add a new column")
        return self._then(WithColumns(step, (self.node,), schema, self.time, computed))

    def select(self, *exprs: nw.Expr | str, name: str | None = None, **named: Any) -> Self:
        """Keep only some columns, or expressions of them; the event time must be among them."""
        step = self._step("select", name)
        computed = self._expressions(exprs, named, step)
        schema = normal_schema(expressions.derive(step, self.schema, expressions.select, computed), step)
        if self.time not in schema.names or schema.field(self.time).type != self.schema.field(self.time).type:
            raise QueryError(f"step '{step}': a stream needs its event time; select '{self.time}' too, as it is")
        return self._then(Select(step, (self.node,), schema, self.time, computed))

    @advised
    def filter(self, predicate: nw.Expr, *, name: str | None = None) -> Self:
        """Keep the tuples for which a predicate is true; null is not true."""
        step = self._step("filter", name)
        if not isinstance(predicate, nw.Expr):
            raise QueryError(
                f"step '{step}': filter takes a Narwhals expression, as in nw.col('x') > 3; got {predicate!r}"
            )
        expressions.derive_condition(step, self.schema, "a filter", predicate)
        return self._then(Filter(step, (self.node,), self.schema, self.time, predicate))

    def route(self, *, rest: bool = False, **predicates: nw.Expr) -> Routed[Self]:
        """Part a stream by predicates: a tuple goes to the first part whose predicate is true; null is not true.

        With ``rest=True`` the part ``rest`` has the tuples that no predicate takes; without it they are dropped. Every
        predicate is evaluated on every tuple. The parts are streams, by name:

        >>> import narwhals as nw, pyarrow as pa, tidegate as tg
        >>> calls = tg.stream({"ts": pa.timestamp("us"), "n": pa.int64()}, time="ts")
        >>> routed = calls.route(big=nw.col("n") > 100, some=nw.col("n") > 10, rest=True)
        >>> list(routed), routed.big.schema.names == routed["rest"].schema.names
        (['big', 'some', 'rest'], True)
        """
        return route(self, predicates, rest)

    @advised
    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], Any],
        *,
        schema: pa.Schema | Mapping[str, pa.DataType] | None = None,
        name: str | None = None,
    ) -> Self:
        """Turn batches into batches by your own function over Arrow data.

        The function may add, drop and multiply rows, but must treat each row by itself: how rows are batched is not
        defined. ``schema`` is what it returns, if that differs from what it gets.
        """
        step = self._step("map_batches", name)
        returned = (
            normal_schema(as_schema(schema, f"step '{step}': schema"), step) if schema is not None else self.schema
        )
        if column_type(returned, self.time, step) != self.schema.field(self.time).type:
            raise QueryError(f"step '{step}': the event time '{self.time}' must keep its type")
        node = MapBatches(step, (self.node,), returned, self.time, function)
        try:
            apply_stateless(node, self.schema.empty_table())
        except QueryError:
            raise
        except Exception as error:
            raise QueryError(f"step '{step}': the batch function fails on no rows: {error}") from error
        return self._then(node)

    def union(self, *others: Builder, name: str | None = None) -> Self:
        """Bring streams of the same columns together."""
        step = self._step("union", name)
        for other in others:
            if not isinstance(other, Builder):
                raise QueryError(
                    f"step '{step}': union takes other streams, as in a.union(b, c); got {type(other).__name__}"
                )
            if other.time != self.time or other.schema != self.schema:
                raise QueryError(
                    f"step '{step}': a union needs the same columns, types and event time on all sides; "
                    f"({_describe(self)}) is not ({_describe(other)})"
                )
        return self._then(Union(step, (self.node, *(other.node for other in others)), self.schema, self.time))

    @advised
    def join(
        self,
        right: Builder,
        *,
        on: On | None = None,
        within: Duration | None = None,
        window: Duration | None = None,
        every: Duration | None = None,
        last: int | None = None,
        where: Callable[[Any, Any], Any] | nw.Expr | None = None,
        how: JoinHow = "inner",
        suffixes: tuple[str, str] = SUFFIXES,
        bands: bool = True,
        name: str | None = None,
    ) -> Self:
        """Pair each tuple with those of another stream, or of this one, that are near and fit.

        ``within`` pairs tuples at most so far apart, at the later of the two times. ``window`` (and ``every``) pairs
        tuples once for each window they share, at its end − 1 µs, with ``window_start`` and ``window_end``. ``last`` pairs
        each tuple, at its own time, with the last so many of the other side before it, of those that are equal in ``on``;
        among tuples of one time the left ones come first, and tuples wait until the watermark is past them.

        ``on`` names columns that must be equal: one, a list, and in it pairs for columns of different names. Null equals
        nothing. ``where`` is a function of two tuples, as in ``lambda l, r: (l.id != r.id) & (r.price < l.price)``, or a
        Narwhals expression over the columns of a pair; it is asked for tuples that are near and equal in their keys. With
        ``bands=False`` conditions on differences are not served by sorting.

        ``how="left"``, ``"right"`` or ``"full"`` also gives the tuples of that side, or of both, that are in no pair, with
        nulls for the other: within d of each other at the tuple's time + d, over windows at the end of each window in which
        it stayed alone. ``"semi"`` gives the left tuples that are in a pair, once each, or once for each window, and
        ``"anti"`` those that are in none, both without the columns of the right.

        The result has the event time under its name on the left, each tuple's own time with a suffix, and the columns of
        both; of two that are called alike the right one gets its suffix, and a key of one name is there once.
        """
        step = self._step("join", name)
        if not isinstance(right, Builder):
            raise QueryError(f"step '{step}': join takes another stream; got {type(right).__name__}")
        extent = join_extent(step, within, window, every, last)
        return self._then(join_nodes(step, self.node, right.node, on, extent, where, suffixes, bands, how))

    @advised
    def join_asof(
        self,
        right: Builder,
        *,
        on: On | None = None,
        tolerance: Duration | None = None,
        how: How = "inner",
        suffix: str = SUFFIX,
        name: str | None = None,
    ) -> Self:
        """Give each tuple the last tuple of another stream at or before its time.

        ``on`` names columns that must be equal, as in `join`; without it any tuple will do. ``tolerance`` is how far before
        it may lie at most. A tuple without a match is dropped, or with ``how="left"`` kept, with nulls. Last is meant by
        event time, and among tuples of one time by all columns from left to right; a tuple leaves when the watermark is
        past it, at its own time.

        The result has the columns of both. Of two that are called alike the right one gets the suffix, and a key of one
        name is there once.
        """
        step = self._step("join_asof", name)
        if not isinstance(right, Builder):
            raise QueryError(f"step '{step}': join_asof takes another stream; got {type(right).__name__}")
        return self._then(as_of_node(step, self.node, right.node, on, tolerance, how, suffix))

    @advised
    def lookup(
        self,
        table: Any,
        *,
        on: On,
        how: How = "inner",
        deleted: str | nw.Expr | None = None,
        suffix: str = SUFFIX,
        name: str | None = None,
    ) -> Self:
        """Give each tuple the columns of a table by key.

        ``table`` is a stream of changes, versioned by event time: a tuple gets the last change of its key at or before its
        time, and none if ``deleted``, a column or an expression over the change, is true of it. Or it is a table that is
        given and does not change: Arrow, pandas, Polars, a list of dicts, a dict of rows by key, or the path of a parquet
        file; then a tuple passes at once.

        A tuple without a match is dropped, or with ``how="left"`` kept, with nulls. Columns are called as in `join_asof`.
        """
        step = self._step("lookup", name)
        if isinstance(table, Builder):
            return self._then(lookup_in_changes(step, self.node, table.node, on, how, deleted, suffix))
        if deleted is not None:
            raise QueryError(
                f"step '{step}': deleted={deleted!r} is for a stream of changes; a table that is given is one version, so "
                "leave rows out that are not there"
            )
        return self._then(lookup_in_table(step, self.node, table, on, how, suffix))

    @advised
    def loop(self, body: Callable[[Self], tuple[Self, Self]], *, rounds: int, name: str | None = None) -> Self:
        """Run rows through a body again and again: a feedback edge.

        ``body`` is called once, with a stream of the rows of a round, and returns two streams: the rows that run again, with
        the same columns, and those that leave. When the watermark has passed rows, all of them run through the body; what
        it feeds back keeps its event time and is the next round. The watermark leaves when nothing below it is under way.
        A row that would run after ``rounds`` rounds stops the query and is named.

        Rows of one event time and one round run together: aggregates and joins in a body are over windows of
        ``"1 microsecond"``.

        >>> import narwhals as nw, pyarrow as pa, tidegate as tg
        >>> numbers = tg.stream({"ts": pa.timestamp("us"), "n": pa.int64()}, time="ts", name="numbers")
        >>> halved = lambda rows: rows.with_columns(n=nw.col("n") // 2)
        >>> odd = numbers.loop(lambda rows: (halved(rows.filter(nw.col("n") % 2 == 0)), rows.filter(nw.col("n") % 2 == 1)),
        ...                    rounds=64)
        >>> odd.schema.names
        ['ts', 'n']
        """
        step = self._step("loop", name)
        entry = loop_entry(step, self.node)
        return self._then(loop_node(step, self.node, entry, body(type(self)(entry)), rounds))

    def key_by(self, *keys: str | Each | KeyFunction) -> Keyed[Self]:
        """Group tuples by one or more columns, by `each` element of a list, or by `keys` of a function."""
        step = self._step("key_by", None)
        if len(keys) == 1 and isinstance(keys[0], Each | KeyFunction):
            chosen: Columns | Each | KeyFunction = keys[0]
        elif all(isinstance(key, str) for key in keys):
            chosen = Columns(tuple(str(key) for key in keys))
        else:
            raise QueryError(
                f"step '{step}': key_by takes column names, or one each(...), or one keys(...); got {keys!r}"
            )
        return Keyed(self, chosen, chosen.returns(self.schema, step))

    def apply(self, operator: ClassOperator | None = None, *, name: str | None = None, **functions: Any) -> Self:
        """Apply a plain class, as in ``trades.apply(tg.operator(Vwap, returns={...}))``; see `operator`."""
        step = self._step("apply", name)
        if not isinstance(operator, ClassOperator) or functions:
            raise QueryError(
                f"step '{step}': a stream without keys takes a class, as in .apply(tg.operator(MyClass, returns={{...}})); "
                "functions need keys: .key_by('column').window('1 minute').apply(update=..., ...)"
            )
        operator.check_keys(step, self.schema)
        state = operator.state
        unbounded = self.key_by(*operator.keys).unbounded()
        return unbounded.apply(
            update=ClassUpdate(operator),
            state=state,
            initial=dict.fromkeys(state),
            stores=operator.stores,
            returns=operator.returns,
            name=name,
        )

    @advised
    def dedup(self, by: str | Sequence[str], *, within: Duration, name: str | None = None) -> Self:
        """Keep the first of the tuples that are equal in some columns, and another when it is ``within`` or more after it.

        First is meant by event time, and among tuples of one time by all columns from left to right; a tuple leaves when
        the watermark is past it. What is compared with is the last tuple that was kept, not the last that came.
        """
        return self._then(dedup_node(self._step("dedup", name), self.node, by, within))

    @advised
    def window(
        self, size: Duration, *, every: Duration | None = None, lateness: Duration = 0, name: str | None = None
    ) -> Windowed[Self]:
        """Cut event time into windows of all tuples, as `Keyed.window` does: there is one key, and no column for it."""
        keys = OneForAll()
        return Keyed(self, keys, keys.returns(self.schema, "window")).window(
            size, every=every, lateness=lateness, name=name
        )

    @advised
    def session(self, gap: Duration, *, most: Duration | None = None, name: str | None = None) -> Sessions[Self]:
        """Put all tuples that follow one another closely into one window, as `Keyed.session` does: there is one key."""
        keys = OneForAll()
        return Keyed(self, keys, keys.returns(self.schema, "session")).session(gap, most=most, name=name)

    @advised
    def count_window(self, size: int, *, every: int | None = None, name: str | None = None) -> CountWindows[Self]:
        """Cut all tuples into windows of so many, as `Keyed.count_window` does: there is one key."""
        keys = OneForAll()
        return Keyed(self, keys, keys.returns(self.schema, "count_window")).count_window(size, every=every, name=name)

    @advised
    def late(self, of: int | Literal["left", "right"] | None = None, *, name: str | None = None) -> Self:
        """The tuples that came too late for the nearest stateful step, as a stream: a result of its own, beside others.

        They come from the edges of sources, with all columns that the step reads there, their own event time, and
        ``missed_watermark``, the watermark that each missed. Of a step with several inputs ``of`` says which, 'left' or
        'right' where there are two, else its position. They lie behind the watermark, so only stateless steps may follow.

        >>> import pyarrow as pa, tidegate as tg
        >>> calls = tg.stream({"ts": pa.timestamp("us"), "k": pa.string()}, time="ts")
        >>> counts = calls.key_by("k").window("1 minute").aggregate(n=tg.count())
        >>> counts.late().schema.names
        ['ts', 'k', 'missed_watermark']
        """
        return self._then(late_node(self._step("late", name), self.node, of))

    def _expressions(self, exprs: tuple[Any, ...], named: Mapping[str, Any], step: str) -> tuple[nw.Expr, ...]:
        computed = tuple(expressions.as_expr(expr) for expr in exprs)
        computed += tuple(
            (value if isinstance(value, nw.Expr) else nw.lit(value)).alias(column) for column, value in named.items()
        )
        if not computed:
            raise QueryError(f"step '{step}': name at least one column")
        for expr in computed:
            expressions.check_elementwise(expr, self.schema, step)
        return computed

    def _step(self, kind: str, name: str | None) -> str:
        """What a step after this stream is called, in messages and in the query."""
        return step_name(kind, name, self.node)

    def _then(self, node: Node) -> Self:
        """The stream after a new step."""
        check_names(node)
        return type(self)(node)


def source(
    name: str,
    schema: pa.Schema | Mapping[str, pa.DataType],
    *,
    time: str | ArrivalTime,
    disorder: Duration = 0,
    origin: Any = None,
    dead_letters: str | None = None,
    ahead: Duration | None = AHEAD,
    ahead_of: Literal["clock", "stream"] = "clock",
    watermark_step: Duration | None = None,
    idle_after: Duration | None = None,
) -> Source:
    """A checked source node."""
    columns = normal_schema(as_schema(schema, f"stream '{name}': schema"), name)
    if is_stamped := isinstance(time, ArrivalTime):
        if (disorder, ahead, ahead_of) != (0, AHEAD, "clock"):
            raise QueryError(
                f"stream '{name}': tuples arrive in order and never in the future, so disorder=, ahead= and ahead_of= mean "
                "nothing with time=tg.arrival(); leave them out"
            )
        columns, time, ahead = time.schema(columns, name), time.name, None
    kind = column_type(columns, time, name)
    if not pa.types.is_timestamp(kind):
        moments = [field.name for field in columns if pa.types.is_timestamp(field.type)]
        raise QueryError(
            f"stream '{name}': time='{time}' is {kind}, and event time is a timestamp; timestamps: {moments}"
        )
    disorder_us = parse_duration(disorder, f"stream '{name}': disorder")
    ahead_us = None if ahead is None else parse_duration(ahead, f"stream '{name}': ahead")
    if ahead_of not in ("clock", "stream"):
        raise QueryError(f"stream '{name}': ahead_of is 'clock' or 'stream'; got {ahead_of!r}")
    if ahead_of == "stream" and ahead is None:
        raise QueryError(f"stream '{name}': ahead_of='stream' goes with ahead=..., how far after its newest tuple")
    step_us = None if watermark_step is None else parse_duration(watermark_step, f"stream '{name}': watermark_step")
    if step_us == 0:
        raise QueryError(f"stream '{name}': watermark_step is how far its watermark moves at most at once, not zero")
    idle_us = None if idle_after is None else parse_duration(idle_after, f"stream '{name}': idle_after")
    if idle_us == 0:
        raise QueryError(f"stream '{name}': idle_after is how long it may be silent before it is passed over, not zero")
    bounds = ahead_us, ahead_of, step_us
    return Source(name, (), columns, time, disorder_us, origin, dead_letters, *bounds, is_stamped, idle_us)


def _describe(stream: Builder) -> str:
    return f"{show_columns(stream.schema)}; time {stream.time}"
