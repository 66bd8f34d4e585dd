"""The query as regions: what runs between two gates, and the feeds that join them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.gate.segment import Segment
from tidegate.query.nodes import Node, Source, Stateful, Stateless, Union, apply_stateless, is_stateful, walk
from tidegate.query.schema import conform

OUTPUT = -1
"""The target of feeds whose tuples leave the query."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One way for tuples: from a source or a region, through stateless steps, to an input of a region or out.

    ``input`` is its place among the gate's inputs, ``side`` which input of the operator behind it the tuples are for. The
    steps run where the tuples are made if a region makes them, else where they are read; both are spread over instances.
    """

    origin: Source | int
    steps: tuple[Stateless, ...]
    target: int
    input: int
    side: int
    time: str
    schema: pa.Schema

    def apply(self, tuples: pa.Table) -> pa.Table:
        """The tuples after all steps."""
        for step in self.steps:
            tuples = apply_stateless(step, tuples)
        return tuples


@dataclass(frozen=True, slots=True)
class Region:
    """A stateful operator, or None for the stateless way from sources straight to the output, and its feeds."""

    number: int
    name: str
    operator: Stateful | None
    inputs: tuple[Feed, ...]

    @property
    def time(self) -> str:
        """The event time of its results."""
        return self.inputs[0].time if self.operator is None else self.operator.time


@dataclass(frozen=True, slots=True)
class Regions:
    """A whole query: its regions, each after those it reads, and the feeds that lead out of it."""

    regions: tuple[Region, ...]
    outputs: tuple[Feed, ...]

    def feeds_from(self, origin: Source | int) -> tuple[Feed, ...]:
        """The feeds that begin at a source or a region."""
        every = [feed for region in self.regions for feed in region.inputs] + list(self.outputs)
        return tuple(feed for feed in every if feed.origin is origin or feed.origin == origin)


def tuples_of(region: Region, segment: Segment) -> Iterator[tuple[Feed, pa.Table]]:
    """The tuples of a segment, late ones first, each with the feed they came by, after its steps."""
    for feed in region.inputs:
        for batch in (segment.late[feed.input], segment.batches[feed.input]):
            if batch is not None and batch.num_rows:
                table = pa.Table.from_batches([batch])
                # A region applies the steps to what it makes itself; a source hands out what it reads.
                yield feed, table if isinstance(feed.origin, int) else conform(feed.apply(table), feed.schema)


def regions_of(query: Node) -> Regions:
    """Cut a query before each stateful operator; what leads from a source to the output without one is a region too.

    A stream that is read twice has two feeds, so the two sides of a diamond keep their own steps.
    """
    stateful = [node for node in walk(query) if is_stateful(node)]
    number_of = {id(node): number for number, node in enumerate(stateful)}
    regions = [
        Region(number, node.name, node, _feeds(node.inputs, number, number_of)) for number, node in enumerate(stateful)
    ]
    outward = _feeds((query,), OUTPUT, number_of)
    if any(isinstance(feed.origin, Source) for feed in outward):
        # Everything that leaves passes one stateless region, which keeps the order of what it merges.
        last = len(regions)
        regions.append(Region(last, query.name, None, _feeds((query,), last, number_of)))
        outward = (Feed(last, (), OUTPUT, 0, 0, query.time, query.schema),)
    return Regions(tuple(regions), outward)


def _feeds(nodes: Sequence[Node], target: int, number_of: dict[int, int]) -> tuple[Feed, ...]:
    """The feeds of a target that reads these nodes, those of its first side first."""
    paths = [
        (side, node, origin, steps) for side, node in enumerate(nodes) for origin, steps in _paths(node, (), number_of)
    ]
    return tuple(
        Feed(origin, steps, target, position, side, node.time, node.schema)
        for position, (side, node, origin, steps) in enumerate(paths)
    )


def _paths(
    node: Node, after: tuple[Stateless, ...], number_of: dict[int, int]
) -> Iterator[tuple[Source | int, tuple[Stateless, ...]]]:
    """The ways that lead to a node, each from where its tuples come from."""
    match node:
        case Source():
            yield node, after
        case _ if is_stateful(node):
            yield number_of[id(node)], after
        case Union():
            for upstream in node.inputs:
                yield from _paths(upstream, after, number_of)
        case _ if hasattr(node, "input"):
            yield from _paths(node.input, (node, *after), number_of)
        case _:
            raise InternalError(f"no way leads to {type(node).__name__}")
