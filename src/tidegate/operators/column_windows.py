"""The columnar form of O+ on shared shards: the user's functions over stretches of settled contributions.

Contributions are handled as columns. What is kept between calls is one small Python value per window and key, so
Python's share grows with the windows that a stretch touches, not with its tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.held_windows import Held
from tidegate.operators.keys import group, key_codes
from tidegate.operators.settling import Settled
from tidegate.query.forms import ColumnForm, Contributions, Slots
from tidegate.query.nodes import KeyedApply
from tidegate.query.schema import canonical, contiguous

Array = np.ndarray[Any, Any]
FOREVER = 0


@dataclass(slots=True)
class _Slot:
    """The window of one key: its state, the bytes that takes, and the time of its last tuple."""

    shard: int
    identity: Any
    key: tuple[Any, ...]
    state: tuple[Any, ...]
    bytes: int = 0
    last: int = 0


@dataclass(slots=True)
class _Shard:
    """The windows of a shard by number, then key. Touched by its owner alone."""

    windows: dict[int, dict[Any, _Slot]] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """Contributions of one input in canonical order, before windows are known: entry i is a key of tuple ``rows[i]``."""

    side: int
    entries: Array
    rows: Array
    shards: Array


@dataclass(frozen=True)
class ColumnWindows:
    """The state of one O+ in columnar form. Each method is called by the owner of the shards it is about."""

    node: KeyedApply
    form: ColumnForm
    shards: tuple[_Shard, ...]

    @staticmethod
    def fresh(node: KeyedApply, form: ColumnForm, shards: int) -> ColumnWindows:
        """No state yet."""
        return ColumnWindows(node, form, tuple(_Shard() for _ in range(shards)))

    @property
    def rows(self) -> int:
        """How many windows are held."""
        return sum(shard.rows for shard in self.shards)

    @property
    def bytes(self) -> int:
        """About how many bytes their states take as columns."""
        return sum(shard.bytes for shard in self.shards)

    def held(self, shard: int) -> Iterator[Held]:
        """The windows of a shard, to be kept elsewhere."""
        for number, slots in self.shards[shard].windows.items():
            for slot in slots.values():
                yield Held(number, slot.last, slot.key, slot.state)

    def put_back(self, shard: int, held: Held) -> None:
        """Take a window in again."""
        self._put(_Slot(shard, self.identity(held.key), held.key, held.states, last=held.last), held.number)

    def prepare(self, settled: Settled) -> list[Stretch]:
        """The settled contributions in stretches of one input and, if windows slide, of one place. Touches no state.

        Unless order matters among inputs there is one stretch of each.
        """
        sides = [side for side, entries in enumerate(settled.entries) if len(entries.rows)]
        if not sides:
            return []
        found = [settled.entries[side] for side in sides]
        if not self.node.single and (len(sides) == 1 or not self.form.ordered):
            return [
                Stretch(side, np.arange(len(entries.rows)), entries.rows, entries.shards)
                for side, entries in zip(sides, found, strict=True)
            ]
        side_of = np.repeat(sides, [len(entries.rows) for entries in found])
        entry = np.concatenate([np.arange(len(entries.rows)) for entries in found])
        rows = np.concatenate([entries.rows for entries in found])
        shards = np.concatenate([entries.shards for entries in found])
        times = np.concatenate([settled.times[side][entries.rows] for side, entries in zip(sides, found, strict=True)])
        if len(sides) > 1 and self.form.ordered:
            places = [settled.places[side][entries.rows] for side, entries in zip(sides, found, strict=True)]
            order = np.argsort(np.concatenate(places), kind="stable")
            side_of, entry, rows, shards, times = (each[order] for each in (side_of, entry, rows, shards, times))
        cut = side_of[1:] != side_of[:-1]
        if self.node.single:
            first = self._first(times)
            cut |= first[1:] != first[:-1]
        edges = [0, *(np.flatnonzero(cut) + 1).tolist(), len(rows)]
        return [
            Stretch(int(side_of[low]), entry[low:high], rows[low:high], shards[low:high])
            for low, high in pairwise(edges)
        ]

    def process(
        self, settled: Settled, prepared: list[Stretch], owned: Array | None, ended: bool
    ) -> Iterator[pa.Table]:
        """Handle the settled contributions to the owned shards and let windows expire; results in the order of time."""
        mine = range(len(self.shards)) if owned is None else np.flatnonzero(owned).tolist()
        made: list[tuple[Array, pa.Table]] = []
        for stretch in prepared:
            part = stretch
            if owned is not None:
                kept = owned[stretch.shards]
                part = Stretch(stretch.side, stretch.entries[kept], stretch.rows[kept], stretch.shards[kept])
            if self.node.single:
                at = int(settled.times[stretch.side][stretch.rows[0]])
                made.extend(self._expire(mine, int(self._first(at))))
            if len(part.rows):
                made.append(self._handle(settled, part))
        window = self.node.window
        if window is not None:
            made.extend(self._expire(mine, None if ended else window.first_open(settled.watermark)))
        if ended:
            for number in mine:
                shard = self.shards[number]
                shard.windows, shard.rows, shard.bytes = {}, 0, 0
        yield from self._in_order(made)

    def _handle(self, settled: Settled, part: Stretch) -> tuple[Array, pa.Table]:
        """Call ``update`` for one stretch."""
        tuples, entries = settled.tuples[part.side], settled.entries[part.side]
        columns = entries.columns
        if len(part.entries) < len(entries.rows):
            columns = tuple(column.take(pa.array(part.entries)) for column in columns)
        times = settled.times[part.side][part.rows]
        which, windows = self._spread(times)
        codes, bound = key_codes(columns)
        low = int(windows.min())
        span = int(windows.max()) - low + 1
        grouped = group(codes[which].astype(np.int64) * span + (windows - low), int(bound) * span)
        of_slot = which[grouped.first]
        places = windows[grouped.first]
        keys = zip(*(column.take(pa.array(of_slot)).to_pylist() for column in columns), strict=True)
        slots = [
            self._slot(shard, number, key)
            for shard, number, key in zip(part.shards[of_slot].tolist(), places.tolist(), keys, strict=True)
        ]
        rows, rest = _renumbered(part.rows)
        batch = Contributions(
            tuples if len(rows) == tuples.num_rows else tuples.take(pa.array(rows)),
            part.side,
            pa.array(rest[which]),
            pa.array(grouped.groups.astype(np.int64)),
            self._slots(slots, places),
        )
        made = self.form.updates(self.node.name, batch, self.node.window is None)
        last = np.empty(len(slots), np.int64)
        last[grouped.groups] = times[which]  # contributions are in order: the last one stays
        self._keep(slots, made.states, last)
        if made.retired is not None:
            for slot in (slots[at] for at in np.flatnonzero(made.retired).tolist()):
                self._forget(slot, FOREVER)
        return times[which][np.asarray(made.of)], made.rows

    def _expire(self, mine: Iterable[int], limit: int | None) -> Iterator[tuple[Array, pa.Table]]:
        """Call ``output`` for owned windows before a number (None: all), earliest first, and slide or remove them."""
        window = self.node.window
        assert window is not None
        while due := self._due(mine, limit):
            slots = [slot for _, slot in due]
            places = np.array([number for number, _ in due])
            made = self.form.outputs(self.node.name, self._slots(slots, places))
            ends = places * window.every + window.size
            if made.rows.num_rows:
                yield ends[np.asarray(made.of)] - 1, made.rows
            for number, slot in due:
                self._forget(slot, number)
            if not self.node.single:
                return
            # Owned windows of one number alone: those that go on are due again with the next.
            following = int(places[0]) + 1
            going = [slot for slot in slots if slot.last >= window.start(following)]
            if going:
                states = self.form.slides(self.node.name, self._slots(going, np.full(len(going), following)))
                last = np.array([slot.last for slot in going])
                self._keep(going, states, last)
                for slot in going:
                    if canonical(slot.state) != self._empty:
                        self._put(slot, following)

    def _due(self, mine: Iterable[int], limit: int | None) -> list[tuple[int, _Slot]]:
        """The owned windows before a number; of those that slide only the earliest."""
        found = [number for shard in mine for number in self.shards[shard].windows if limit is None or number < limit]
        if not found:
            return []
        wanted = [min(found)] if self.node.single else sorted(set(found))
        return [
            (number, slot)
            for number in wanted
            for shard in mine
            for slot in self.shards[shard].windows.get(number, {}).values()
        ]

    def _slot(self, shard: int, number: int, key: tuple[Any, ...]) -> _Slot:
        """The slot of a key's window, made if it is not there."""
        identity = self.identity(key)
        found = self.shards[shard].windows.get(number, {}).get(identity)
        if found is None:
            found = _Slot(shard, identity, key, self._initial)
            self._put(found, number)
        return found

    def _put(self, slot: _Slot, number: int) -> None:
        shard = self.shards[slot.shard]
        shard.windows.setdefault(number, {})[slot.identity] = slot
        shard.rows += 1
        shard.bytes += slot.bytes

    def _forget(self, slot: _Slot, number: int) -> None:
        shard = self.shards[slot.shard]
        held = shard.windows[number]
        del held[slot.identity]
        if not held:
            del shard.windows[number]
        shard.rows -= 1
        shard.bytes -= slot.bytes

    def _keep(self, slots: list[_Slot], states: pa.Table, last: Array) -> None:
        """Take new states over into slots."""
        size = states.nbytes // max(len(slots), 1)
        columns = [column.to_pylist() for column in states.columns]
        rows = zip(*columns, strict=True) if columns else ((),) * len(slots)
        for slot, state, time in zip(slots, rows, last.tolist(), strict=True):
            self.shards[slot.shard].bytes += size - slot.bytes
            slot.state, slot.bytes, slot.last = state, size, time

    def _slots(self, slots: list[_Slot], places: Array) -> Slots:
        """Windows as columns."""
        window, moment = self.node.window, self.node.schema.field(0).type
        keys = _table([slot.key for slot in slots], self.node.key_schema)
        states = _table([slot.state for slot in slots], self.form.state)
        if window is None:
            none = pa.nulls(len(slots), moment)
            return Slots(keys, none, none, states)
        starts = places * window.every
        return Slots(keys, pa.array(starts).view(moment), pa.array(starts + window.size).view(moment), states)

    def _first(self, times: Any) -> Any:
        """The earliest window that covers each time."""
        window = self.node.window
        assert window is not None
        return (times - window.size) // window.every + 1

    def _spread(self, times: Array) -> tuple[Array, Array]:
        """Contributions of entries to windows: which entry, and the number of the window; in the order of entries."""
        window = self.node.window
        entries = np.arange(len(times))
        if window is None:
            return entries, np.full(len(times), FOREVER)
        first = self._first(times)
        if self.node.single:
            return entries, first
        counts = times // window.every - first + 1
        which = np.repeat(entries, counts)
        within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        return which, first[which] + within

    def _in_order(self, made: list[tuple[Array, pa.Table]]) -> Iterator[pa.Table]:
        """Results in the order of time, which is put before their columns."""
        parts = [(times, rows) for times, rows in made if len(times)]
        if not parts:
            return
        schema = self.node.schema
        times = np.concatenate([when for when, _ in parts])
        rows = pa.concat_tables([table for _, table in parts])
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            times, rows = times[order], rows.take(pa.array(order))
        moments = pa.array(times).view(schema.field(0).type)
        yield pa.table([moments, *(contiguous(column) for column in rows.columns)], schema=schema)

    @cached_property
    def _initial(self) -> tuple[Any, ...]:
        return tuple(column[0].as_py() for column in self.form.initial.columns)

    @cached_property
    def _empty(self) -> Any:
        return canonical(self._initial)

    @cached_property
    def identity(self) -> Callable[[tuple[Any, ...]], Any]:
        """What is equal for equal keys; Python's own equality does for all types but floats."""
        floats = any(pa.types.is_floating(kind) for kind in self.node.key_schema.types)
        return canonical if floats else lambda key: key


def _renumbered(rows: Array) -> tuple[Array, Array]:
    """The distinct rows of a stretch in their order, and for each entry the position of its row among them."""
    # Entries are in the order of rows, so equal rows are neighbours.
    fresh = np.concatenate([[True], rows[1:] != rows[:-1]])
    return rows[fresh], np.cumsum(fresh) - 1


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows and schema.names else [()] * len(schema)
    return pa.table(
        [pa.array(list(column), kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )
