"""What Aggregates compute when they stand for other operators: every function here gives rows for the bags it gets.

They are the functions f_O of the paper's listings 1 to 3, over many bags at once. `PairUp` and `Aggregated` are written for
clarity: they try every pair and look at every tuple, and runtimes have faster ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.bags import Array, BagFunction, BagRows, Bags
from tidegate.query.nodes import Join, Node, Source, Stateless, WindowAggregate
from tidegate.query.overflow import keep_fitting
from tidegate.query.predicates.predicate import plain_values
from tidegate.query.schema import contiguous
from tidegate.query.stateless import apply_stateless

ITEMS, INDEX, NUMBER = "__tg_items", "__tg_index", "__tg_number"
"""The columns of a tuple that embeds others: those others, which of them comes next, and what tells it from others."""
PAIRS_AT_ONCE = 1 << 20
EMBEDDED = -1
"""The index of a tuple that comes from an Embed."""


@dataclass(frozen=True, slots=True, eq=False)
class ForEach:
    """Maps and filters of every tuple, one after the other, in windows of 1 µs: f_M of listing 1. Rows keep their time."""

    steps: tuple[Stateless, ...]
    per_tuple: bool = True

    def __call__(self, bags: Bags) -> BagRows:
        result, step = bags.entries(), self.steps[-1]
        for each in self.steps:
            result = apply_stateless(each, result)
        times = times_of(result, step.time)
        first = np.flatnonzero(_is_first(bags.starts))
        place = np.searchsorted(bags.starts[first], times)
        known = place < len(first)
        known[known] = bags.starts[first[place[known]]] == times[known]
        if not known.all():
            raise DataError(
                f"step '{step.name}': the function gave a row the event time {int(times[~known][0])}, which no tuple has "
                "that it was given; where operators are made of Aggregates a map keeps the event time of its tuples"
            )
        return BagRows(result.drop_columns([step.time]), first[place])


@dataclass(frozen=True, slots=True, eq=False)
class PairUp:
    """The pairs of a bag of two inputs that fit a predicate: f_O of listing 2. A key with a null has none."""

    join: Join
    per_tuple: bool = False

    def __call__(self, bags: Bags) -> BagRows:
        parts = [self._fitting(part) for part in _in_parts(self.keyed(bags))]
        return self.result(bags, *map(np.concatenate, zip(*parts, strict=True)))

    def keyed(self, bags: Bags) -> Bags:
        """The same bags, in which those with a null in their key are empty."""
        if not self.join.on or not any(column.null_count for column in bags.keys.columns):
            return bags
        keyed = np.logical_and.reduce([np.asarray(column.is_valid()) for column in bags.keys.columns])
        kept = [keyed[each] for each in bags.bags]
        rows = tuple(each[keep] for each, keep in zip(bags.rows, kept, strict=True))
        return replace(bags, rows=rows, bags=tuple(each[keep] for each, keep in zip(bags.bags, kept, strict=True)))

    def _fitting(self, bags: Bags) -> tuple[Array, Array, Array]:
        """The pairs that fit: the tuple of each side, and the bag."""
        left, right = cross(bags)
        rows = bags.rows[0][left], bags.rows[1][right]
        fits = self._fits(bags, *rows)
        return rows[0][fits], rows[1][fits], bags.bags[0][left[fits]]

    def result(self, bags: Bags, left: Array, right: Array, of: Array) -> BagRows:
        """The rows of pairs of tuples, each with its bag."""
        join = self.join
        columns = pair_columns(join, bags.tuples, left, right)
        moment = join.schema.field(join.time).type
        columns |= {
            name: pa.array(bounds[of]).view(moment)
            for name, bounds in (("window_start", bags.starts), ("window_end", bags.ends))
        }
        schema = pa.schema([field for field in join.schema if field.name != join.time])
        return BagRows(pa.table([columns[name] for name in schema.names], schema=schema), of)

    def _fits(self, bags: Bags, left: Array, right: Array) -> Array:
        where = self.join.where
        if where is None:
            return np.arange(len(left))
        if where.tree is None and isinstance(where.given, nw.Expr):
            pairs = pa.table(
                {**pair_columns(self.join, bags.tuples, left, right), NUMBER: pa.array(np.arange(len(left)))}
            )
            return np.asarray(keep_fitting(pairs, where.given).column(NUMBER))
        lefts, rights = (plain_values(table) for table in bags.tuples)
        numbers = zip(left.tolist(), right.tolist(), strict=True)
        fits = [where.holds(lefts[one], rights[other], self.join.name) for one, other in numbers]
        return np.flatnonzero(np.array(fits, np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class Aggregated:
    """The declared aggregates of a bag: what an Aggregate computes that stands for itself."""

    node: WindowAggregate
    per_tuple: bool = False

    def __call__(self, bags: Bags) -> BagRows:
        node = self.node
        tuples = bags.entries().set_column(
            bags.tuples[0].schema.get_field_index(node.time), node.time, pa.array(times_of(bags.entries(), node.time))
        )
        parts = np.split(np.arange(tuples.num_rows), np.cumsum(bags.sizes())[:-1])
        held = [tuples.take(pa.array(part)).to_pylist() for part in parts]
        moment = node.schema.field(node.time).type
        columns: dict[str, Any] = dict(zip(node.key_schema.names, bags.keys.columns, strict=True))
        columns |= {"window_start": pa.array(bags.starts).view(moment), "window_end": pa.array(bags.ends).view(moment)}
        schema = pa.schema([field for field in node.schema if field.name != node.time])
        for name, aggregate in node.aggregates:
            values = [aggregate.value(part, node.input.schema, node.time) for part in held]
            columns[name] = pa.array(values, schema.field(name).type)
        return BagRows(
            pa.table([columns[name] for name in schema.names], schema=schema), np.arange(len(bags), dtype=np.int64)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """All rows that another function gives for a bag, in one tuple; nothing where it gives none (listings 1 and 2, line 4).

    Tuples of one time are told apart by a number. Where it does not matter to the other function which tuples share a bag,
    it does not matter here either: the same rows are embedded, in more or fewer tuples.
    """

    inner: BagFunction

    @property
    def per_tuple(self) -> bool:
        return self.inner.per_tuple

    def __call__(self, bags: Bags) -> BagRows:
        rank = _rank(bags.starts)
        parts, owners = [], []
        # A function of single tuples tells by the time alone where a row comes from: one bag of each time in a call.
        turns = int(rank.max(initial=0)) + 1 if self.inner.per_tuple else 1
        for turn in range(turns):
            chosen = np.flatnonzero(rank == turn) if turns > 1 else np.arange(len(bags))
            found = self.inner(bags.take(rank == turn) if turns > 1 else bags)
            parts.append(found.rows)
            owners.append(chosen[found.of])
        rows, of = pa.concat_tables(parts), np.concatenate(owners)
        if (of[1:] < of[:-1]).any():
            order = np.argsort(of, kind="stable")
            rows = rows.take(pa.array(order))
        sizes = np.bincount(of, minlength=len(bags))
        some = np.flatnonzero(sizes)
        columns = {
            ITEMS: lists_of(rows, sizes[some]),
            INDEX: pa.array(np.full(len(some), EMBEDDED)),
            NUMBER: pa.array(rank[some]),
        }
        return BagRows(pa.table(columns), some)


@dataclass(frozen=True, slots=True, eq=False)
class Unfold:
    """What loops: a tuple that embeds others becomes one that points at the first, and that at the next (listing 3, A₁).

    It ends at the last one: as printed the listing goes one too far. Equal tuples of an Embed are one bag, and all that they
    embed goes into one tuple: a bag, not a set. What is embedded is not copied from round to round: lists are views.
    """

    per_tuple: bool = False

    def __call__(self, bags: Bags) -> BagRows:
        entries, of = bags.entries(), bags.bags[0]
        items, index = contiguous(entries.column(ITEMS)), np.asarray(contiguous(entries.column(INDEX)))
        first = np.flatnonzero(_is_first(of))
        if len(first) < len(of):
            items = _merged(items, index, of)
        # All tuples of a bag have one index, which is part of their key. That of an embedding one is just before the first.
        following = index[first] + 1
        going = np.flatnonzero(following < np.asarray(items.sizes))
        columns = {
            ITEMS: items if len(going) == len(items) else items.take(pa.array(going)),
            INDEX: pa.array(following[going]),
            NUMBER: contiguous(entries.column(NUMBER)).take(pa.array(first[going])),
        }
        return BagRows(pa.table(columns), of[first[going]])


@dataclass(frozen=True, slots=True, eq=False)
class AtIndex:
    """The one of the embedded tuples that a tuple points at (listing 3, A₂)."""

    per_tuple: bool = False

    def __call__(self, bags: Bags) -> BagRows:
        entries, of = bags.entries(), bags.bags[0]
        first = np.flatnonzero(_is_first(of))
        items, index = contiguous(entries.column(ITEMS)), np.asarray(contiguous(entries.column(INDEX)))
        places = np.asarray(items.offsets)[first] + index[first]
        return BagRows(_structs(items.values.take(pa.array(places))), of[first])


@dataclass(frozen=True, slots=True, eq=False)
class Iterate:
    """A loop of the user's: rows of one time run through a body, and what it feeds back runs through it again, in rounds.

    ``entry`` is the stream that the body reads, ``back`` what it feeds back and ``out`` what leaves; both keep the time of
    their rows. A row that would run after ``rounds`` rounds stops the query.
    """

    entry: Source
    back: Node
    out: Node
    rounds: int


def keeps_times(step: str, given: pa.Table, made: pa.Table, time: str) -> None:
    """Refuse rows of a round that have a time which none of the rows has that the round was given."""
    strange = np.setdiff1d(times_of(made, time), times_of(given, time))
    if len(strange):
        raise DataError(
            f"step '{step}': the body of the loop gave a row the event time {int(strange[0])}, which no row of the round "
            "has; rows keep their event time while they loop"
        )


def past_last_round(step: str, loop: Iterate, rows: pa.Table) -> DataError:
    """The error of a loop that feeds rows back after its last round."""
    return DataError(
        f"step '{step}': after {loop.rounds} rounds, as many as rounds= allows, {rows.num_rows} rows would run again, such "
        f"as {rows.slice(0, 1).to_pylist()[0]}; allow more rounds, or let such rows leave"
    )


def cross(bags: Bags) -> tuple[Array, Array]:
    """All pairs of entries of two inputs that share a bag: which entry of each side."""
    sizes = bags.sizes(1)
    counts = sizes[bags.bags[0]]
    left = np.repeat(np.arange(len(counts)), counts)
    starts = (np.cumsum(sizes) - sizes)[bags.bags[0]]
    right = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts) + starts[left]
    return left, right


def _in_parts(bags: Bags) -> Iterator[Bags]:
    """Bags with fewer tuples of the first input, so that they have at most `PAIRS_AT_ONCE` pairs; at least one part."""
    pairs = np.cumsum(bags.sizes(1)[bags.bags[0]])
    starts = np.flatnonzero(np.diff(pairs // PAIRS_AT_ONCE, prepend=-1))
    for low, high in pairwise([*(starts.tolist() or [0]), len(pairs)]):
        yield replace(bags, rows=(bags.rows[0][low:high], bags.rows[1]), bags=(bags.bags[0][low:high], bags.bags[1]))


def embedding(schema: pa.Schema, time: str) -> pa.Schema:
    """The columns of tuples that embed tuples of a schema."""
    inside = pa.list_view(pa.struct([field for field in schema if field.name != time]))
    return pa.schema([schema.field(time), (ITEMS, inside), (INDEX, pa.int64()), (NUMBER, pa.int64())])


def times_of(table: pa.Table, time: str) -> Array:
    """The event times of rows in microseconds."""
    return np.asarray(contiguous(table.column(time)).view(pa.int64()))


def lists_of(rows: pa.Table, sizes: Array) -> pa.ListViewArray:
    """Consecutive rows as lists of structs of some sizes."""
    if rows.num_columns == 0:
        values = pa.array([{}] * int(sizes.sum()), pa.struct([]))
    else:
        values = pa.StructArray.from_arrays([contiguous(column) for column in rows.columns], fields=list(rows.schema))
    offsets = np.cumsum(sizes) - sizes
    return pa.ListViewArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(sizes.astype(np.int32)), values)


def _merged(items: pa.ListViewArray, index: Array, of: Array) -> pa.ListViewArray:
    """One list for each bag: of those that an Embed gave all that they hold, of equal ones that loop the first."""
    offsets, sizes = (
        np.asarray(items.offsets),
        np.where((index == EMBEDDED) | _is_first(of), np.asarray(items.sizes), 0),
    )
    places = np.arange(sizes.sum()) + np.repeat(offsets - (np.cumsum(sizes) - sizes), sizes)
    merged = np.bincount(of, sizes).astype(np.int64)
    return lists_of(_structs(items.values.take(pa.array(places))), merged)


def _structs(values: pa.StructArray) -> pa.Table:
    """The fields of structs as columns."""
    return pa.table(values.flatten(), schema=pa.schema(list(values.type)))


def pair_columns(join: Join, tuples: tuple[pa.Table, ...], left: Array, right: Array) -> dict[str, Any]:
    """The columns of pairs, given by the rows of tuples of both sides."""
    rows = tuples[0].take(pa.array(left)), tuples[1].take(pa.array(right))
    return {column.name: rows[column.side].column(column.column) for column in join.columns}


def _rank(starts: Array) -> Array:
    """The position of each bag among those of its window; bags of a window are neighbours."""
    places = np.arange(len(starts))
    return places - np.maximum.accumulate(np.where(_is_first(starts), places, 0))


def _is_first(values: Array) -> Array:
    """Mark the values that differ from the one before them."""
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)]
