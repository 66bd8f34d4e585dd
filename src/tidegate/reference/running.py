"""The law of running state (A∞): settled tuples in canonical order, one at a time; all live keys at the end of a period.

Before a tuple is handled every period that ends at or before its time does, and when all settled tuples are handled every
period that ends at or before the watermark. In a period a key has a state of its own; at its end that is merged into the
carried one. The end of input ends the period in which the last tuple lies that the step or one of its sources was given, and
those before it. A tuple before the watermark is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.query.forms import Tuple, arrived
from tidegate.query.nodes import Running
from tidegate.query.schema import canonical, canonical_tuple
from tidegate.query.user_functions import Record
from tidegate.reference.rows import LateTuple, keys_of, python_row, table_of
from tidegate.watermark import START, Watermark, has_ended


@dataclass
class _Waiting:
    """A tuple, as a table of one row and as Python values, and its place in canonical order."""

    row: pa.Table
    values: Tuple
    place: tuple[Any, ...]


@dataclass
class _LiveKey:
    """A key, its state carried over from earlier periods, and that of the period; either may be missing."""

    key: tuple[Any, ...]
    carried: Record | None = None
    period: Record | None = None


@dataclass
class RunningLaw:
    """One running state at work; ``newest`` is the latest time of a tuple of its input, or of the sources before it."""

    node: Running
    watermark: Watermark = START
    newest: Watermark = START
    waiting: list[_Waiting] = field(default_factory=list)
    live: dict[Any, _LiveKey] = field(default_factory=dict)
    open: int | None = None
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Keep a tuple until it is settled; one before the watermark is late."""
        source = self.node.inputs[side]
        numbered = python_row(row, source)
        time, values = numbered[source.time], row.to_pylist()[0]
        if time < self.watermark:
            self.late.append(LateTuple(self.node.name, side, self.watermark, numbered))
            return
        self.reach(time)
        place = canonical_tuple(numbered, source.schema, source.time)
        self.waiting.append(_Waiting(row, arrived([values], source.schema, 0, [time], side)[0], (time, side, *place)))
        yield from ()

    def reach(self, time: int | None) -> None:
        """Note the time of a tuple of its input, or of a source before it."""
        self.newest = self.newest if time is None else max(self.newest, time)

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Handle what is settled and let periods end, in the order of event time."""
        self.watermark = watermark
        settled = sorted((one for one in self.waiting if one.values.time < watermark), key=lambda one: one.place)
        self.waiting = [one for one in self.waiting if one.values.time >= watermark]
        for one in settled:
            yield from self._end_periods(one.values.time)
            self._handle(one)
        if has_ended(watermark):
            yield from self._end_periods(self.newest + self.node.period.size)
            self.live.clear()
        else:
            yield from self._end_periods(watermark)

    def _handle(self, one: _Waiting) -> None:
        """Put a tuple into the period's state of each of its keys."""
        node = self.node
        for key in keys_of(node.keys[one.values.input], one.row, one.values):
            if not self.live:
                self.open = one.values.time // node.period.size
            held = self.live.setdefault(canonical(key), _LiveKey(key))
            held.period = node.form.updated(node.name, held.period, one.values)

    def _end_periods(self, limit: Watermark) -> Iterator[pa.Table]:
        """End the periods that end by a limit, one after the other, as long as some key is live."""
        while self.live and self.open is not None and self.node.period.end(self.open) <= limit:
            for identity, held in sorted(self.live.items()):
                yield from self._end(identity, held, self.node.period.end(self.open) - 1)
            self.open += 1

    def _end(self, identity: Any, held: _LiveKey, time: int) -> Iterator[pa.Table]:
        """Merge a key's period into what it carries, emit its rows, and forget it if it retires."""
        node = self.node
        if held.period is not None:
            held.carried, held.period = node.form.merged(node.name, held.key, held.carried, held.period), None
        assert held.carried is not None
        made = node.form.outputs(node.name, held.key, held.carried)
        key = dict(zip(node.key_schema.names, held.key, strict=True))
        if made.rows:
            yield table_of([{**key, **row, node.time: time} for row in made.rows], node.schema)
        if made.retired:
            del self.live[identity]
