"""An Aggregate that loops, on whole columns: all rows that loop together are one round (listings 3 to 5).

What expires runs through the loop until nothing of it is left, so between two segments nothing is under way. The Aggregate's
function is called for what comes from outside. A row that points at one tuple of a list gives the one that points at the
next and carries the list on, so the further rounds are a compiled loop over the lengths of lists.

Two guards decide how far the watermark goes meanwhile: into the Aggregate, so that no row comes back too late (C2, listing
4), and out of it, so that none leaves behind it (C3, listing 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.operators.bags.held_bags import Expiring, HeldBags, KeyedTuples
from tidegate.operators.columns import Array, as_numpy, in_time_order, is_first
from tidegate.query.bag_functions import INDEX, ITEMS
from tidegate.query.bags import Bags
from tidegate.query.schema import contiguous
from tidegate.watermark import END, START, Watermark

RowsOf = Callable[[Bags], pa.Table]
"""The rows of bags, in the order of time."""


@dataclass(slots=True)
class DueRows:
    """How many rows are still due for each time, and the watermark that may pass them, up to ``lateness`` behind it."""

    lateness: int
    received: Watermark = START
    forwarded: Watermark = START
    _times: Array = field(default_factory=lambda: np.empty(0, np.int64))
    _counts: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, times: Array, counts: Array) -> None:
        """So many more rows are due at some times, which ascend; fewer where a number is negative. Zeros are removed."""
        if len(times) == 0:
            return
        first = np.flatnonzero(is_first(times))
        seen, more = times[first], np.add.reduceat(counts, first)
        place = np.searchsorted(self._times, seen)
        if len(self._times) == 0 or (self._times[np.minimum(place, len(self._times) - 1)] != seen).any():
            every = np.union1d(self._times, seen)
            left = np.zeros(len(every), np.int64)
            left[np.searchsorted(every, self._times)] = self._counts
            self._times, self._counts, place = every, left, np.searchsorted(every, seen)
        self._counts[place] += more
        due = self._counts != 0
        if not due.all():
            self._times, self._counts = self._times[due], self._counts[due]

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
        if begin < end:
            rows = _all_rounds(held, rows_of, fresh.slice(begin, end - begin), times[begin:end])
            moments = as_numpy(rows.column(node.time))
            if int(moments[0]) + 1 + node.loop_us <= reached:
                raise InternalError(f"step '{node.name}': a tuple that loops came too late")
            entry.add(moments, np.full(len(moments), -1))
            _leave(node.name, leaving, rows, moments)
            yield rows
        begin = end
        leaving.received = reached
        leaving.next_watermark()
    if leaving.forwarded != expiring.watermark:
        raise InternalError(f"step '{node.name}': a loop holds back the watermark {expiring.watermark}")


def _all_rounds(held: HeldBags, rows_of: RowsOf, fresh: pa.Table, times: Array) -> pa.Table:
    """The rows of all rounds that tuples from outside give, in the order of time."""
    # Imported here: numba takes a while, and a query can be built without it.
    from tidegate.operators.kernels import unfold_rounds

    expiring = Expiring(START, END, int(times[0]), int(times[-1]), (fresh,), (times,))
    found = [rows_of(bags) for bags in held.bags(expiring, held.keyed(expiring, shared=False), None)]
    first = found[0] if len(found) == 1 else pa.concat_tables(found).combine_chunks()
    lists, rounds = unfold_rounds(_sizes(first))
    order = np.argsort(lists, kind="stable")
    # What rows embed is a view: taking a row does not copy it.
    rows = first.take(pa.array(lists[order]))
    return rows.set_column(rows.schema.get_field_index(INDEX), INDEX, pa.array(rounds[order]))


def _leave(step: str, leaving: DueRows, rows: pa.Table, times: Array) -> None:
    """Count rows that leave: one that points at the first of several is followed by the others."""
    if int(times[0]) < leaving.forwarded:
        raise InternalError(f"step '{step}': a row left behind its watermark")
    first = as_numpy(rows.column(INDEX)) == 0
    leaving.add(times, np.where(first, _sizes(rows) - 1, -1))


def _sizes(rows: pa.Table) -> Array:
    """How many tuples each row embeds."""
    return np.asarray(contiguous(rows.column(ITEMS)).sizes).astype(np.int64)
