"""The states of `running`, by shard: one slot for each live key, and what every key emits at the end of each period.

A slot holds two states: the one carried over from earlier periods, and that of the period which is under way. The user's
functions are called for keys that had tuples in a period, and for no other: what ``output`` made of a state holds until it
changes. So the rows of all live keys are put into columns once for what is settled together, each period is a selection of
them, and a stretch of periods in which nothing changes is that selection, repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

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
    shard, the slots that have a state of the period which is under way.
    """

    node: Running
    last_time: Callable[[], int]
    touched: tuple[dict[Any, Slot], ...]

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
        history = History(self.node, *self._recall(live if first < until else []))
        for number in mine:
            self._handle(number, prepared.get(number, ()), first, until, history)
            if has_ended(settled.watermark):
                self.shards[number].clear()
        yield from history.emitted(first, until)

    def restore(self, shard: int, stored: StoredWindow) -> Slot:
        slot = super().restore(shard, stored)
        if slot.states[1] is not None:
            self.touched[shard][slot.identity] = slot
        return slot

    def emits_all(self, settled: Settled) -> bool:
        return settled.since // self.node.period.size < self._until(settled)

    def _until(self, settled: Settled) -> int:
        """The first period that goes on behind what is settled: at the end of input the one after the last tuple's."""
        if has_ended(settled.watermark):
            return max(settled.newest, self.last_time()) // self.node.period.size + 1
        return self.node.period.first_open(settled.watermark)

    def _recall(self, live: list[Slot]) -> tuple[list[Slot], list[tuple[Record, ...]]]:
        """Slots, and what their keys emit as they are."""
        for slot in live:
            if slot.output is None:
                state = slot.states[0]
                slot.output = () if state is None else self.form.outputs(self.node.name, _shown(slot.key), state).rows
        return live, [slot.output for slot in live]

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
            slot = shard.slot(FOREVER, identity, key, (None, None))
            carried, state = slot.states
            states = carried, self.form.updated(name, state, one)
            shard.keep(slot, states, _size(states), one.time)
            touched[identity] = slot
        if current < until:
            self._end(shard, touched, current, history)

    def _end(self, shard: ShardSlots, touched: dict[Any, Slot], period: int, history: History) -> None:
        """End a period of a shard: only keys that had tuples change."""
        for slot in touched.values():
            key, (carried, state) = _shown(slot.key), slot.states
            merged = self.form.merged(self.node.name, key, carried, state)
            made = self.form.outputs(self.node.name, key, merged)
            history.change(period, slot, made.rows)
            if made.retired:
                history.change(period + 1, slot, ())
                shard.drop(FOREVER, slot)
            else:
                slot.output, states = made.rows, (merged, None)
                shard.keep(slot, states, _size(states), slot.last)
        touched.clear()


@dataclass
class History:
    """What each key emits, in versions: the ``slots`` and ``rows`` of those that hold at first, then those of changes."""

    node: Running
    slots: list[Slot]
    rows: list[tuple[Record, ...]]
    _since: list[int] = field(default_factory=list)

    def change(self, period: int, slot: Slot, rows: tuple[Record, ...]) -> None:
        """Note what a key emits from a period on; the changes of a key come in the order of periods."""
        self.slots.append(slot)
        self.rows.append(rows)
        self._since.append(period)

    def emitted(self, first: int, until: int) -> Iterator[pa.Table]:
        """The results of the periods from one to another, in their order, computed as they are consumed."""
        if not self.slots:
            return
        table, counts = self._table(), np.fromiter(map(len, self.rows), np.int64, len(self.rows))
        places = np.cumsum(counts) - counts
        base = len(self.slots) - len(self._since)
        # A slot is known by the number of its first version.
        numbers = dict(zip(map(id, self.slots[:base]), range(base), strict=True))
        changes = [numbers.setdefault(id(slot), at) for at, slot in enumerate(self.slots[base:], start=base)]
        slot_of = np.append(np.arange(base), np.array(changes, np.int64))
        since = np.append(np.full(base, first), np.array(self._since, np.int64))
        order = np.argsort(since, kind="stable")
        edges = np.unique(np.append(since[since < until], until)).tolist()
        reached = np.searchsorted(since[order], edges, side="right").tolist()
        start, count = np.zeros(len(self.slots), np.int64), np.zeros(len(self.slots), np.int64)
        done = 0
        for low, high, upto in zip(edges[:-1], edges[1:], reached[:-1], strict=True):
            changed = order[done:upto]  # of several versions of one key that begin together the last stays
            start[slot_of[changed]], count[slot_of[changed]], done = places[changed], counts[changed], upto
            rows = expand_ranges(start, count)[1]
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
        schema = pa.schema([*keys, *returns])
        return pa.table(
            [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
        )

    def _versions(self) -> Iterator[tuple[Slot, tuple[Record, ...]]]:
        return zip(self.slots, self.rows, strict=True)


def _shown(key: tuple[Any, ...]) -> Any:
    return key if len(key) > 1 else key[0]


def _size(states: tuple[Record | None, Record | None]) -> int:
    return sum(state.size for state in states if state is not None)
