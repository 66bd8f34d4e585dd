"""The law: tuples and watermark advances in, a bag of result rows out, one tuple at a time.

A stateless step is applied to what arrives. What a stateful one does with a tuple and a watermark is written down in a
file of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidegate.errors import DataError, InternalError, QueryError, choices
from tidegate.query.event_time import check_times
from tidegate.query.nodes import (
    Join,
    KeyedApply,
    Node,
    Source,
    Stateful,
    Union,
    WindowAggregate,
    apply_stateless,
    is_stateful,
    unique_names,
    walk,
)
from tidegate.query.schema import fitting
from tidegate.reference.aggregates import Tuple
from tidegate.reference.ahead import AheadLaw
from tidegate.reference.joins import JoinLaw
from tidegate.reference.keyed_apply import KeyedApplyLaw
from tidegate.reference.windows import WindowLaw
from tidegate.watermark import START, Watermark


@dataclass(frozen=True, slots=True)
class Rows:
    """Tuples of one source that arrive, one after the other.

    ``clock`` is when they are read, in microseconds since the epoch; without it none of them is in the future.
    """

    source: str
    table: pa.Table
    clock: int | None = None


@dataclass(frozen=True, slots=True)
class Advance:
    """The watermark reaches a time in microseconds; ``END`` ends the input."""

    watermark: Watermark


Event = Rows | Advance


@dataclass(frozen=True, slots=True)
class Answer:
    """The result rows in the order in which they were made, the tuples that came too late, and those set aside.

    ``ahead_tuples`` are those, by stream, that lay further in the future than it allows.
    """

    rows: pa.Table
    late: int
    late_tuples: tuple[Tuple, ...]
    ahead: int = 0
    ahead_tuples: Mapping[str, tuple[Tuple, ...]] = field(default_factory=dict)


class Law(Protocol):
    """What a stateful operator does."""

    @property
    def late(self) -> Sequence[Tuple]:
        """The tuples that came too late."""
        ...

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Take one tuple that arrives at an input; yields results."""
        ...

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """The watermark moves; yields results."""
        ...


def law_of(node: Stateful) -> Law:
    """The law of a stateful node."""
    match node:
        case WindowAggregate():
            return WindowLaw(node)
        case KeyedApply():
            return KeyedApplyLaw(node)
        case Join():
            return JoinLaw(node)
        case _:
            raise InternalError(f"no law is known for {type(node).__name__}")


def interpret(query: Node, events: Iterable[Event]) -> Answer:
    """Run a query over a sequence of arrivals and watermark advances.

    The input ends with the events: windows still open then are handed out only by a last ``Advance(END)``. Sources
    are told apart by their names, as `unique_names` makes them.
    """
    query = unique_names(query)
    made: list[pa.Table] = []
    operators = {id(node): _Operator(node, law_of(node) if is_stateful(node) else None) for node in walk(query)}
    for node in walk(query):
        for side, upstream in enumerate(node.inputs):
            operators[id(upstream)].readers.append((operators[id(node)], side))
    operators[id(query)].sink = made
    sources = {node.name: operators[id(node)] for node in walk(query) if isinstance(node, Source)}
    ahead = {node.name: AheadLaw(node) for node in walk(query) if isinstance(node, Source)}
    watermark = START
    for event in events:
        match event:
            case Rows(name, table, clock):
                if name not in sources:
                    raise QueryError(f"there is no stream {name!r}; there is {choices(sources)}")
                arrived = fitting(table, sources[name].node.schema, f"stream '{name}'")
                sources[name].receive(ahead[name].timely(arrived, clock), 0)
            case Advance(reached):
                if reached < watermark:
                    raise DataError(f"a watermark cannot go back: {reached} after {watermark}")
                watermark = reached
                for node in walk(query):
                    operators[id(node)].advance(watermark)
    late = [row for node in walk(query) for row in operators[id(node)].late]
    rows = pa.concat_tables(made) if made else query.schema.empty_table()
    aside = {name: tuple(law.set_aside) for name, law in ahead.items() if law.set_aside}
    return Answer(rows, len(late), tuple(late), sum(map(len, aside.values())), aside)


@dataclass
class _Operator:
    """One node at work: what it does, and where its tuples go."""

    node: Node
    law: Law | None
    readers: list[tuple[_Operator, int]] = field(default_factory=list)
    sink: list[pa.Table] | None = None

    @property
    def late(self) -> Sequence[Tuple]:
        return () if self.law is None else self.law.late

    def receive(self, table: pa.Table, side: int) -> None:
        """Take tuples that arrive at an input."""
        if self.law is not None:
            for offset in range(table.num_rows):
                for made in self.law.receive(side, table.slice(offset, 1)):
                    self.forward(made)
        elif isinstance(self.node, Source):
            times = table.column(self.node.time).cast(pa.int64()).to_numpy()
            check_times(times, f"stream '{self.node.name}'", self.node.time)
            self.forward(table)
        elif isinstance(self.node, Union) or is_stateful(self.node):
            self.forward(table)
        else:
            self.forward(apply_stateless(self.node, table))

    def forward(self, table: pa.Table) -> None:
        """Hand tuples on."""
        if self.sink is not None:
            self.sink.append(table)
        for reader, side in self.readers:
            reader.receive(table, side)

    def advance(self, watermark: Watermark) -> None:
        """The watermark moves."""
        if self.law is not None:
            for made in self.law.advance(watermark):
                self.forward(made)
