"""A query of tidegate that was made of Aggregates, as a graph of this engine.

Rows hold the values of all columns but the event time. In front of an Aggregate with keys stands one that gives every row
its keys and its side, a copy for each key, as the first two of the paper's listing 2 do. Functions get all bags that expire
together, as Arrow tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import InternalError, UnsupportedError, choices
from tidegate.micro.graph import AggregateStage, ReplayableSource, Row, StageInput, aggregate, source
from tidegate.query.bag_functions import Aggregated, Iterate
from tidegate.query.bags import BagFunction, BagRows, Bags
from tidegate.query.keys import Columns, Each, KeyFunction, Keys, OneForAll
from tidegate.query.nodes import BagAggregate, Node, Outputs, Source, Union, WindowAggregate, walk
from tidegate.query.windows import Window

GivenBags = Sequence[tuple[Any, int, Sequence[Row]]]
_KEY = itemgetter(2)


def graph_of(query: Node, tables: Mapping[str, Sequence[pa.Table]], disorder_us: int | None = None) -> AggregateStage:
    """The graph of a query of sources, unions and Aggregates alone; ``tables`` are the batches of each source.

    ``disorder_us`` is how far rows are out of order, if that is another than the sources declare.
    """
    streams: dict[int, tuple[StageInput, ...]] = {}
    for node in walk(query):
        read = [streams[id(upstream)] for upstream in node.inputs]
        match node:
            case Source():
                disorder = node.disorder_us if disorder_us is None else disorder_us
                streams[id(node)] = (_source(node, tables[node.name], disorder),)
            case Union():
                streams[id(node)] = tuple(each for inputs in read for each in inputs)
            case WindowAggregate():
                streams[id(node)] = (_keyed(node, read, (node.keys,), node.key_schema, node.window, Aggregated(node)),)
            case Outputs():
                raise UnsupportedError(
                    f"the engine of one operator gives one result, and this query has several: {choices(node.names)}; run "
                    "it on='local', or each of them alone"
                )
            case BagAggregate(function=function):
                if isinstance(function, Iterate) or node.loop_us is not None:
                    raise UnsupportedError(
                        f"step '{node.name}' is a loop, which the engine of one operator does not have"
                    )
                if function.per_tuple:
                    each = _PerTuple(node, function)
                    stage = aggregate(node.name, *read[0], function=each, size_us=1, distributes=True, at_once=True)
                else:
                    stage = _keyed(node, read, node.keys, node.key_schema, node.window, function)
                streams[id(node)] = (stage,)
            case _:
                raise UnsupportedError(
                    f"step '{node.name}' is no Aggregate; lower the query with operators='multi' first"
                )
    last = streams[id(query)]
    if len(last) == 1 and isinstance(last[0], AggregateStage):
        return last[0]
    return aggregate(f"{query.name}, results", *last, function=_unchanged, size_us=1, distributes=True)


def table_of_rows(rows: Sequence[Row], node: Node, skip: int = 0) -> pa.Table:
    """Rows of a node as a table; ``skip`` values lie between the time and the columns."""
    columns = list(zip(*rows, strict=True)) or [()] * (1 + skip + len(node.schema) - 1)
    moment = node.schema.field(node.time).type
    values = iter(columns[1 + skip :])
    arrays = [
        pa.array(columns[0], pa.int64()).cast(moment) if field.name == node.time else pa.array(next(values), field.type)
        for field in node.schema
    ]
    return pa.table(arrays, schema=node.schema)


def _source(node: Source, batches: Sequence[pa.Table], disorder_us: int) -> ReplayableSource:
    return source(node.name, [(list(batches), node.time)], _read_tables, disorder_us=disorder_us)


def _read_tables(split: tuple[list[pa.Table], str], skip: int) -> Iterator[list[Row]]:
    for table in split[0]:
        rows = table.slice(skip)
        skip = max(0, skip - table.num_rows)
        if rows.num_rows:
            times = rows.column(split[1]).cast(pa.int64()).to_pylist()
            yield list(zip(times, *_values(rows, split[1]), strict=True))


def _values(table: pa.Table, time: str) -> list[list[Any]]:
    return [table.column(name).to_pylist() for name in table.column_names if name != time]


def _unchanged(key: Any, at: int, rows: Sequence[Row]) -> list[Row]:
    return [row[1:] for row in rows]


def _keyed(
    node: Node,
    read: list[tuple[StageInput, ...]],
    keys: tuple[Keys, ...],
    key_schema: pa.Schema,
    window: Window,
    function: BagFunction,
) -> AggregateStage:
    """An Aggregate with keys, and for each of its inputs one before it that gives rows their keys and side."""
    sides = [
        aggregate(
            f"{node.name}, keys of input {side}",
            *inputs,
            function=_WithKeys(node.inputs[side], keys[side], side),
            size_us=1,
            distributes=True,
            at_once=True,
        )
        for side, inputs in enumerate(read)
    ]
    work = _OfBags(node, key_schema, window, function)
    return aggregate(
        node.name, *sides, function=work, size_us=window.size, every_us=window.every, key=_KEY, at_once=True
    )


@dataclass(frozen=True, slots=True)
class _PerTuple:
    """A function of single tuples, for those of several times at once."""

    node: BagAggregate
    function: BagFunction

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        starts, of = np.unique(np.array([row[0] for row in rows], np.int64), return_inverse=True)
        keys = pa.table({"none": pa.nulls(len(starts))})
        table = table_of_rows(rows, self.node.input)
        found = self.function(Bags(keys, starts, starts + 1, (table,), (np.arange(len(rows)),), (of,)))
        return list(zip(starts[found.of].tolist(), *_columns_of(found, self.node), strict=True))


@dataclass(frozen=True, slots=True)
class _WithKeys:
    """Rows with their side, their key as what tells it apart, and its values: one for each key."""

    upstream: Node
    keys: Keys
    side: int

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        found = _keys_of(self.keys, table_of_rows(rows, self.upstream))
        return [
            (row[0], self.side, _told_apart(key), key, *row[1:])
            for row, keys in zip(rows, found, strict=True)
            for key in keys
        ]


@dataclass(frozen=True, slots=True)
class _OfBags:
    """A function of bags of keyed rows."""

    node: Node
    key_schema: pa.Schema
    window: Window
    function: BagFunction

    def __call__(self, bags: GivenBags) -> list[list[Row]]:
        columns = list(zip(*(bag[0][3] for _, _, bag in bags), strict=True))
        kinds = self.key_schema.types
        keys = pa.table(
            [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)], schema=self.key_schema
        )
        starts = np.array([start for _, start, _ in bags], np.int64)
        tables, numbers = [], []
        for side, upstream in enumerate(self.node.inputs):
            parts = [[row for row in bag if row[1] == side] for _, _, bag in bags]
            tables.append(table_of_rows([row for part in parts for row in part], upstream, skip=3))
            numbers.append(np.repeat(np.arange(len(bags)), list(map(len, parts))))
        places = tuple(np.arange(table.num_rows) for table in tables)
        given = Bags(keys, starts, starts + self.window.size, tuple(tables), places, tuple(numbers))
        return _by_bag(self.function, given, self.node)


def _by_bag(function: BagFunction, bags: Bags, node: Node) -> list[list[Row]]:
    """What a function gives, as rows for each bag."""
    found = function(bags)
    given: list[list[Row]] = [[] for _ in range(len(bags))]
    for row, bag in zip(zip(*_columns_of(found, node), strict=True), found.of.tolist(), strict=True):
        given[bag].append(row)
    return given


def _columns_of(found: BagRows, node: Node) -> list[list[Any]]:
    """The values of result rows by column, without their time."""
    return [found.rows.column(name).to_pylist() for name in node.schema.names if name != node.time]


def _keys_of(keys: Keys, table: pa.Table) -> Iterator[list[tuple[Any, ...]]]:
    """The keys of every row."""
    match keys:
        case Columns(names):
            yield from ([key] for key in zip(*(table.column(name).to_pylist() for name in names), strict=True))
            return
        case OneForAll():
            yield from ([(None,)] for _ in range(table.num_rows))
            return
        case Each(column, _, distinct):
            lists = table.column(column).to_pylist()
        case KeyFunction(_, _, reads, distinct):
            seen = table if reads is None else table.select(list(reads))
            lists = keys.key_lists(seen.combine_chunks().to_batches()[0]).to_pylist() if table.num_rows else []
        case _:
            raise InternalError(f"unknown keys {keys!r}")
    for elements in lists:
        found = [tuple(each.values()) if isinstance(each, dict) else (each,) for each in elements or ()]
        yield list({_told_apart(key): key for key in found}.values()) if distinct else found


def _told_apart(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key that is equal for equal keys: NaN is one value, and −0.0 is 0.0."""
    return tuple(map(_plain, key))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return ("nan",) if math.isnan(value) else value + 0.0
    return value.isoformat() if isinstance(value, date) else value
