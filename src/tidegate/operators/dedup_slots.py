"""The state of `dedup`, by shard: when a tuple of each key was last kept, as long as that can matter.

Tuples are handled as columns. What is looked up in between is one number for each key of what is settled together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array
from tidegate.operators.keyed_slots import KeyedSlots, StoredWindow
from tidegate.operators.keys import group, key_codes
from tidegate.operators.settling import Settled
from tidegate.query.nodes import Dedup
from tidegate.watermark import START, Watermark, has_ended

KEY_BYTES = 128
"""About how much memory a key and its time take."""


@dataclass(slots=True)
class LastKept:
    """When a tuple of each key of a shard was last kept. Touched by its owner alone.

    A time matters until the watermark is ``within`` past it. So there are two generations: what is ``old`` lies before
    ``since``, and is forgotten as a whole when the watermark is that far past it.
    """

    since: Watermark = START
    old: dict[Any, int] = field(default_factory=dict)
    new: dict[Any, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.old) + len(self.new)

    def advance(self, watermark: Watermark, within_us: int) -> None:
        """Forget what does not matter behind a watermark."""
        if has_ended(watermark):
            self.old, self.new = {}, {}
        elif watermark - within_us >= self.since:
            self.since, self.old, self.new = watermark, self.new, {}


@dataclass(frozen=True)
class DedupSlots(KeyedSlots):
    """The state of one `dedup`."""

    node: Dedup
    kept: tuple[LastKept, ...]

    @property
    def rows(self) -> int:
        return self.waiting.rows + sum(map(len, self.kept))

    @property
    def bytes(self) -> int:
        return self.waiting.bytes + KEY_BYTES * sum(map(len, self.kept))

    def prepare(self, settled: Settled) -> None:
        return None

    def process(self, settled: Settled, prepared: None, owned: Array | None) -> Iterator[pa.Table]:
        (tuples,), (times,), (entries,) = settled.tuples, settled.times, settled.entries
        mine = np.arange(len(entries.rows)) if owned is None else np.flatnonzero(owned[entries.shards])
        chosen = self._chosen(settled, mine) if len(mine) else mine
        for number in range(len(self.kept)) if owned is None else np.flatnonzero(owned).tolist():
            self.kept[number].advance(settled.watermark, self.node.within_us)
        if len(chosen) == len(times):
            yield tuples
        elif len(chosen):
            yield tuples.take(pa.array(chosen))

    def _chosen(self, settled: Settled, entries: Array) -> Array:
        """The tuples of some entries that are kept."""
        from tidegate.operators.kernels import far_enough

        found = settled.entries[0]
        rows, columns = found.rows[entries], tuple(column.take(pa.array(entries)) for column in found.columns)
        codes, bound = key_codes(columns)
        slots = group(codes.astype(np.int64, copy=False), bound)
        first = pa.array(slots.first)
        keys = [self.plain(key) for key in zip(*(column.take(first).to_pylist() for column in columns), strict=True)]
        owners = [self.kept[shard] for shard in found.shards[entries[slots.first]].tolist()]
        before = np.array(
            [one.new.get(key, one.old.get(key, START)) for one, key in zip(owners, keys, strict=True)], np.int64
        )
        last = before.copy()
        keep = far_enough(settled.times[0][rows], slots.groups, last, self.node.within_us)
        for at in np.flatnonzero(last != before).tolist():
            owners[at].new[keys[at]] = int(last[at])
        return rows[keep]

    @cached_property
    def plain(self) -> Any:
        """A key as a dict finds it: NaN is equal to no other, so all are one."""
        if not any(pa.types.is_floating(kind) for kind in self.node.key_schema.types):
            return lambda key: key
        return lambda key: tuple(math.nan if isinstance(part, float) and math.isnan(part) else part for part in key)

    def stored(self) -> Iterator[StoredWindow]:
        for one in self.kept:
            for key, time in (one.old | one.new).items():
                yield StoredWindow(time // self.node.within_us, time, key, ())

    def restore(self, shard: int, stored: StoredWindow) -> None:
        one, key = self.kept[shard], self.plain(stored.key)
        one.new[key] = max(stored.last, one.new.get(key, START))
