"""What the live keys of `running` emit, in columns, from one period to the next.

`LiveRows` holds the rows of all keys as they are; a `History` notes what changes while periods end, and gives an `Emission`:
the rows of each period, computed as they are consumed. A period is a selection of rows that were put into columns once, and
a stretch of periods in which nothing changes is that selection, repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, expand_ranges
from tidegate.operators.keyed_slots import Slot
from tidegate.query.nodes import Running
from tidegate.query.user_functions import Record

ROWS_AT_ONCE = 65_536
"""About so many rows leave at once."""
MOST_UNUSED = 1_024


def row_schema(node: Running) -> pa.Schema:
    """The columns of results but for the time: keys, then what was returned."""
    return pa.schema(list(node.schema)[1:])


def in_columns(node: Running, slots: Sequence[Slot], rows: Sequence[Sequence[Record]]) -> pa.Table:
    """The rows of slots, one after the other."""
    # Loops without a pair for each row: the garbage collector would look at all of them, again and again.
    columns = [
        [slot.key[at] for slot, some in zip(slots, rows, strict=True) for _ in some]
        for at in range(len(node.key_schema))
    ]
    columns += [[row[name] for some in rows for row in some] for name in node.form.returns.names]
    schema = row_schema(node)
    return pa.table([pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)], schema=schema)


@dataclass
class LiveRows:
    """The rows of some keys: those of number i are ``count[i]`` from ``start[i]`` on in ``table``.

    ``slots`` are the keys by number, None where one has retired; ``numbers`` finds them by identity.
    """

    table: pa.Table
    slots: list[Slot | None]
    numbers: dict[int, int]
    start: Array
    count: Array

    @classmethod
    def of(cls, node: Running, slots: Sequence[Slot]) -> LiveRows:
        """The rows of slots as they are."""
        rows = [slot.states[1] or () for slot in slots]
        count = np.fromiter(map(len, rows), np.int64, len(rows))
        numbers = dict(zip(map(id, slots), range(len(slots)), strict=True))
        return cls(in_columns(node, slots, rows), list(slots), numbers, np.cumsum(count) - count, count)

    def number(self, slot: Slot) -> int:
        """The number of a slot, which may be new."""
        found = self.numbers.get(id(slot))
        if found is None:
            found = self.numbers[id(slot)] = len(self.slots)
            self.slots.append(slot)
        return found

    def retire(self, slot: Slot) -> None:
        """Forget a slot; its number is not given to another."""
        self.slots[self.numbers.pop(id(slot))] = None

    def put(self, table: pa.Table, start: Array, count: Array) -> None:
        """Hold other rows, out of a table that has more; numbers that are not used any more are left out now and then."""
        if len(self.slots) > 2 * len(self.numbers) + MOST_UNUSED:
            used = [at for at, slot in enumerate(self.slots) if slot is not None]
            self.slots, start, count = [self.slots[at] for at in used], start[used], count[used]
            self.numbers = {id(slot): at for at, slot in enumerate(self.slots)}
        self.table = table.take(pa.array(expand_ranges(start, count)[1]))
        self.start, self.count = np.cumsum(count) - count, count


@dataclass
class History:
    """What changes in ``live`` rows while periods end. ``idle`` are rows that do not change."""

    node: Running
    live: LiveRows
    idle: Sequence[pa.Table] = ()
    _slots: list[Slot] = field(default_factory=list)
    _rows: list[Sequence[Record]] = field(default_factory=list)
    _since: list[int] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)

    def change(self, period: int, slot: Slot, rows: Sequence[Record], retires: bool) -> None:
        """Note what a key emits from a period on, or in that alone; the changes of a key come in the order of periods."""
        self._add(period, slot, rows)
        if retires:
            self._add(period + 1, slot, ())
            self.live.retire(slot)

    def _add(self, period: int, slot: Slot, rows: Sequence[Record]) -> None:
        self._slots.append(slot)
        self._rows.append(rows)
        self._since.append(period)
        self._numbers.append(self.live.number(slot))

    def close(self) -> Emission:
        """Bring the live rows to where they are behind all changes; what is emitted on the way."""
        live, size = self.live, len(self.live.slots)
        start, count = (np.append(each, np.zeros(size - len(each), np.int64)) for each in (live.start, live.count))
        lengths = np.fromiter(map(len, self._rows), np.int64, len(self._rows))
        before = live.table.num_rows
        changing = in_columns(self.node, self._slots, self._rows)
        table = pa.concat_tables([live.table, changing, *self.idle]).combine_chunks()
        order = np.argsort(np.array(self._since, np.int64), kind="stable")
        changes = Changes(
            np.array(self._since, np.int64)[order],
            np.array(self._numbers, np.int64)[order],
            (before + np.cumsum(lengths) - lengths)[order],
            lengths[order],
        )
        idle = np.arange(before + changing.num_rows, table.num_rows)
        emission = Emission(self.node, table, start, count, changes, idle)
        start, count = start.copy(), count.copy()
        changes.apply(0, len(order), start, count)
        live.put(table, start, count)
        return emission


@dataclass(frozen=True, slots=True)
class Changes:
    """Change i: from the period ``since[i]`` on the rows of a number are ``lengths[i]`` from ``places[i]`` on; in order."""

    since: Array
    numbers: Array
    places: Array
    lengths: Array

    def apply(self, low: int, high: int, start: Array, count: Array) -> None:
        """Make some changes; of several of one number the last stays."""
        start[self.numbers[low:high]] = self.places[low:high]
        count[self.numbers[low:high]] = self.lengths[low:high]


@dataclass(frozen=True, slots=True)
class Emission:
    """What is emitted while rows change: at first what ``start`` and ``count`` say, and those of ``idle`` all the time."""

    node: Running
    table: pa.Table
    start: Array
    count: Array
    changes: Changes
    idle: Array

    def periods(self, first: int, until: int) -> Iterator[pa.Table]:
        """The results of the periods from one to another, in their order, computed as they are consumed."""
        since, start, count = self.changes.since, self.start.copy(), self.count.copy()
        known = [first] if len(self.idle) or count.any() else []
        edges = np.unique([*since[since < until].tolist(), *known, until]).tolist()
        reached = np.searchsorted(since, edges, side="right").tolist()
        done = 0
        for low, high, upto in zip(edges[:-1], edges[1:], reached[:-1], strict=True):
            self.changes.apply(done, upto, start, count)
            done = upto
            rows = np.append(expand_ranges(start, count)[1], self.idle)
            if len(rows):
                yield from self._repeated(self.table.take(pa.array(rows)), low, high)

    def _repeated(self, rows: pa.Table, low: int, high: int) -> Iterator[pa.Table]:
        """The same rows at the end of each of some periods."""
        size, schema = self.node.period.size, self.node.schema
        together = max(ROWS_AT_ONCE // rows.num_rows, 1)
        for begin in range(low, high, together):
            ends = np.arange(begin + 1, min(begin + together, high) + 1) * size
            some = rows if len(ends) == 1 else rows.take(pa.array(np.tile(np.arange(rows.num_rows), len(ends))))
            times = pa.array(np.repeat(ends - 1, rows.num_rows)).view(schema.field(0).type)
            for at in range(0, some.num_rows, ROWS_AT_ONCE):
                columns = some.slice(at, ROWS_AT_ONCE).columns
                yield pa.table([times.slice(at, ROWS_AT_ONCE), *columns], schema=schema)
