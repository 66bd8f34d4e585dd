"""The windows of an `apply`, by shard: one slot for each window and key, which holds the states that functions return.

Both forms of `apply` keep their windows here, and so do both runtimes: in process the owner of a shard changes it in place,
a cell restores the slots that a batch touches and writes those that have changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.operators.arriving_tuples import Contribution, contributions
from tidegate.operators.columns import Array, expand_ranges, in_time_order
from tidegate.operators.settling import Settled, Settling
from tidegate.query.forms import KeyedWindow, Tuple, TupleForm
from tidegate.query.nodes import InOrder, KeyedApply
from tidegate.query.schema import canonical, contiguous
from tidegate.query.stores import Store
from tidegate.query.user_functions import Record
from tidegate.query.windows import Window
from tidegate.watermark import Watermark, has_ended

FOREVER = 0
"""The number of the one window of a key that never ends."""
NO_WINDOW = 2**63
"""More than the number of any window."""
Stores = Mapping[str, Store]
NO_STORES: Stores = {}


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """One window of one key: its number, the time of its last tuple, its states, one per input or column, and its stores."""

    number: int
    last: int
    key: tuple[Any, ...]
    states: tuple[Any, ...]
    stores: Stores = field(default_factory=dict)


@dataclass(slots=True)
class Slot:
    """The window of one key: its states and stores, about how many bytes they take, and the time of its last tuple."""

    identity: Any
    key: tuple[Any, ...]
    states: tuple[Any, ...]
    bytes: int = 0
    last: int = 0
    stores: Stores = field(default_factory=lambda: NO_STORES)


@dataclass(slots=True)
class ShardSlots:
    """The slots of a shard by number of the window, then key; ``first`` is the least number. Touched by its owner alone."""

    slots: dict[int, dict[Any, Slot]] = field(default_factory=dict)
    first: int = NO_WINDOW
    rows: int = 0
    bytes: int = 0

    def slot(self, number: int, identity: Any, key: tuple[Any, ...], initial: tuple[Any, ...]) -> Slot:
        """The slot of a key's window, added if it is not there."""
        window = self.slots.get(number)
        if window is None:
            window = self._open(number)
        found = window.get(identity)
        if found is None:
            found = window[identity] = Slot(identity, key, initial)
            self.rows += 1
        return found

    def put(self, number: int, slot: Slot) -> None:
        """Add a slot."""
        window = self.slots.get(number)
        if window is None:
            window = self._open(number)
        window[slot.identity] = slot
        self.rows += 1
        self.bytes += slot.bytes

    def keep(self, slot: Slot, states: tuple[Any, ...], size: int, last: int) -> None:
        """Give a slot new states."""
        self.bytes += size - slot.bytes
        slot.states, slot.bytes, slot.last = states, size, last

    def drop(self, number: int, slot: Slot) -> None:
        """Remove a slot."""
        del self.slots[number][slot.identity]
        self.rows -= 1
        self.bytes -= slot.bytes

    def pop(self, number: int) -> list[Slot]:
        """Remove and return all slots of a window."""
        gone = list(self.slots.pop(number).values())
        self.rows -= len(gone)
        self.bytes -= sum(slot.bytes for slot in gone)
        self.first = min(self.slots, default=NO_WINDOW)
        return gone

    def _open(self, number: int) -> dict[Any, Slot]:
        self.first = min(self.first, number)
        window: dict[Any, Slot] = {}
        self.slots[number] = window
        return window

    def clear(self) -> None:
        """Remove all slots."""
        self.slots, self.first, self.rows, self.bytes = {}, NO_WINDOW, 0, 0


@dataclass(frozen=True)
class KeyedSlots(ABC):
    """The state of one operator that takes tuples in order: those that wait to be settled, and the windows of the others.

    `process` is called by the owner of the shards it is about, in the order of settling. `prepare` does what is the same for
    all shards, once for what is settled, and touches no slot.
    """

    node: InOrder
    waiting: Settling
    shards: tuple[ShardSlots, ...]

    @property
    def rows(self) -> int:
        """How many tuples wait, and how many slots there are."""
        return self.waiting.rows + sum(shard.rows for shard in self.shards)

    @property
    def bytes(self) -> int:
        """About how many bytes the tuples and the states of slots take."""
        return self.waiting.bytes + sum(shard.bytes for shard in self.shards)

    @property
    def unfilled(self) -> int:
        """How many windows in number of tuples were not full when input ended."""
        return 0

    def shard_bytes(self) -> Array:
        """About how many bytes the states of each shard take."""
        return np.array([shard.bytes for shard in self.shards], np.float64)

    @abstractmethod
    def prepare(self, settled: Settled) -> Any:
        """What is settled in the form in which `process` takes it."""

    @abstractmethod
    def process(self, settled: Settled, prepared: Any, owned: Array | None) -> Iterator[pa.Table]:
        """Handle the settled tuples of the owned shards and let their windows expire; results in the order of time.

        No slot is touched any more when the first result is there; those after it may be computed as they are consumed.
        """

    def emits_all(self, settled: Settled) -> bool:
        """Whether every key emits something, though it has no settled tuple and no window of it expires."""
        return False

    def emit_idle(self, states: Sequence[pa.Array], keys: Sequence[pa.Array]) -> None:
        """Take note of keys that have no settled tuple, only to emit them."""
        raise InternalError(f"keys of {type(self).__name__} without tuples emit nothing")

    def stored(self) -> Iterator[StoredWindow]:
        """All windows as data."""
        for shard in self.shards:
            for number, slots in shard.slots.items():
                for slot in slots.values():
                    yield StoredWindow(number, slot.last, slot.key, slot.states, slot.stores)

    def restore(self, shard: int, stored: StoredWindow) -> None:
        """Take a window in again."""
        self._restored(shard, stored)

    def _restored(self, shard: int, stored: StoredWindow) -> Slot:
        slot = Slot(self.identity(stored.key), stored.key, stored.states, last=stored.last, stores=stored.stores)
        self.shards[shard].put(stored.number, slot)
        return slot

    @cached_property
    def identity(self) -> Callable[[tuple[Any, ...]], Any]:
        """What is equal for equal keys; Python's own equality does for all types but floats."""
        floats = any(pa.types.is_floating(kind) for kind in self.node.key_schema.types)
        return canonical if floats else lambda key: key

    def _owned(self, owned: Array | None) -> Sequence[ShardSlots]:
        return self.shards if owned is None else [self.shards[shard] for shard in np.flatnonzero(owned).tolist()]


def spread(node: KeyedApply, times: Array) -> tuple[Array, Array]:
    """Contributions of entries to windows: which entry, and the number of the window; in the order of entries."""
    window = node.window
    if window is None:
        return np.arange(len(times)), np.full(len(times), FOREVER)
    first = window.first_open(times)
    if node.single:
        return np.arange(len(times)), first
    return expand_ranges(first, times // window.every - first + 1)


def in_order(results: Sequence[tuple[Array, pa.Table]], schema: pa.Schema) -> Iterator[pa.Table]:
    """Results in the order of time, which is put before their columns."""
    parts = [(times, rows) for times, rows in results if len(times)]
    if parts:
        times = np.concatenate([when for when, _ in parts])
        rows, times = in_time_order(pa.concat_tables([table for _, table in parts]), times)
        moments = pa.array(times).view(schema.field(0).type)
        yield pa.table([moments, *(contiguous(column) for column in rows.columns)], schema=schema)


@dataclass(frozen=True)
class TupleSlots(KeyedSlots):
    """The windows of an `apply` in tuple form: the user's functions, one settled tuple at a time (STRETCH, algorithm 2)."""

    node: KeyedApply
    form: TupleForm

    def prepare(self, settled: Settled) -> dict[int, Iterator[Contribution]]:
        return contributions(settled, self.node.inputs)

    def process(
        self, settled: Settled, prepared: dict[int, Iterator[Contribution]], owned: Array | None
    ) -> Iterator[pa.Table]:
        results: list[tuple[int, Record]] = []
        for number in range(len(self.shards)) if owned is None else np.flatnonzero(owned).tolist():
            shard = self.shards[number]
            arrived: Iterable[Contribution] = prepared.get(number, ())
            if self.node.window is None:
                self._handle_forever(shard, arrived, results)
                arrived = ()
            for arriving, key in arrived:
                self._expire(shard, arriving.time, results)
                self._handle(shard, arriving, key, results)
            self._expire(shard, settled.watermark, results)
            if has_ended(settled.watermark):
                shard.clear()
        if results:
            results.sort(key=lambda one: one[0])
            schema = self.node.schema
            columns = [pa.array([time for time, _ in results], pa.int64()).view(schema.field(0).type)]
            rows = [row for _, row in results]
            columns += [pa.array([row[field.name] for row in rows], field.type) for field in self.form.returns]
            yield pa.table(columns, schema=schema)

    def _handle_forever(
        self, shard: ShardSlots, arrived: Iterable[Contribution], results: list[tuple[int, Record]]
    ) -> None:
        """Call ``update`` for windows that never end.

        All there is to do for a tuple is in one place, as it is done so often.
        """
        form, step, identity, size_of = self.form, self.node.name, self.identity, self._size
        updates, stores, composite = form.updates, form.stores, len(self.node.key_schema) > 1
        for arriving, key in arrived:
            slot = shard.slot(FOREVER, identity(key), key, form.initial)
            if stores and not slot.stores:
                slot.stores = form.new_stores(key)
            window = KeyedWindow(key if composite else key[0], None, None, slot.states, slot.stores)
            made = updates(step, window, arriving)
            shard.keep(slot, made.states, size_of(made.states, slot.stores), arriving.time)
            for row in made.rows:
                results.append((arriving.time, row))
            if made.retired:
                shard.drop(FOREVER, slot)

    def _handle(
        self, shard: ShardSlots, arriving: Tuple, key: tuple[Any, ...], results: list[tuple[int, Record]]
    ) -> None:
        identity = self.identity(key)
        for number in self._covering(arriving.time):
            slot = shard.slot(number, identity, key, self.form.initial)
            if self.form.stores and not slot.stores:
                slot.stores = self.form.new_stores(key)
            step = self.form.updates(self.node.name, self._keyed_window(slot, number), arriving)
            shard.keep(slot, step.states, self._size(step.states, slot.stores), arriving.time)
            for row in step.rows:
                results.append((arriving.time, row))
            if step.retired:
                shard.drop(number, slot)

    def _covering(self, time: int) -> Sequence[int]:
        window = self.node.window
        if window is None:
            return (FOREVER,)
        first = window.first_open(time)
        return (first,) if self.node.single else range(first, time // window.every + 1)

    def _expire(self, shard: ShardSlots, limit: Watermark, results: list[tuple[int, Record]]) -> None:
        """Emit the windows of a shard that end by a limit, earliest first, and slide or remove them."""
        window = self.node.window
        while window is not None and shard.first < window.first_open(limit):
            number = shard.first
            time = window.end(number) - 1
            for slot in shard.pop(number):
                expired = self._keyed_window(slot, number)
                results.extend((time, row) for row in self.form.outputs(self.node.name, expired))
                following = self._slide(window, slot, number, limit) if self.node.single else None
                if following is not None:
                    slot.bytes = self._size(slot.states, slot.stores)
                    shard.put(following, slot)

    def _slide(self, window: Window, slot: Slot, number: int, limit: Watermark) -> int | None:
        """Slide a window of type single; its new number, or None if it ends because it holds no tuple or no state."""
        following = number + 1
        if self.form.slide is None and self.form.output is None:
            # Nothing is called at the places in between: purging once is purging at each of them.
            following = max(following, window.first_open(min(limit, slot.last + window.size)))
        if slot.last < window.start(following):
            return None
        slot.states = self.form.slides(self.node.name, self._keyed_window(slot, following))
        return None if self.form.is_empty(slot.states, slot.stores) else following

    def _keyed_window(self, slot: Slot, number: int) -> KeyedWindow:
        key = slot.key if len(slot.key) > 1 else slot.key[0]
        window = self.node.window
        if window is None:
            return KeyedWindow(key, None, None, slot.states, slot.stores)
        return KeyedWindow(key, window.start(number), window.end(number), slot.states, slot.stores)

    def _size(self, states: tuple[Record, ...], stores: Stores) -> int:
        size = 0
        for state in states:
            size += state.size
        if stores:
            for store in stores.values():
                size += store.bytes
        return size
