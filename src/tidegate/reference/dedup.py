"""The law of dedup: of the settled tuples of a key in canonical order the first is kept, then each that is far enough after.

A tuple is kept if its key has had none, or if it lies at least ``within`` after the last one kept. A tuple before the
watermark is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.query.nodes import Dedup
from tidegate.query.schema import canonical, canonical_tuple
from tidegate.reference.rows import LateTuple, keys_of, python_row
from tidegate.watermark import START, Watermark


@dataclass
class DedupLaw:
    """One dedup at work; ``kept`` has the time of each key's last tuple that was kept."""

    node: Dedup
    watermark: Watermark = START
    waiting: list[tuple[int, Any, Any, pa.Table]] = field(default_factory=list)
    kept: dict[Any, int] = field(default_factory=dict)
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Keep a tuple until it is settled; one before the watermark is late."""
        source = self.node.input
        values = python_row(row, source)
        time = values[source.time]
        if time < self.watermark:
            self.late.append(LateTuple(self.node.name, side, self.watermark, values))
            return
        (key,) = keys_of(self.node.keys[0], row, values)
        place = canonical_tuple(values, source.schema, source.time)
        self.waiting.append((time, place, canonical(key), row))
        yield from ()

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Pass on those of the settled tuples that are kept."""
        self.watermark = watermark
        settled = sorted((one for one in self.waiting if one[0] < watermark), key=lambda one: one[:2])
        self.waiting = [one for one in self.waiting if one[0] >= watermark]
        for time, _, key, row in settled:
            if key not in self.kept or time - self.kept[key] >= self.node.within_us:
                self.kept[key] = time
                yield row
