"""The states of `running`, by shard: one slot for each live key, and what every key emits at the end of each period.

A slot holds the state carried over from earlier periods with the rows that ``output`` made of it, and the state of the
period which is under way. The user's functions are called for keys that had tuples in a period, and for no other. So the
rows of all live keys are put into columns once for what is settled together, each period is a selection of them, and a
stretch of periods in which nothing changes is that selection, repeated. A cell need not even make slots of keys without
tuples: their rows come in columns, and go out in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.columns import Array, expand_ranges
from tidegate.operators.keyed_slots import (
    FOREVER,
    Contribution,
    KeyedSlots,
    ShardSlots,
    Slot,
    StoredWindow,
    contributions,
)
from tidegate.operators.settling import Settled
from tidegate.query.nodes import Running
from tidegate.query.running_form import RunningForm
from tidegate.query.user_functions import Record
from tidegate.watermark import has_ended

ROWS_AT_ONCE = 65_536
"""About so many rows leave at once."""


@dataclass(frozen=True)
class RunningSlots(KeyedSlots):
    """The states of one `running`.

    ``last_time`` says, at the end of input, the latest time that the step's sources have come to. ``touched`` are, for each
    shard, the slots that have a state of the period which is under way. ``idle`` are rows of keys without slots, which the
    owner of the first shard emits.
    """

    node: Running
    last_time: Callable[[], int]
    touched: tuple[dict[Any, Slot], ...]
    idle: list[pa.Table] = field(default_factory=list)

    @property
    def form(self) -> RunningForm:
        """The user's functions."""
        return self.node.form

    def prepare(self, settled: Settled) -> dict[int, list[Contribution]]:
        return contributions(settled, self.node.inputs)

    def process(
        self, settled: Settled, prepared: dict[int, list[Contribution]], owned: Array | None
    ) -> Iterator[pa.Table]:
        mine = range(len(self.shards)) if owned is None else np.flatnonzero(owned).tolist()
        first, until = settled.since // self.node.period.size, self._until(settled)
        live = [slot for number in mine for slot in self.shards[number].slots.get(FOREVER, {}).values()]
        live = live if first < until else []
        idle = self.idle if owned is None or owned[0] else []
        history = History(self.node, live, [slot.states[1] or () for slot in live], idle)
        for number in mine:
            self._handle(number, prepared.get(number, ()), first, until, history)
            if has_ended(settled.watermark):
                self.shards[number].clear()
        yield from history.emitted(first, until)

    def restore(self, shard: int, stored: StoredWindow) -> None:
        slot = self._restored(shard, stored)
        if slot.states[2] is not None:
            self.touched[shard][slot.identity] = slot

    def emits_all(self, settled: Settled) -> bool:
        return settled.since // self.node.period.size < self._until(settled)

    def emit_idle(self, states: Sequence[pa.Array], keys: Sequence[pa.Array]) -> None:
        lists = states[1]
        rows = pa.array(np.repeat(np.arange(len(lists)), np.asarray(pc.list_value_length(lists).fill_null(0))))
        returned = lists.flatten()
        columns = [column.take(rows) for column in keys]
        columns += [pc.struct_field(returned, name) for name in self.form.returns.names]
        self.idle.append(pa.table(columns, schema=_row_schema(self.node)))

    def _until(self, settled: Settled) -> int:
        """The first period that goes on behind what is settled: at the end of input the one after the last tuple's."""
        if has_ended(settled.watermark):
            return max(settled.newest, self.last_time()) // self.node.period.size + 1
        return self.node.period.first_open(settled.watermark)

    def _handle(
        self, number: int, arriving: list[Contribution] | tuple[()], current: int, until: int, history: History
    ) -> None:
        """Put the tuples of a shard into the states of their periods, and end each period that is over."""
        shard, touched, name, size = self.shards[number], self.touched[number], self.node.name, self.node.period.size
        for one, key in arriving:
            period = one.time // size
            if period > current:
                self._end(shard, touched, current, history)
                current = period
            identity = self.identity(key)
            slot = shard.slot(FOREVER, identity, key, (None, None, None))
            carried, rows, state = slot.states
            states = carried, rows, self.form.updated(name, state, one)
            shard.keep(slot, states, _size(states), one.time)
            touched[identity] = slot
        if current < until:
            self._end(shard, touched, current, history)

    def _end(self, shard: ShardSlots, touched: dict[Any, Slot], period: int, history: History) -> None:
        """End a period of a shard: only keys that had tuples change."""
        for slot in touched.values():
            key, (carried, _, state) = _shown(slot.key), slot.states
            merged = self.form.merged(self.node.name, key, carried, state)
            made = self.form.outputs(self.node.name, key, merged)
            history.change(period, slot, made.rows)
            if made.retired:
                history.change(period + 1, slot, ())
                shard.drop(FOREVER, slot)
            else:
                states = merged, made.rows, None
                shard.keep(slot, states, _size(states), slot.last)
        touched.clear()


@dataclass
class History:
    """What each key emits, in versions: the ``slots`` and ``rows`` of those that hold at first, then those of changes.

    The rows of ``idle`` keys do not change.
    """

    node: Running
    slots: list[Slot]
    rows: list[tuple[Record, ...]]
    idle: list[pa.Table]
    _since: list[int] = field(default_factory=list)

    def change(self, period: int, slot: Slot, rows: tuple[Record, ...]) -> None:
        """Note what a key emits from a period on; the changes of a key come in the order of periods."""
        self.slots.append(slot)
        self.rows.append(rows)
        self._since.append(period)

    def emitted(self, first: int, until: int) -> Iterator[pa.Table]:
        """The results of the periods from one to another, in their order, computed as they are consumed."""
        if not self.slots and not self.idle:
            return
        table, counts = self._table(), np.fromiter(map(len, self.rows), np.int64, len(self.rows))
        places = np.cumsum(counts) - counts
        idle = np.arange(int(counts.sum()), table.num_rows)
        base = len(self.slots) - len(self._since)
        # A slot is known by the number of its first version.
        numbers = dict(zip(map(id, self.slots[:base]), range(base), strict=True))
        changes = [numbers.setdefault(id(slot), at) for at, slot in enumerate(self.slots[base:], start=base)]
        slot_of = np.append(np.arange(base), np.array(changes, np.int64))
        since = np.append(np.full(base, first), np.array(self._since, np.int64))
        order = np.argsort(since, kind="stable")
        edges = np.unique([*since[since < until].tolist(), *([first] if len(idle) else []), until]).tolist()
        reached = np.searchsorted(since[order], edges, side="right").tolist()
        start, count = np.zeros(len(self.slots), np.int64), np.zeros(len(self.slots), np.int64)
        done = 0
        for low, high, upto in zip(edges[:-1], edges[1:], reached[:-1], strict=True):
            changed = order[done:upto]  # of several versions of one key that begin together the last stays
            start[slot_of[changed]], count[slot_of[changed]], done = places[changed], counts[changed], upto
            rows = np.append(expand_ranges(start, count)[1], idle)
            if len(rows):
                yield from self._periods(table.take(pa.array(rows)), low, high)

    def _periods(self, rows: pa.Table, low: int, high: int) -> Iterator[pa.Table]:
        """The same rows at the end of each of some periods."""
        size = self.node.period.size
        together = max(ROWS_AT_ONCE // rows.num_rows, 1)
        for begin in range(low, high, together):
            ends = np.arange(begin + 1, min(begin + together, high) + 1) * size
            some = rows if len(ends) == 1 else rows.take(pa.array(np.tile(np.arange(rows.num_rows), len(ends))))
            times = pa.array(np.repeat(ends - 1, rows.num_rows)).view(self.node.schema.field(0).type)
            for at in range(0, some.num_rows, ROWS_AT_ONCE):
                part = some.slice(at, ROWS_AT_ONCE)
                moments = times.slice(at, ROWS_AT_ONCE)
                yield pa.table([moments, *part.columns], schema=self.node.schema)

    def _table(self) -> pa.Table:
        """The rows of all versions in columns: keys, then what was returned."""
        keys, returns = self.node.key_schema, self.node.form.returns
        # Loops without a pair for each row: the garbage collector would look at all of them, again and again.
        columns = [[slot.key[at] for slot, rows in self._versions() for _ in rows] for at in range(len(keys))]
        columns += [[row[name] for _, rows in self._versions() for row in rows] for name in returns.names]
        schema = _row_schema(self.node)
        changing = pa.table(
            [pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)], schema=schema
        )
        return pa.concat_tables([changing, *self.idle]).combine_chunks() if self.idle else changing

    def _versions(self) -> Iterator[tuple[Slot, tuple[Record, ...]]]:
        return zip(self.slots, self.rows, strict=True)


def _shown(key: tuple[Any, ...]) -> Any:
    return key if len(key) > 1 else key[0]


def _row_schema(node: Running) -> pa.Schema:
    """The columns of results but for the time."""
    return pa.schema(list(node.schema)[1:])


def _size(states: tuple[Record | None, tuple[Record, ...] | None, Record | None]) -> int:
    carried, rows, period = states
    return sum(each.size for each in (carried, *(rows or ()), period) if each is not None)
