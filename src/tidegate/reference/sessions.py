"""The law of sessions: tuples of a key that follow one another by less than the gap.

A tuple opens ``[τ, τ + gap)``; what overlaps is one session, and one that has expired (``end ≤ W``) merges with nothing. A
tuple whose own stretch has expired is late. Where a session lasts at most so long, settled tuples are taken in canonical
order: one belongs to the session before it when it lies less than the gap after its last tuple and less than ``most`` after
its first; a tuple before the watermark is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.query.nodes import SessionAggregate
from tidegate.query.schema import canonical, canonical_tuple
from tidegate.reference.rows import LateTuple, RowValues, keys_of, python_row, table_of
from tidegate.watermark import START, Watermark


@dataclass
class SessionLaw:
    """One aggregate over sessions at work; ``sessions`` are those of each key that have not expired."""

    node: SessionAggregate
    watermark: Watermark = START
    sessions: dict[Any, list[_Session]] = field(default_factory=dict)
    waiting: list[tuple[int, Any, _Session]] = field(default_factory=list)
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Put one tuple into a session of each of its keys, or let it wait until it is settled."""
        node, session = self.node, self.node.session
        tuple_ = python_row(row, node.input)
        time = tuple_[node.input.time]
        is_late = time < self.watermark if session.most_us is not None else time + session.gap_us <= self.watermark
        if is_late:
            self.late.append(LateTuple(node.name, side, self.watermark, tuple_))
            return
        for key in keys_of(node.keys, row, tuple_):
            alone = _Session(key, time, time, [tuple_])
            if session.most_us is None:
                self._merge(alone)
            else:
                self.waiting.append((time, canonical_tuple(tuple_, node.input.schema, node.input.time), alone))
        yield from ()

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Take in what is settled, and emit every session that expires, in the order of their ends."""
        self.watermark = watermark
        for _, _, alone in sorted((one for one in self.waiting if one[0] < watermark), key=lambda one: one[:2]):
            self._follow(alone)
        self.waiting = [one for one in self.waiting if one[0] >= watermark]
        expired = [one for held in self.sessions.values() for one in held if self._end(one) <= watermark]
        for key, held in list(self.sessions.items()):
            self.sessions[key] = [one for one in held if self._end(one) > watermark]
        expired.sort(key=lambda one: (self._end(one), canonical(one.key)))
        if expired:
            yield table_of([self._row(one) for one in expired], self.node.schema)

    def _merge(self, alone: _Session) -> None:
        """Merge a tuple with all sessions of its key that it overlaps."""
        held = self.sessions.setdefault(canonical(alone.key), [])
        for one in [one for one in held if one.first < self._end(alone) and alone.first < self._end(one)]:
            held.remove(one)
            alone = _Session(
                alone.key, min(one.first, alone.first), max(one.last, alone.last), one.tuples + alone.tuples
            )
        held.append(alone)

    def _follow(self, alone: _Session) -> None:
        """Add a settled tuple to the last session of its key, if it belongs there."""
        held = self.sessions.setdefault(canonical(alone.key), [])
        if held and alone.first < self._end(held[-1]):
            held[-1].last = alone.last
            held[-1].tuples += alone.tuples
        else:
            held.append(alone)

    def _end(self, one: _Session) -> int:
        session = self.node.session
        end = one.last + session.gap_us
        return end if session.most_us is None else min(end, one.first + session.most_us)

    def _row(self, one: _Session) -> RowValues:
        node, end = self.node, self._end(one)
        row: RowValues = dict(zip(node.key_schema.names, one.key, strict=True))
        row |= {node.time: end - 1, "window_start": one.first, "window_end": end}
        for name, aggregate in node.aggregates:
            row[name] = aggregate.value(one.tuples, node.input.schema, node.time)
        return row


@dataclass
class _Session:
    """The tuples of one session, and the times of the first and the last."""

    key: tuple[Any, ...]
    first: int
    last: int
    tuples: list[RowValues]
