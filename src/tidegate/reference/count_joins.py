"""The law of joins over the last n tuples: a settled tuple meets the last n of the other side before it.

Before is meant in canonical order over both inputs: by time, then the left ones first, then by columns. Of tuples with keys
those of its own key count; a null key has no partner, and is none. The predicate is asked of those n alone. A tuple before
the watermark is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.query.keys import OneForAll
from tidegate.query.nodes import CountJoin
from tidegate.query.predicates.predicate import plain_values
from tidegate.query.predicates.tree import LEFT
from tidegate.query.schema import canonical, canonical_tuple
from tidegate.reference.joins import JoinedTuple, holds, result_of
from tidegate.reference.rows import LateTuple, keys_of, python_row
from tidegate.watermark import START, Watermark


@dataclass
class CountJoinLaw:
    """One such join at work; ``settled`` are all tuples of each side that are, in canonical order."""

    node: CountJoin
    watermark: Watermark = START
    waiting: list[_Waiting] = field(default_factory=list)
    settled: tuple[list[_Waiting], list[_Waiting]] = field(default_factory=lambda: ([], []))
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Keep a tuple until it is settled; one before the watermark is late."""
        source = self.node.inputs[side]
        values = python_row(row, source)
        time = values[source.time]
        if time < self.watermark:
            self.late.append(LateTuple(self.node.name, side, self.watermark, values))
            return
        (key,) = keys_of(self.node.keys[side], row, values)
        if isinstance(self.node.keys[side], OneForAll) or None not in key:
            place = time, side, canonical_tuple(values, source.schema, source.time)
            self.waiting.append(_Waiting(place, canonical(key), JoinedTuple(time, row, plain_values(row)[0])))
        yield from ()

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Let each settled tuple meet those before it."""
        self.watermark = watermark
        ready = sorted((each for each in self.waiting if each.place[0] < watermark), key=lambda each: each.place)
        self.waiting = [each for each in self.waiting if each.place[0] >= watermark]
        for new in ready:
            side = new.place[1]
            before = [other for other in self.settled[1 - side] if other.key == new.key]
            for other in before[-self.node.size :]:
                left, right = (new.of, other.of) if side == LEFT else (other.of, new.of)
                if holds(self.node, left, right):
                    yield result_of(self.node, left, right, {self.node.time: new.of.time})
            self.settled[side].append(new)


@dataclass(frozen=True)
class _Waiting:
    """A tuple: its place in canonical order, and its key."""

    place: tuple[int, int, Any]
    key: Any
    of: JoinedTuple
