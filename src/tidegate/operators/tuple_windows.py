"""The tuple form of O+ on shared shards: the user's functions, one settled tuple at a time (STRETCH, algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.held_windows import Held
from tidegate.operators.settling import Settled
from tidegate.query.forms import KeyedWindow, Tuple, TupleForm, arrived
from tidegate.query.nodes import KeyedApply
from tidegate.query.schema import canonical
from tidegate.query.user_functions import Record
from tidegate.watermark import END, Watermark

Array = np.ndarray[Any, Any]
Contribution = tuple[Tuple, tuple[Any, ...]]
FOREVER = 0


@dataclass(slots=True)
class _Slot:
    """The window of one key: its states, their size, and the time of its last tuple."""

    key: tuple[Any, ...]
    states: tuple[Record, ...]
    bytes: int
    last: int = 0


@dataclass(slots=True)
class _Shard:
    """The windows of a shard by number, then key. Touched by its owner alone."""

    windows: dict[int, dict[Any, _Slot]] = field(default_factory=dict)
    next_end: Watermark = END
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class TupleWindows:
    """The state of one O+ in tuple form. Each method is called by the owner of the shards it is about."""

    node: KeyedApply
    form: TupleForm
    shards: tuple[_Shard, ...]

    @staticmethod
    def fresh(node: KeyedApply, form: TupleForm, shards: int) -> TupleWindows:
        """No state yet."""
        return TupleWindows(node, form, tuple(_Shard() for _ in range(shards)))

    @property
    def rows(self) -> int:
        """How many windows are held."""
        return sum(shard.rows for shard in self.shards)

    @property
    def bytes(self) -> int:
        """About how many bytes their states hold."""
        return sum(shard.bytes for shard in self.shards)

    def held(self, shard: int) -> Iterator[Held]:
        """The windows of a shard, to be kept elsewhere."""
        for number, slots in self.shards[shard].windows.items():
            for slot in slots.values():
                yield Held(number, slot.last, slot.key, slot.states)

    def put_back(self, shard: int, held: Held) -> None:
        """Take a window in again."""
        into = self.shards[shard]
        size = sum(state.size for state in held.states)
        slot = _Slot(held.key, held.states, size, held.last)
        into.windows.setdefault(held.number, {})[self.identity(held.key)] = slot
        into.rows, into.bytes = into.rows + 1, into.bytes + size
        if self.node.window is not None:
            into.next_end = min(into.next_end, self.node.window.end(held.number))

    def prepare(self, settled: Settled) -> dict[int, list[Contribution]]:
        """The settled tuples and keys of each shard as Python values, in canonical order. Touches no state."""
        found: list[tuple[int, int, Contribution]] = []
        for side, source in enumerate(self.node.inputs):
            table, times, entries = settled.tuples[side], settled.times[side].tolist(), settled.entries[side]
            if not times:
                continue
            tuples = arrived(table.to_pylist(), source.schema, table.nbytes // len(times), times, side)
            keys = zip(*(column.to_pylist() for column in entries.columns), strict=True)
            places = settled.places[side].tolist()
            for row, shard, key in zip(entries.rows.tolist(), entries.shards.tolist(), keys, strict=True):
                found.append((places[row], shard, (tuples[row], key)))
        if sum(1 for times in settled.times if len(times)) > 1:
            found.sort(key=lambda one: one[0])
        prepared: dict[int, list[Contribution]] = {}
        for _, shard, contribution in found:
            prepared.setdefault(shard, []).append(contribution)
        return prepared

    def process(
        self, settled: Settled, prepared: dict[int, list[Contribution]], owned: Array | None, ended: bool
    ) -> Iterator[pa.Table]:
        """Handle the settled tuples of the owned shards and let their windows expire; results in the order of time."""
        made: list[tuple[int, Record]] = []
        limit = END if ended else settled.watermark
        for number in range(len(self.shards)) if owned is None else np.flatnonzero(owned).tolist():
            shard = self.shards[number]
            for arriving, key in prepared.get(number, ()):
                if arriving.time >= shard.next_end:
                    self._expire(shard, arriving.time, made)
                self._handle(shard, arriving, key, made)
            if self.node.window is not None and shard.next_end <= limit:
                self._expire(shard, limit, made)
            if ended:
                shard.windows, shard.rows, shard.bytes = {}, 0, 0
        if made:
            made.sort(key=lambda one: one[0])
            yield self._table(made)

    def _handle(self, shard: _Shard, arriving: Tuple, key: tuple[Any, ...], made: list[tuple[int, Record]]) -> None:
        identity = self.identity(key)
        for number in self._covering(arriving.time):
            slots = shard.windows.setdefault(number, {})
            slot = slots.get(identity)
            if slot is None:
                slot = slots[identity] = _Slot(key, self.form.initial, 0)
                shard.rows += 1
                if self.node.window is not None:
                    shard.next_end = min(shard.next_end, self.node.window.end(number))
            slot.last = arriving.time
            step = self.form.updates(self.node.name, self._window(slot, number), arriving)
            self._keep(shard, slot, step.states)
            made.extend((arriving.time, row) for row in step.rows)
            if step.retired:
                del slots[identity]
                shard.rows -= 1
                shard.bytes -= slot.bytes

    def _covering(self, time: int) -> Sequence[int]:
        window = self.node.window
        if window is None:
            return (FOREVER,)
        first = (time - window.size) // window.every + 1
        return (first,) if self.node.single else range(first, time // window.every + 1)

    def _expire(self, shard: _Shard, limit: Watermark, made: list[tuple[int, Record]]) -> None:
        """Hand out the windows of a shard that end by a limit, earliest first, and slide or remove them."""
        window = self.node.window
        assert window is not None
        while shard.windows and window.end(number := min(shard.windows)) <= limit:
            time = window.end(number) - 1
            for identity, slot in shard.windows.pop(number).items():
                made.extend((time, row) for row in self.form.outputs(self.node.name, self._window(slot, number)))
                following = self._following(slot, number, limit)
                if following is not None:
                    shard.windows.setdefault(following, {})[identity] = slot
                    self._keep(shard, slot, slot.states)
                else:
                    shard.rows -= 1
                    shard.bytes -= slot.bytes
        shard.next_end = window.end(min(shard.windows)) if shard.windows else END

    def _following(self, slot: _Slot, number: int, limit: Watermark) -> int | None:
        """Slide a window of type single; its new number, or None if it ends because it holds no tuple or no state."""
        window = self.node.window
        assert window is not None
        following = number + 1
        if not self.node.single or slot.last < window.start(following):
            return None
        if self.form.slide is None and self.form.output is None:
            # Nobody sees the places in between: purging once is purging at each of them.
            following = window.first_open(min(limit, slot.last + window.size))
            if slot.last < window.start(following):
                return None
        slot.states = self.form.slides(self.node.name, self._window(slot, following))
        return None if self.form.is_empty(slot.states) else following

    def _keep(self, shard: _Shard, slot: _Slot, states: tuple[Record, ...]) -> None:
        size = sum(state.size for state in states)
        shard.bytes += size - slot.bytes
        slot.states, slot.bytes = states, size

    def _window(self, slot: _Slot, number: int) -> KeyedWindow:
        key = slot.key if len(slot.key) > 1 else slot.key[0]
        window = self.node.window
        if window is None:
            return KeyedWindow(key, None, None, slot.states)
        return KeyedWindow(key, window.start(number), window.end(number), slot.states)

    @cached_property
    def identity(self) -> Callable[[tuple[Any, ...]], Any]:
        """What is equal for equal keys; Python's own equality does for all types but floats."""
        floats = any(pa.types.is_floating(kind) for kind in self.node.key_schema.types)
        return canonical if floats else lambda key: key

    def _table(self, made: list[tuple[int, Record]]) -> pa.Table:
        schema = self.node.schema
        columns = [pa.array([time for time, _ in made], pa.int64()).view(schema.field(0).type)]
        columns += [pa.array([row[field.name] for _, row in made], field.type) for field in self.form.returns]
        return pa.table(columns, schema=schema)
