"""The states of `running`, by shard: one slot for each live key.

A slot holds the state carried over from earlier periods with the rows that ``output`` made of it, and the state of the
period which is under way. The user's functions are called for keys that had tuples in a period, and for no other; the rows
of the others stay in columns (`running_rows`). A cell need not even make slots of keys without tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.arriving_tuples import Contribution, contributions
from tidegate.operators.columns import Array
from tidegate.operators.keyed_slots import (
    FOREVER,
    KeyedSlots,
    ShardSlots,
    Slot,
    StoredWindow,
)
from tidegate.operators.running_rows import History, LiveRows, row_schema
from tidegate.operators.settling import Settled
from tidegate.query.nodes import Running
from tidegate.query.running_form import RunningForm
from tidegate.query.user_functions import Record
from tidegate.watermark import has_ended


@dataclass(frozen=True)
class RunningSlots(KeyedSlots):
    """The states of one `running`.

    ``last_time`` says, at the end of input, the latest time that the step's sources have come to. ``touched`` are, for each
    shard, the slots that have a state of the period which is under way. ``idle`` are rows of keys without slots, which the
    owner of the first shard emits. ``live`` are the rows of all others, by their owner, and how often periods of its shards
    had ended then, which ``ended`` counts: another owner may have had some of them since.
    """

    node: Running
    last_time: Callable[[], int]
    touched: tuple[dict[Any, Slot], ...]
    ended: Array
    idle: list[pa.Table] = field(default_factory=list)
    live: dict[bytes, tuple[Array, LiveRows]] = field(default_factory=dict)

    @property
    def form(self) -> RunningForm:
        """The user's functions."""
        return self.node.form

    def prepare(self, settled: Settled) -> dict[int, Iterator[Contribution]]:
        return contributions(settled, self.node.inputs)

    def process(
        self, settled: Settled, prepared: dict[int, Iterator[Contribution]], owned: Array | None
    ) -> Iterator[pa.Table]:
        mine = np.arange(len(self.shards)) if owned is None else np.flatnonzero(owned)
        first, until = settled.since // self.node.period.size, self._until(settled)
        rows = self._live_rows(mine) if first < until else self._no_rows
        history = History(self.node, rows, self.idle if 0 in mine else ())
        for number in mine.tolist():
            self._handle(number, prepared.get(number, ()), first, until, history)
            if has_ended(settled.watermark):
                self.shards[number].clear()
        if first >= until:
            return
        emission = history.close()
        self.ended[mine] += 1
        self.live[mine.tobytes()] = self.ended[mine], rows
        if has_ended(settled.watermark):
            self.live.clear()
        yield from emission.periods(first, until)

    @cached_property
    def _no_rows(self) -> LiveRows:
        """What is needed where no period ends."""
        return LiveRows.of(self.node, ())

    def _live_rows(self, mine: Array) -> LiveRows:
        """The rows of the live keys of some shards."""
        known = self.live.pop(mine.tobytes(), None)
        if known is not None and np.array_equal(known[0], self.ended[mine]):
            return known[1]
        # Another mapping held in between: what is kept for it is of no use to its owners either.
        self.live.clear()
        shards = (self.shards[number] for number in mine.tolist())
        return LiveRows.of(self.node, [slot for shard in shards for slot in shard.slots.get(FOREVER, {}).values()])

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
        self.idle.append(pa.table(columns, schema=row_schema(self.node)))

    def _until(self, settled: Settled) -> int:
        """The first period that goes on behind what is settled: at the end of input the one after the last tuple's."""
        if has_ended(settled.watermark):
            return max(settled.newest, self.last_time()) // self.node.period.size + 1
        return self.node.period.first_open(settled.watermark)

    def _handle(
        self, number: int, arriving: Iterable[Contribution], current: int, until: int, history: History
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
            history.change(period, slot, made.rows, made.retired)
            if made.retired:
                shard.drop(FOREVER, slot)
            else:
                states = merged, made.rows, None
                shard.keep(slot, states, _size(states), slot.last)
        touched.clear()


def _shown(key: tuple[Any, ...]) -> Any:
    return key if len(key) > 1 else key[0]


def _size(states: tuple[Record | None, tuple[Record, ...] | None, Record | None]) -> int:
    carried, rows, period = states
    return sum(each.size for each in (carried, *(rows or ()), period) if each is not None)
