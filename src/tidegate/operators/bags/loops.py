"""An Aggregate that loops, on whole columns: all rows that loop together are one round (listings 3 to 5).

What expires runs through the loop until nothing of it is left, so between two segments nothing is under way. Two guards
decide how far the watermark goes meanwhile: into the Aggregate, so that no row comes back too late (C2, listing 4), and out
of it, so that none leaves behind it (C3, listing 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.operators.bags.held_bags import Expiring, HeldBags, KeyedTuples
from tidegate.operators.columns import Array, as_numpy, in_time_order
from tidegate.query.bag_functions import INDEX, ITEMS
from tidegate.query.bags import Bags
from tidegate.query.schema import contiguous
from tidegate.watermark import END, START, Watermark

RowsOf = Callable[[Bags], Iterator[pa.Table]]


@dataclass(slots=True)
class DueRows:
    """How many rows are still due for each time, and the watermark that may pass them, up to ``lateness`` behind it."""

    lateness: int
    received: Watermark = START
    forwarded: Watermark = START
    _times: Array = field(default_factory=lambda: np.empty(0, np.int64))
    _counts: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, times: Array, counts: Array) -> None:
        """So many more rows are due at some times; fewer where a number is negative. What is zero is removed."""
        seen, place = np.unique(np.concatenate([self._times, times]), return_inverse=True)
        left = np.zeros(len(seen), np.int64)
        np.add.at(left, place, np.concatenate([self._counts, counts]))
        self._times, self._counts = seen[left != 0], left[left != 0]

    def next_watermark(self) -> Watermark | None:
        """The watermark that may be forwarded now, if it is a new one; one that moves too far is put in between."""
        bound = int(self._times[0]) + self.lateness if len(self._times) else END
        reached = min(self.received, bound)
        if reached <= self.forwarded:
            return None
        self.forwarded = reached
        return reached


def emit_loop(
    held: HeldBags, rows_of: RowsOf, expiring: Expiring, keyed: Sequence[KeyedTuples], owned: Array | None
) -> Iterator[pa.Table]:
    """All rows that tuples which expire give on their way through the loop, an owner's share, in the order of time."""
    node = held.node
    assert node.loop_us is not None
    mine = keyed[0].rows if owned is None else keyed[0].rows[owned[keyed[0].shards]]
    fresh, times = in_time_order(expiring.tuples[0].take(pa.array(mine)), expiring.times[0][mine])
    entry, leaving = DueRows(node.loop_us), DueRows(0)
    entry.received = expiring.watermark
    entry.add(times, _sizes(fresh))
    begin = 0
    while (reached := entry.next_watermark()) is not None:
        end = int(np.searchsorted(times, reached))
        emitted: list[pa.Table] = []
        looping, moments = fresh.slice(begin, end - begin), times[begin:end]
        begin = end
        while len(moments):
            made = [row for bags in _bags_of(held, looping, moments) for row in rows_of(bags)]
            looping = pa.concat_tables([node.schema.empty_table(), *made])
            moments = as_numpy(looping.column(node.time))
            _leave(node.name, leaving, looping, moments)
            emitted.append(looping)
            if len(moments) and int(moments.min()) + 1 + node.loop_us <= reached:
                raise InternalError(f"step '{node.name}': a tuple that loops came too late")
            entry.add(moments, np.full(len(moments), -1))
        leaving.received = reached
        leaving.next_watermark()
        rows = pa.concat_tables([node.schema.empty_table(), *emitted])
        if rows.num_rows:
            yield in_time_order(rows, as_numpy(rows.column(node.time)))[0]
    if leaving.forwarded != expiring.watermark:
        raise InternalError(f"step '{node.name}': a loop holds back the watermark {expiring.watermark}")


def _leave(step: str, leaving: DueRows, rows: pa.Table, times: Array) -> None:
    """Count rows that leave: one that points at the first of several is followed by the others."""
    if len(times) and int(times.min()) < leaving.forwarded:
        raise InternalError(f"step '{step}': a row left behind its watermark")
    first = as_numpy(rows.column(INDEX)) == 0
    leaving.add(times, np.where(first, _sizes(rows) - 1, -1))


def _sizes(rows: pa.Table) -> Array:
    """How many tuples each row embeds."""
    return np.asarray(contiguous(rows.column(ITEMS)).value_lengths()).astype(np.int64)


def _bags_of(held: HeldBags, rows: pa.Table, times: Array) -> Iterator[Bags]:
    """The bags of rows in windows of 1 µs."""
    whole = Expiring(START, END, int(times.min()), int(times.max()), (rows,), (times,))
    return held.bags(whole, held.keyed(whole, shared=False), None)
