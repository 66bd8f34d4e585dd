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
        history = History(self.node)
        if first < until:
            for number in mine:
                self._recall(self.shards[number], history)
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

    def _recall(self, shard: ShardSlots, history: History) -> None:
        """Note what the live keys of a shard emit as they are."""
        for slot in shard.slots.get(FOREVER, {}).values():
            if slot.output is None and slot.states[0] is not None:
                slot.output = self.form.outputs(self.node.name, _shown(slot.key), slot.states[0]).rows
            history.begin(slot, slot.output or ())

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
                states, slot.output = (merged, None), made.rows
                shard.keep(slot, states, _size(states), slot.last)
        touched.clear()


@dataclass
class History:
    """What each key emits, and from which period on; its rows in columns.

    A key has a number, and for each of its versions an entry: its number, the period from which the version holds (None: the
    first), and its rows.
    """

    node: Running
    _known: dict[int, int] = field(default_factory=dict)
    _slots: list[Slot] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    _since: list[int | None] = field(default_factory=list)
    _rows: list[tuple[Record, ...]] = field(default_factory=list)

    def begin(self, slot: Slot, rows: tuple[Record, ...]) -> None:
        """Note what a key emits from the first period on."""
        self._add(None, slot, rows)

    def change(self, period: int, slot: Slot, rows: tuple[Record, ...]) -> None:
        """Note what a key emits from a period on; the changes of a key come in the order of periods."""
        self._add(period, slot, rows)

    def _add(self, period: int | None, slot: Slot, rows: tuple[Record, ...]) -> None:
        number = self._known.get(id(slot))
        if number is None:
            number = self._known[id(slot)] = len(self._slots)
            self._slots.append(slot)  # so that no other slot gets its id
        self._numbers.append(number)
        self._since.append(period)
        self._rows.append(rows)

    def emitted(self, first: int, until: int) -> Iterator[pa.Table]:
        """The results of the periods from one to another, in their order, computed as they are consumed."""
        if not self._numbers:
            return
        table = self._table()
        numbers, counts = np.array(self._numbers), np.array([len(rows) for rows in self._rows])
        places = np.cumsum(counts) - counts
        since = np.array([first if period is None else period for period in self._since])
        order = np.argsort(since, kind="stable")
        edges = np.unique(np.append(since[since < until], until))
        start, count = np.zeros(len(self._slots), np.int64), np.zeros(len(self._slots), np.int64)
        done = 0
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            upto = int(np.searchsorted(since[order], low, side="right"))
            changed = order[done:upto]  # of several versions of one key that begin together the last stays
            start[numbers[changed]], count[numbers[changed]], done = places[changed], counts[changed], upto
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
        """All rows of all versions, in columns: keys, then what was returned."""
        versions = zip(self._numbers, self._rows, strict=True)
        keyed = [(self._slots[number].key, row) for number, rows in versions for row in rows]
        columns = [pa.array([key[at] for key, _ in keyed], kind.type) for at, kind in enumerate(self.node.key_schema)]
        columns += [pa.array([row[kind.name] for _, row in keyed], kind.type) for kind in self.node.form.returns]
        return pa.table(columns, schema=pa.schema([*self.node.key_schema, *self.node.form.returns]))


def _shown(key: tuple[Any, ...]) -> Any:
    return key if len(key) > 1 else key[0]


def _size(states: tuple[Record | None, Record | None]) -> int:
    return sum(state.size for state in states if state is not None)
