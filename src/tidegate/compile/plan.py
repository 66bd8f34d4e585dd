"""What the compiler gives a runtime to execute: subqueries, the feeds between them, and every choice with its reason.

A plan is a value. Passes fill it in one after the other, so a field that a later pass owns is None or empty until then. Its
nodes are those of the rewritten query, not the ones the user built. A runtime executes the subqueries and feeds and nothing
else: `tests/unit/compile/test_plan_is_executed.py` checks that every field is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

import pyarrow as pa

from tidegate.query.nodes import Node, Source, Stateful, Stateless
from tidegate.query.outputs import names_of
from tidegate.query.schema import conform
from tidegate.query.stateless import apply_stateless

OUTPUT = -1
"""The target of feeds whose tuples leave the query."""

Partitioning = Literal["none", "keys", "pairs"]


class Place(Enum):
    """Where a step runs."""

    NATIVE = "native Spark"
    KERNEL = "Arrow kernel"
    PYTHON = "Python"


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A stateless step of a feed, where it runs and why there."""

    node: Stateless
    place: Place | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Feed:
    """One path of tuples: from a source or a subquery, through stateless steps, to an input of a subquery or out.

    ``origin`` is a source or the number of a subquery, ``target`` the number of a subquery or `OUTPUT`. ``input`` is the
    feed's position among those of its target, ``side`` the input of the target's operator that it belongs to, or which of
    several results of the query. A stream that is read twice has two feeds. ``schema`` and ``time`` are those of the tuples
    that arrive. Where ``late_side`` is given the tuples are not the results of the subquery that it begins at, but those
    that were too late for that input of its operator.
    """

    origin: Source | int
    steps: tuple[PlacedStep, ...]
    target: int
    input: int
    side: int
    time: str
    schema: pa.Schema
    late_side: int | None = None

    def apply(self, tuples: pa.Table) -> pa.Table:
        """Run all steps on a table; what leaves has the columns of ``schema`` and no others."""
        for step in self.steps:
            tuples = apply_stateless(step.node, tuples)
        return conform(tuples, self.schema)


def apply_all(feeds: Iterable[Feed], tuples: pa.Table) -> Iterator[tuple[Feed, pa.Table]]:
    """Run the steps of feeds that begin at one place; those that feeds begin with in common run once."""
    made: dict[tuple[int, ...], pa.Table] = {(): tuples}
    for feed in feeds:
        path: tuple[int, ...] = ()
        for step in feed.steps:
            before, path = path, (*path, id(step.node))
            if path not in made:
                made[path] = apply_stateless(step.node, made[before])
        yield feed, conform(made[path], feed.schema)


@dataclass(frozen=True, slots=True)
class Region:
    """What must hold for a subquery to run on many instances at once (Gedik §2.2).

    ``partitioning`` says which tuples must meet in one instance: none in particular, those of one key, or all pairs.
    ``settled`` results wait until the watermark has passed their time; others leave with the tuple that completes them.
    ``awaited``: a reader downstream merges these results with others, so it waits for every watermark of every instance.
    ``eager``: instances must see each segment at once; otherwise they may be woken when a window ends.
    """

    partitioning: Partitioning
    settled: bool
    awaited: bool
    eager: bool
    why: str


@dataclass(frozen=True, slots=True)
class Combine:
    """Whether tuples are combined into one state per key and slice before the exchange, and what that saves."""

    before_exchange: bool
    why: str


@dataclass(frozen=True, slots=True)
class Slices:
    """How the windows of an aggregate share work: a tuple updates one slice, a window combines its slices.

    ``merged_early`` merges the panes of a slice once, when no more tuples are due for it, instead of once per window.
    """

    merged_early: bool
    why: str


@dataclass(frozen=True, slots=True)
class Subquery:
    """A stateful operator with its feeds: what is spread over instances as a whole, one exchange at its entry.

    Without an operator it passes on what it merges: the part of a query that leads from sources to the output past every
    stateful operator. ``slices`` and ``combine`` are None where there is nothing to choose, ``hot_keys`` says what became of
    the keys that may be hot, where some may.
    """

    number: int
    name: str
    operator: Stateful | None
    feeds: tuple[Feed, ...]
    place: Place | None = None
    why: str = ""
    region: Region | None = None
    slices: Slices | None = None
    combine: Combine | None = None
    hot_keys: str | None = None

    @property
    def time(self) -> str:
        """The event time of its results."""
        return self.feeds[0].time if self.operator is None else self.operator.time

    def safety(self) -> Region:
        """Its region, once the compiler has marked it."""
        assert self.region is not None
        return self.region


@dataclass(frozen=True, slots=True)
class Exchange:
    """Over how many cells each stateful operator is spread: ``least`` to begin with, and at most ``most``.

    With at most one, the whole plan runs as one stage, with no exchange.
    """

    least: int
    most: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled query for one runtime: subqueries, each after those it reads, and the feeds that lead out.

    ``exchange`` is None where instances share memory.
    """

    query: Node
    runtime: str
    subqueries: tuple[Subquery, ...] = ()
    outputs: tuple[Feed, ...] = ()
    exchange: Exchange | None = None

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """All feeds, those that lead out last."""
        return (*(feed for subquery in self.subqueries for feed in subquery.feeds), *self.outputs)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its results, if there are several; the feeds of each are those of one side of the output."""
        return names_of(self.query)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources, each once, in the order in which they are read."""
        return tuple({id(feed.origin): feed.origin for feed in self.feeds if isinstance(feed.origin, Source)}.values())

    def feeds_from(self, origin: Source | int) -> tuple[Feed, ...]:
        """The feeds that begin at a source or a subquery."""
        return tuple(feed for feed in self.feeds if feed.origin is origin or feed.origin == origin)

    @property
    def cells(self) -> tuple[int, int]:
        """How many cells each stateful operator has, at least and at most."""
        return (1, 1) if self.exchange is None else (self.exchange.least, self.exchange.most)

    def sources_before(self, number: int) -> tuple[Source, ...]:
        """The sources whose tuples reach a subquery, directly or through others, each once."""
        found: dict[int, Source] = {}
        for feed in self.subqueries[number].feeds:
            upstream = (feed.origin,) if isinstance(feed.origin, Source) else self.sources_before(feed.origin)
            found |= {id(source): source for source in upstream}
        return tuple(found.values())

    @property
    def idling_with(self) -> tuple[Source, ...]:
        """The sources that lead to stateful operators, where one of them may idle: each is passed over by the others."""
        before = (self.sources_before(each.number) for each in self.subqueries if each.operator is not None)
        found = {id(source): source for sources in before for source in sources}
        return tuple(found.values()) if any(source.idle_us is not None for source in found.values()) else ()

    def reading(self, source_of: Callable[[Source], Source]) -> Plan:
        """The same plan over other sources of the same columns, such as DataFrames in place of files."""
        others = {id(source): source_of(source) for source in self.sources}

        def bound(feeds: tuple[Feed, ...]) -> tuple[Feed, ...]:
            return tuple(replace(feed, origin=others.get(id(feed.origin), feed.origin)) for feed in feeds)

        subqueries = tuple(replace(subquery, feeds=bound(subquery.feeds)) for subquery in self.subqueries)
        return replace(self, subqueries=subqueries, outputs=bound(self.outputs))
