"""The windows of an `apply` in column form: the user's functions over stretches of settled contributions.

Contributions are handled as columns. What is kept between calls is one small Python value per window and key, so
Python's share grows with the windows that a stretch touches, not with its tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.operators.as_of_rows import AsOfRows
from tidegate.operators.as_of_slots import AsOfSlots
from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array, is_first
from tidegate.operators.compiled_slots import tuple_slots
from tidegate.operators.keyed_slots import FOREVER, KeyedSlots, ShardSlots, Slot, in_order, spread
from tidegate.operators.keys import group, key_codes
from tidegate.operators.logged_slots import InTurnSlots, LoggedSlots, rows_of
from tidegate.operators.running_slots import RunningSlots
from tidegate.operators.settling import Settled, Settling
from tidegate.query.column_form import ColumnForm, Contributions, Slots
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import AsOf, CountAggregate, CountJoin, Dedup, InOrder, KeyedApply, Running
from tidegate.query.schema import canonical
from tidegate.watermark import START, Watermark, has_ended

Stretch: TypeAlias = tuple[int, Array]
"""Contributions in canonical order, before windows are known: an input, and which of its settled entries."""


@dataclass(frozen=True)
class ColumnSlots(KeyedSlots):
    """The windows of an `apply` in column form."""

    node: KeyedApply
    form: ColumnForm

    def prepare(self, settled: Settled) -> list[Stretch]:
        """The settled contributions in stretches of one input and, if windows slide, of one place.

        Unless order matters among inputs there is one stretch of each.
        """
        found = settled.entries
        sides = [(side, np.arange(len(entries.rows))) for side, entries in enumerate(found) if len(entries.rows)]
        if not sides or (not self.node.single and (len(sides) == 1 or not self.form.ordered)):
            return sides
        side_of = np.concatenate([np.full(len(entries), side) for side, entries in sides])
        entries = np.concatenate([entries for _, entries in sides])
        times = np.concatenate([settled.times[side][found[side].rows] for side, _ in sides])
        if len(sides) > 1 and self.form.ordered:
            at = settled.places
            places = np.concatenate([at[side][found[side].rows] for side, _ in sides])
            order = np.argsort(places, kind="stable")
            side_of, entries, times = side_of[order], entries[order], times[order]
        cuts = is_first(side_of)
        if self.node.single and self.node.window is not None:
            cuts |= is_first(self.node.window.first_open(times))
        edges = [*np.flatnonzero(cuts).tolist(), len(entries)]
        return [(int(side_of[low]), entries[low:high]) for low, high in pairwise(edges)]

    def process(self, settled: Settled, prepared: list[Stretch], owned: Array | None) -> Iterator[pa.Table]:
        mine = self._owned(owned)
        results: list[tuple[Array, pa.Table]] = []
        for side, entries in prepared:
            found = settled.entries[side]
            if self.node.single:
                results.extend(self._expire(mine, int(settled.times[side][found.rows[entries[0]]])))
            part = entries if owned is None else entries[owned[found.shards[entries]]]
            if len(part):
                results.append(self._handle(settled, side, part))
        results.extend(self._expire(mine, settled.watermark))
        if has_ended(settled.watermark):
            for shard in mine:
                shard.clear()
        yield from in_order(results, self.node.schema)

    def _handle(self, settled: Settled, side: int, entries: Array) -> tuple[Array, pa.Table]:
        """Call ``update`` for some entries of an input; the times and columns of its results."""
        tuples, found = settled.tuples[side], settled.entries[side]
        columns, rows, shards = found.columns, found.rows, found.shards
        if len(entries) < len(rows):
            rows, shards = rows[entries], shards[entries]
            columns = tuple(column.take(pa.array(entries)) for column in columns)
        times = settled.times[side][rows]
        which, windows = spread(self.node, times)
        codes, bound = key_codes(columns)
        low = int(windows.min())
        span = int(windows.max()) - low + 1
        grouped = group(codes[which].astype(np.int64) * span + (windows - low), int(bound) * span)
        of_slot, places = which[grouped.first], windows[grouped.first]
        keys = zip(*(column.take(pa.array(of_slot)).to_pylist() for column in columns), strict=True)
        # Of each slot its shard, in a list of its own: pairs of them would keep the garbage collector busy.
        owners = [self.shards[shard] for shard in shards[of_slot].tolist()]
        identity, initial = self.identity, self._initial
        slots = [
            shard.slot(number, identity(key), key, initial)
            for shard, number, key in zip(owners, places.tolist(), keys, strict=True)
        ]
        # Entries are in the order of rows, so equal rows are neighbours.
        fresh = is_first(rows)
        rows = rows[fresh]
        batch = Contributions(
            tuples if len(rows) == tuples.num_rows else tuples.take(pa.array(rows)),
            side,
            pa.array((np.cumsum(fresh) - 1)[which]),
            pa.array(grouped.groups.astype(np.int64)),
            self._columns(slots, places),
        )
        result = self.form.updates(self.node.name, batch, self.node.window is None)
        last = np.empty(len(slots), np.int64)
        last[grouped.groups] = times[which]  # contributions are in order: the last one stays
        size, states = result.states.nbytes // len(slots), _rows(result.states, len(slots))
        for shard, slot, state, time in zip(owners, slots, states, last.tolist(), strict=True):
            shard.keep(slot, state, size, time)
        if result.retired is not None:
            for at in np.flatnonzero(result.retired).tolist():
                owners[at].drop(FOREVER, slots[at])
        return times[which][np.asarray(result.of)], result.rows

    def _expire(self, mine: Sequence[ShardSlots], limit: Watermark) -> Iterator[tuple[Array, pa.Table]]:
        """Call ``output`` for owned windows that end by a limit, earliest first, and slide or remove them."""
        window = self.node.window
        if window is None:
            return
        open_ = window.first_open(limit)
        while due := [shard for shard in mine if shard.first < open_]:
            numbers = sorted({number for shard in due for number in shard.slots if number < open_})
            if self.node.single:
                del numbers[1:]  # those that go on are due again with the next
            slots: list[Slot] = []
            owners: list[ShardSlots] = []
            counts = []
            for number in numbers:
                before = len(slots)
                for shard in due:
                    if number in shard.slots:
                        slots += shard.pop(number)
                        owners += [shard] * (len(slots) - len(owners))
                counts.append(len(slots) - before)
            places = np.repeat(numbers, counts)
            result = self.form.outputs(self.node.name, self._columns(slots, places))
            if result.rows.num_rows:
                yield places[np.asarray(result.of)] * window.every + (window.size - 1), result.rows
            if self.node.single:
                following = numbers[0] + 1
                start = window.start(following)
                going = [at for at, slot in enumerate(slots) if slot.last >= start]
                self._slide([owners[at] for at in going], [slots[at] for at in going], following)

    def _slide(self, owners: list[ShardSlots], going: list[Slot], number: int) -> None:
        """Call ``slide`` for windows that go on; those whose state is empty end."""
        if going:
            states = self.form.slides(self.node.name, self._columns(going, np.full(len(going), number)))
            for shard, slot, state in zip(owners, going, _rows(states, len(going)), strict=True):
                slot.states, slot.bytes = state, states.nbytes // len(going)
                if canonical(state) != self._empty:
                    shard.put(number, slot)

    def _columns(self, slots: Sequence[Slot], places: Array) -> Slots:
        """Windows as columns."""
        window, moment = self.node.window, self.node.schema.field(0).type
        keys = _table([slot.key for slot in slots], self.node.key_schema)
        states = _table([slot.states for slot in slots], self.form.state)
        if window is None:
            none = pa.nulls(len(slots), moment)
            return Slots(keys, none, none, states)
        starts = places * window.every
        return Slots(keys, pa.array(starts).view(moment), pa.array(starts + window.size).view(moment), states)

    @cached_property
    def _initial(self) -> tuple[Any, ...]:
        return tuple(column[0].as_py() for column in self.form.initial.columns)

    @cached_property
    def _empty(self) -> Any:
        return canonical(self._initial)


def _rows(table: pa.Table, count: int) -> Iterable[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return zip(*columns, strict=True) if columns else ((),) * count


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows and schema.names else [()] * len(schema)
    return pa.table(
        [pa.array(list(column), kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )


def slots_of(node: InOrder, reached: Watermark = START, last_time: Callable[[], int] = lambda: START) -> KeyedSlots:
    """The state of an operator before its first tuple.

    ``reached`` is the watermark up to which all was settled before, ``last_time`` says at the end of input how far the
    step's sources have come.
    """
    waiting, shards = Settling(node, SHARDS, reached), tuple(ShardSlots() for _ in range(SHARDS))
    if isinstance(node, CountAggregate | Dedup):
        return LoggedSlots(node, waiting, (), rows_of(node))
    if isinstance(node, CountJoin):
        return InTurnSlots(node, waiting, (), rows_of(node))
    if isinstance(node, AsOf):
        return AsOfSlots(node, waiting, (), AsOfRows(node))
    if isinstance(node, Running):
        return RunningSlots(node, waiting, shards, last_time, tuple({} for _ in shards), np.zeros(SHARDS, np.int64))
    if isinstance(node.form, TupleForm):
        return tuple_slots(node, waiting, shards, node.form)
    return ColumnSlots(node, waiting, shards, node.form)
