"""The law: tuples and watermark advances in, a bag of result rows out, one tuple at a time.

The stateful part follows algorithms 1 and 2 of STRETCH with window type *multi*: an expired window (``end ≤ W``) hands
out its results and is removed; a tuple joins every window it falls in under each of its keys. Unlike a runtime it keeps
whole tuples and computes an aggregate from all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.errors import DataError, InternalError, QueryError, choices
from tidegate.query.keys import Columns, Each, KeyFunction
from tidegate.query.nodes import Node, Source, Union, WindowAggregate, apply_stateless, walk
from tidegate.query.order import canonical
from tidegate.query.schema import conform
from tidegate.reference.aggregates import Tuple, value_of

_NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class Rows:
    """Tuples of one source that arrive, one after the other."""

    source: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Advance:
    """The watermark reaches a time in microseconds; ``math.inf`` ends the input."""

    watermark: float


Event = Rows | Advance


@dataclass(frozen=True, slots=True)
class Answer:
    """The result rows in the order in which they were made, and the tuples that came too late."""

    rows: pa.Table
    late: int
    late_tuples: tuple[Tuple, ...]


def interpret(query: Node, events: Iterable[Event]) -> Answer:
    """Run a query over a sequence of arrivals and watermark advances.

    The input ends with the events: windows still open then are handed out only by a last ``Advance(math.inf)``.
    """
    made: list[pa.Table] = []
    operators = {id(node): _Operator(node) for node in walk(query)}
    for node in walk(query):
        for upstream in node.inputs:
            operators[id(upstream)].readers.append(operators[id(node)])
    operators[id(query)].sink = made
    found = [node for node in walk(query) if isinstance(node, Source)]
    sources = {node.name: operators[id(node)] for node in found}
    if len(sources) < len(found):
        raise QueryError(
            f"arrivals are told apart by the names of their streams, and two are called alike: "
            f"{choices(node.name for node in found)}; name them with tg.stream(..., name='...')"
        )
    watermark = _NEVER
    for event in events:
        match event:
            case Rows(name, table):
                sources[name].receive(conform(table, sources[name].node.schema))
            case Advance(reached):
                if reached < watermark:
                    raise DataError(f"a watermark cannot go back: {reached} after {watermark}")
                watermark = reached
                for node in walk(query):
                    operators[id(node)].advance(watermark)
    late = [row for node in walk(query) for row in operators[id(node)].late]
    rows = pa.concat_tables(made) if made else query.schema.empty_table()
    return Answer(rows, len(late), tuple(late))


@dataclass
class _Operator:
    """One node at work: state, and where its tuples go."""

    node: Node
    readers: list[_Operator] = field(default_factory=list)
    sink: list[pa.Table] | None = None
    watermark: float = _NEVER
    windows: dict[int, dict[Any, _Instance]] = field(default_factory=dict)
    late: list[Tuple] = field(default_factory=list)

    def receive(self, table: pa.Table) -> None:
        """Take tuples that arrive."""
        match self.node:
            case Source() | Union():
                self.forward(table)
            case WindowAggregate():
                for offset in range(table.num_rows):
                    self.handle_tuple(self.node, table.slice(offset, 1))
            case _:
                self.forward(apply_stateless(self.node, table))

    def forward(self, table: pa.Table) -> None:
        """Hand tuples on."""
        if self.sink is not None:
            self.sink.append(table)
        for reader in self.readers:
            reader.receive(table)

    def advance(self, watermark: float) -> None:
        """Hand out every window that expires, earliest first, and forget those that are also past their lateness."""
        self.watermark = watermark
        if not isinstance(self.node, WindowAggregate):
            return
        window = self.node.window
        for number in sorted(self.windows):
            if window.end(number) <= watermark:
                instances = sorted(self.windows[number].values(), key=lambda instance: canonical(instance.key))
                self.emit(self.node, number, [instance for instance in instances if instance.revision < 0])
            if window.end(number) + window.lateness <= watermark:
                del self.windows[number]

    def handle_tuple(self, node: WindowAggregate, row: pa.Table) -> None:
        """Put one tuple into the windows and keys it belongs to (STRETCH, alg. 2, handleInputTuple)."""
        tuple_ = _python_row(row, node.input)
        covering = list(node.window.covering(tuple_[node.time]))
        if node.window.end(covering[-1]) + node.window.lateness <= self.watermark and _from_source(node):
            self.late.append(tuple_)
            return
        keys = _keys_of(node, row, tuple_)
        for number in covering:
            if node.window.end(number) + node.window.lateness <= self.watermark:
                continue
            for key in keys:
                instances = self.windows.setdefault(number, {})
                instance = instances.setdefault(canonical(key), _Instance(key))
                instance.tuples.append(tuple_)
            if node.window.end(number) <= self.watermark:
                touched = {canonical(key) for key in keys}
                self.emit(node, number, [self.windows[number][key] for key in sorted(touched)])

    def emit(self, node: WindowAggregate, number: int, instances: list[_Instance]) -> None:
        """Hand out the results of some keys of one window."""
        rows = []
        for instance in instances:
            instance.revision += 1
            row: Tuple = dict(zip(node.key_schema.names, instance.key, strict=True))
            row[node.time] = node.window.end(number) - 1
            row["window_start"] = node.window.start(number)
            row["window_end"] = node.window.end(number)
            row["revision"] = instance.revision
            for name, aggregate in node.aggregates:
                row[name] = value_of(aggregate, instance.tuples, node.input.schema, node.time)
            rows.append(row)
        if rows:
            columns = [_column([row[field.name] for row in rows], field.type) for field in node.schema]
            self.forward(pa.table(columns, schema=node.schema))


@dataclass
class _Instance:
    """The tuples of one key in one window, and how often it was handed out (−1: never)."""

    key: tuple[Any, ...]
    tuples: list[Tuple] = field(default_factory=list)
    revision: int = -1


def _from_source(node: WindowAggregate) -> bool:
    """Lateness is decided at the edge from a source, never on what another stateful operator made."""
    return not any(isinstance(upstream, WindowAggregate) for upstream in walk(node.input))


def _keys_of(node: WindowAggregate, row: pa.Table, tuple_: Tuple) -> list[tuple[Any, ...]]:
    match node.keys:
        case Columns(names):
            return [tuple(tuple_[name] for name in names)]
        case Each(column, _, distinct):
            keys = [(element,) for element in tuple_[column] or ()]
        case KeyFunction(_, _, reads, distinct):
            seen = row if reads is None else row.select(list(reads))
            batch = seen.combine_chunks().to_batches()[0]
            made = node.keys.key_lists(batch)[0].as_py() or []
            keys = [tuple(key.values()) if isinstance(key, dict) else (key,) for key in made]
        case _:
            raise InternalError(f"unknown keys {node.keys!r}")
    return list({canonical(key): key for key in keys}.values()) if distinct else keys


def _python_row(row: pa.Table, node: Node) -> Tuple:
    made = row.to_pylist()[0]
    moment = row.column(node.time).combine_chunks()
    if moment[0].as_py() is None:
        raise DataError(
            f"step '{node.name}': a tuple has no event time in '{node.time}': {made}; filter such tuples out"
        )
    made[node.time] = moment.cast(pa.int64())[0].as_py()
    return dict(made)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and values and isinstance(values[0], int):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
