"""The law: tuples and watermark advances in, a bag of result rows out, one tuple at a time.

A stateless step is applied to what arrives. What a stateful one does with a tuple and a watermark is written down in a
file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.errors import DataError, QueryError, choices
from tidegate.query.arrival import stamped
from tidegate.query.bag_functions import Iterate
from tidegate.query.event_time import ahead_bound, ahead_error, check_times, show_moment
from tidegate.query.late import with_missed
from tidegate.query.names import unique_names
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Join,
    KeyedApply,
    Late,
    Node,
    Outputs,
    Running,
    SessionAggregate,
    Source,
    Stateful,
    Union,
    WindowAggregate,
    is_stateful,
    sources,
    walk,
)
from tidegate.query.outputs import tagged, untagged
from tidegate.query.schema import fitting
from tidegate.query.stateless import apply_stateless
from tidegate.reference.as_of import AsOfLaw
from tidegate.reference.bags import BagLaw
from tidegate.reference.count_joins import CountJoinLaw
from tidegate.reference.count_windows import CountLaw
from tidegate.reference.dedup import DedupLaw
from tidegate.reference.feedback import FeedbackLaw
from tidegate.reference.joins import JoinLaw
from tidegate.reference.keyed_apply import KeyedApplyLaw
from tidegate.reference.loops import LoopLaw
from tidegate.reference.rows import LateTuple, RowValues
from tidegate.reference.running import RunningLaw
from tidegate.reference.sessions import SessionLaw
from tidegate.reference.windows import WindowLaw
from tidegate.watermark import END, START, Watermark


@dataclass(frozen=True, slots=True)
class Rows:
    """Tuples of one source that arrive, one after the other.

    ``clock`` is when they are read, in microseconds since the epoch; without it none of them is in the future. Where the
    stream has times of arrival they are these, unless the table has some that were recorded.
    """

    source: str
    table: pa.Table
    clock: int | None = None


@dataclass(frozen=True, slots=True)
class Advance:
    """The watermark reaches a time in microseconds, of one stateful step or of all; ``END`` ends the input.

    A step that not all sources reach may be ahead of others.
    """

    watermark: Watermark
    step: str | None = None


Event = Rows | Advance


@dataclass(frozen=True, slots=True)
class Answer:
    """The result rows in the order in which they were emitted, the tuples that came too late, and those set aside.

    Of a query with several results ``rows`` are those of all, each in the column of its result (`query.nodes.Outputs`), and
    ``answer["name"]`` are those of one.
    ``ahead_tuples`` are those, by stream, that lay further in the future than it allows, ``ahead_rows`` their numbers
    among all tuples of the stream, from 0. ``unfilled`` counts windows in number of tuples that were not full at the end.
    """

    rows: pa.Table
    late: int
    late_tuples: tuple[LateTuple, ...]
    ahead: int = 0
    ahead_tuples: Mapping[str, tuple[RowValues, ...]] = field(default_factory=dict)
    ahead_rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unfilled: int = 0

    def __getitem__(self, name: str) -> pa.Table:
        return untagged(self.rows, name)


Law = (
    WindowLaw
    | SessionLaw
    | CountLaw
    | KeyedApplyLaw
    | RunningLaw
    | DedupLaw
    | AsOfLaw
    | JoinLaw
    | CountJoinLaw
    | BagLaw
    | LoopLaw
    | FeedbackLaw
)


def _bag_law(node: BagAggregate) -> BagLaw | LoopLaw | FeedbackLaw:
    if isinstance(node.function, Iterate):
        return FeedbackLaw(node, _run_body)
    return BagLaw(node) if node.loop_us is None else LoopLaw(node)


def _run_body(query: Node, rows: pa.Table) -> pa.Table:
    """The results of a query of one stream over all of its input."""
    return interpret(query, [Rows(sources(query)[0].name, rows), Advance(END)]).rows


_LAWS: Mapping[type[Stateful], Callable[[Any], Law]] = {
    WindowAggregate: WindowLaw,
    SessionAggregate: SessionLaw,
    CountAggregate: CountLaw,
    KeyedApply: KeyedApplyLaw,
    Running: RunningLaw,
    Dedup: DedupLaw,
    AsOf: AsOfLaw,
    Join: JoinLaw,
    CountJoin: CountJoinLaw,
    BagAggregate: _bag_law,
}


def interpret(query: Node, events: Iterable[Event]) -> Answer:
    """Run a query over a sequence of arrivals and watermark advances.

    The input ends with the events: windows still open then are emitted only by a last ``Advance(END)``. Sources
    are told apart by their names, as `unique_names` gives them.
    """
    query = unique_names(query)
    results: list[pa.Table] = []
    operators = {
        id(node): _Operator(node, _LAWS[type(node)](node) if is_stateful(node) else None) for node in walk(query)
    }
    for node in walk(query):
        for side, upstream in enumerate(node.inputs):
            if isinstance(node, Late):
                operators[id(upstream)].late_readers.append((operators[id(node)], node.side))
            else:
                operators[id(upstream)].readers.append((operators[id(node)], side))
    operators[id(query)].sink = results
    readers = {source.name: operators[id(source)] for source in sources(query)}
    ahead = {source.name: AheadLaw(source) for source in sources(query)}
    running = {
        source.name: [
            operator.law
            for operator in operators.values()
            if isinstance(operator.law, RunningLaw) and source in sources(operator.node)
        ]
        for source in sources(query)
    }
    watermarks: dict[str, Watermark] = {}
    for event in events:
        match event:
            case Rows(name, table, clock):
                if name not in readers:
                    raise QueryError(f"there is no stream {name!r}; there is {choices(readers)}")
                timely = ahead[name].timely(ahead[name].arrived(table, clock), clock)
                for law in running[name]:
                    law.reach(ahead[name].newest)
                readers[name].receive(timely, 0)
            case Advance(reached, step):
                for node in walk(query):
                    if step in (None, node.name):
                        if reached < watermarks.get(node.name, START):
                            raise DataError(f"a watermark cannot go back: {reached} after {watermarks[node.name]}")
                        watermarks[node.name] = reached
                        operators[id(node)].advance(reached)
    late = [row for node in walk(query) for row in operators[id(node)].late]
    rows = pa.concat_tables(results) if results else query.schema.empty_table()
    aside = {name: tuple(values for _, values in law.set_aside) for name, law in ahead.items() if law.set_aside}
    numbers = {name: tuple(number for number, _ in ahead[name].set_aside) for name in aside}
    unfilled = sum(each.law.unfilled for each in operators.values() if isinstance(each.law, CountLaw))
    return Answer(rows, len(late), tuple(late), sum(map(len, aside.values())), aside, numbers, unfilled)


@dataclass
class AheadLaw:
    """One source: its tuples from too far in the future enter nothing and move no watermark.

    ``set_aside`` has each of them and its number among all tuples, ``newest`` the newest time of the others.
    """

    source: Source
    set_aside: list[tuple[int, RowValues]] = field(default_factory=list)
    newest: int | None = None
    seen: int = 0

    def arrived(self, table: pa.Table, clock: int | None) -> pa.Table:
        """Tuples that are read at a time of the clock, with their times of arrival, where those are their event times."""
        source, subject = self.source, f"stream '{self.source.name}'"
        if not source.stamped or source.time in table.column_names:
            return fitting(table, source.schema, subject)
        if clock is None:
            raise QueryError(
                f"{subject}: its event times are times of arrival; say when tuples are read, Rows(name, table, clock), or "
                f"give those that were recorded, a column '{source.time}'"
            )
        moment = clock if self.newest is None else max(clock, self.newest)
        return stamped(fitting(table, source.read_schema, subject), source.time, moment)

    def timely(self, table: pa.Table, clock: int | None) -> pa.Table:
        """The tuples that may enter, of those that are read at a time of the clock, one after the other."""
        kept = []
        for offset, time in enumerate(table.column(self.source.time).cast(pa.int64()).to_pylist()):
            limit = ahead_bound(self.source, clock, self.newest)
            if time is None:  # what reads it says so
                kept.append(offset)
                continue
            if limit is not None and time > limit:
                if self.source.ahead_of == "stream" and self.newest is not None:
                    what = f"a tuple has {show_moment(time)} in '{self.source.time}'"
                    raise ahead_error(self.source, what, self.newest)
                # No calendar may have its time, so that stays a number.
                others = table.slice(offset, 1).drop_columns([self.source.time]).to_pylist()[0]
                values = {name: others.get(name, time) for name in table.column_names}
                self.set_aside.append((self.seen + offset, values))
                continue
            kept.append(offset)
            self.newest = time if self.newest is None else max(self.newest, time)
        self.seen += table.num_rows
        return table if len(kept) == table.num_rows else table.take(kept)


@dataclass
class _Operator:
    """One node at work: what it does, and where its tuples go; those that are late for an input go to ``late_readers``."""

    node: Node
    law: Law | None
    readers: list[tuple[_Operator, int]] = field(default_factory=list)
    late_readers: list[tuple[_Operator, int]] = field(default_factory=list)
    sink: list[pa.Table] | None = None

    @property
    def late(self) -> Sequence[LateTuple]:
        return () if self.law is None else self.law.late

    def receive(self, table: pa.Table, side: int) -> None:
        """Take tuples that arrive at an input."""
        if self.law is not None:
            for offset in range(table.num_rows):
                row, before = table.slice(offset, 1), len(self.law.late)
                for rows in self.law.receive(side, row):
                    self.forward(rows)
                for late in self.law.late[before:]:
                    for reader, wanted in self.late_readers:
                        if wanted == side:
                            reader.receive(with_missed(row, self.node.inputs[side].time, late.missed_watermark), 0)
        elif isinstance(self.node, Source):
            times = table.column(self.node.time).cast(pa.int64()).to_numpy()
            check_times(times, f"stream '{self.node.name}'", self.node.time)
            self.forward(table)
        elif isinstance(self.node, Outputs):
            self.forward(tagged(self.node, side, table))
        elif isinstance(self.node, Union | Late) or is_stateful(self.node):
            self.forward(table)
        else:
            self.forward(apply_stateless(self.node, table))

    def forward(self, table: pa.Table) -> None:
        """Pass tuples on."""
        if self.sink is not None:
            self.sink.append(table)
        for reader, side in self.readers:
            reader.receive(table, side)

    def advance(self, watermark: Watermark) -> None:
        """The watermark moves."""
        if self.law is not None:
            for rows in self.law.advance(watermark):
                self.forward(rows)


def events_of(
    query: Node, tables: Mapping[str, pa.Table], batch_rows: int = 1000, clock: int | None = None
) -> Iterator[Event]:
    """Feed tables in turns of ``batch_rows``; after each turn W is the least over sources of latest τ − disorder.

    ``clock`` is when all of them are read: a tuple too far after it moves no watermark.
    """
    query = unique_names(query)
    named = sources(query)
    latest = dict.fromkeys((source.name for source in named), START)
    watermark = START
    ahead = {source.name: AheadLaw(source) for source in named}
    longest = max((table.num_rows for table in tables.values()), default=0)
    for offset in range(0, longest, batch_rows):
        for source in named:
            part = tables[source.name].slice(offset, batch_rows)
            if part.num_rows:
                part = ahead[source.name].arrived(part, clock)
                yield Rows(source.name, part, clock)
                ahead[source.name].timely(part, clock)
                newest = ahead[source.name].newest
                if newest is not None:
                    latest[source.name] = max(latest[source.name], newest - source.disorder_us)
            if offset + batch_rows >= tables[source.name].num_rows:
                latest[source.name] = END
        if min(latest.values()) > watermark:
            watermark = min(latest.values())
            yield Advance(watermark)
    if watermark < END:
        yield Advance(END)
