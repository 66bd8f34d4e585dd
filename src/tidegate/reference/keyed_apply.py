"""The law of O+ (STRETCH, algorithms 1 and 2): settled tuples in canonical order, one at a time.

Before a tuple is handled, every window that ends at or before its time expires; when all settled tuples are, every
window that ends at or before the watermark does. A tuple before the watermark is late. The columnar form means the
same: its functions are called for one contribution, or one window, at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.query.column_form import ColumnForm, Contributions, Slots
from tidegate.query.forms import KeyedWindow, Tuple, TupleForm, arrived
from tidegate.query.nodes import KeyedApply
from tidegate.query.schema import canonical, canonical_tuple
from tidegate.query.stores import Store
from tidegate.reference.rows import LateTuple, keys_of, python_row, table_of
from tidegate.watermark import START, Watermark, has_ended

FOREVER = 0
"""The number of the one window of a key that never ends."""


@dataclass
class _Arrived:
    """A tuple, as a table of one row and as Python values, and its place in canonical order."""

    row: pa.Table
    values: Tuple
    place: tuple[Any, ...]


@dataclass
class _HeldWindow:
    """The window of one key: its state (records, or a table of one row), its stores and its last tuple's time."""

    key: tuple[Any, ...]
    state: Any
    stores: Mapping[str, Store]
    last: int = START


@dataclass
class KeyedApplyLaw:
    """One O+ at work."""

    node: KeyedApply
    watermark: Watermark = START
    waiting: list[_Arrived] = field(default_factory=list)
    windows: dict[int, dict[Any, _HeldWindow]] = field(default_factory=dict)
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Keep a tuple until it is settled; one before the watermark is late."""
        source = self.node.inputs[side]
        numbered = python_row(row, source)
        time, values = numbered[source.time], row.to_pylist()[0]
        if time < self.watermark:
            self.late.append(LateTuple(self.node.name, side, self.watermark, numbered))
            return
        place = canonical_tuple(numbered, source.schema, source.time)
        self.waiting.append(_Arrived(row, arrived([values], source.schema, 0, [time], side)[0], (time, side, *place)))
        yield from ()

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Handle what is settled and let windows expire, in the order of event time."""
        self.watermark = watermark
        settled = sorted((one for one in self.waiting if one.values.time < watermark), key=lambda one: one.place)
        self.waiting = [one for one in self.waiting if one.values.time >= watermark]
        for one in settled:
            yield from self._expire(one.values.time)
            yield from self._handle(one)
        yield from self._expire(watermark)
        if has_ended(watermark):
            self.windows.clear()

    def _handle(self, one: _Arrived) -> Iterator[pa.Table]:
        """Update each window of each key of a tuple (alg. 2, handleInputTuple)."""
        keys = keys_of(self.node.keys[one.values.input], one.row, one.values)
        for number in self._covering(one.values.time):
            for key in keys:
                instances = self.windows.setdefault(number, {})
                held = instances.setdefault(canonical(key), self._created(key))
                held.last = one.values.time
                held.state, rows, retired = self._update(held, number, one)
                yield from self._emit(rows, one.values.time)
                if retired:
                    del instances[canonical(key)]

    def _covering(self, time: int) -> list[int]:
        window = self.node.window
        if window is None:
            return [FOREVER]
        covering = list(window.covering(time))
        return covering[:1] if self.node.single else covering

    def _expire(self, limit: Watermark) -> Iterator[pa.Table]:
        """Emit the windows that end by a limit, earliest first, and slide or remove them (alg. 2, forwardAndShift).

        A window that slides goes on as long as it holds a tuple of its key and its state and stores are not empty.
        """
        window = self.node.window
        while window is not None and self.windows and window.end(number := min(self.windows)) <= limit:
            for identity, held in sorted(self.windows.pop(number).items()):
                yield from self._emit(self._output(held, number), window.end(number) - 1)
                if self.node.single and held.last >= window.start(number + 1):
                    held.state = self._slide(held, number + 1)
                    if not self._is_empty(held):
                        self.windows.setdefault(number + 1, {})[identity] = held

    def _emit(self, rows: Sequence[Any], time: int) -> Iterator[pa.Table]:
        node = self.node
        if rows:
            yield table_of([{**row, node.time: time} for row in rows], node.schema)

    # What follows calls the functions of either form.

    def _created(self, key: tuple[Any, ...]) -> _HeldWindow:
        form = self.node.form
        return _HeldWindow(key, form.initial, form.new_stores(key) if isinstance(form, TupleForm) else {})

    def _is_empty(self, held: _HeldWindow) -> bool:
        form = self.node.form
        if isinstance(form, TupleForm):
            return form.is_empty(held.state, held.stores)
        return not form.state.names or canonical(held.state.to_pylist()) == canonical(form.initial.to_pylist())

    def _update(self, held: _HeldWindow, number: int, one: _Arrived) -> tuple[Any, Sequence[Any], bool]:
        node, form = self.node, self.node.form
        if isinstance(form, TupleForm):
            step = form.updates(node.name, self._window(held, number), one.values)
            return step.states, step.rows, step.retired
        first = pa.array([0], pa.int64())
        batch = Contributions(one.row, one.values.input, first, first, self._slots(held, number))
        result = form.updates(node.name, batch, node.window is None)
        return result.states, result.rows.to_pylist(), result.retired is not None and bool(result.retired[0])

    def _output(self, held: _HeldWindow, number: int) -> Sequence[Any]:
        form = self.node.form
        if isinstance(form, TupleForm):
            return form.outputs(self.node.name, self._window(held, number))
        return list(form.outputs(self.node.name, self._slots(held, number)).rows.to_pylist())

    def _slide(self, held: _HeldWindow, number: int) -> Any:
        form = self.node.form
        if isinstance(form, ColumnForm):
            return form.slides(self.node.name, self._slots(held, number))
        return form.slides(self.node.name, self._window(held, number))

    def _window(self, held: _HeldWindow, number: int) -> KeyedWindow:
        key = held.key if len(held.key) > 1 else held.key[0]
        window = self.node.window
        if window is None:
            return KeyedWindow(key, None, None, held.state, held.stores)
        return KeyedWindow(key, window.start(number), window.end(number), held.state, held.stores)

    def _slots(self, held: _HeldWindow, number: int) -> Slots:
        window, moment = self.node.window, self.node.schema.field(self.node.time).type
        schema = self.node.key_schema
        keys = pa.table(
            [pa.array([part], kind) for part, kind in zip(held.key, schema.types, strict=True)], schema=schema
        )
        bounds = [None, None] if window is None else [window.start(number), window.end(number)]
        starts, ends = (pa.array([bound], pa.int64()).cast(moment) for bound in bounds)
        return Slots(keys, starts, ends, held.state)
