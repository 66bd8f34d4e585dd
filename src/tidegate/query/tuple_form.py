"""The tuple form of O+: the functions of STRETCH (§4, table 1) on one tuple at a time.

``update(window, tuple)`` is f_U, ``output(window)`` f_O and ``slide(window)`` f_S. The window they get stands for the I
window instances of one key, one per input, so it has one state per input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.event_time import in_microseconds
from tidegate.query.records import Misfit, Record, Shape, record_of

STORED = "tuples"
"""The one field of the state that holds whole tuples: what is kept unless a state is declared."""


class Tuple(Record):
    """A tuple that arrives: a read-only dict of its columns, with its event time in µs and the input it came by.

    Once it is stored in a state only the columns are left of it.
    """

    __slots__ = ("input", "time")

    def __init__(self, values: Mapping[str, Any], shape: Shape, size: int, time: int, input_index: int) -> None:
        super().__init__(values, shape, size)
        self.time = time
        self.input = input_index


@dataclass(frozen=True, slots=True)
class KeyedWindow:
    """The window of one key: its bounds in µs (None if it is unbounded) and its states, one per input.

    ``key`` is a value, or a tuple of values where the key is composed of several columns.
    """

    key: Any
    start: int | None
    end: int | None
    states: tuple[Record, ...]

    @property
    def state(self) -> Record:
        """The state, where there is one input."""
        if len(self.states) != 1:
            raise TypeError(f"there are {len(self.states)} inputs, each with its state; ask for window.states[input]")
        return self.states[0]


Call = tuple[str, str, Tuple | KeyedWindow]
"""One call of a function: the step, the function's name, and what it was called for."""


@dataclass(frozen=True, slots=True)
class Updated:
    """What a function makes of a window; see `updated`."""

    states: tuple[Any, ...]
    rows: Any = ()
    of: Any = None
    retire: Any = False


def updated(*states: Any, rows: Any = (), of: Any = None, retire: Any = False) -> Updated:
    """What ``update`` or ``slide`` returns: the new states, one per input, and result rows.

    Without states they stay as they are; None is the empty state. ``retire=True`` forgets the key of an unbounded
    window. In the columnar form the state is one mapping of columns, ``rows`` are columns, ``of`` says which
    contribution made each of them, and ``retire`` is one boolean per window.

    >>> updated({"count": 3}, rows=[{"word": "tide"}])
    Updated(states=({'count': 3},), rows=[{'word': 'tide'}], of=None, retire=False)
    """
    return Updated(states, rows, of, retire)


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one call: states to keep, checked rows to hand out, and whether the key is to be forgotten."""

    states: tuple[Record, ...]
    rows: list[Record]
    retired: bool = False


@dataclass(frozen=True, eq=False)
class TupleForm:
    """The three functions, the state of each input, and the columns of results; None is the default of table 1.

    ``times`` names the event time of each input. Nothing here knows when a function is to be called.
    """

    update: Callable[[KeyedWindow, Tuple], Updated | None] | None
    output: Callable[[KeyedWindow], Any] | None
    slide: Callable[[KeyedWindow], Updated | None] | None
    states: tuple[pa.Schema, ...]
    initial: tuple[Record, ...]
    returns: pa.Schema
    times: tuple[str, ...]

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of each state."""
        return tuple(map(record_of, self.states))

    @cached_property
    def row_shape(self) -> Shape:
        """The shape of results."""
        return record_of(self.returns)

    def is_empty(self, states: tuple[Record, ...]) -> bool:
        """Whether all states are the empty ones."""
        return all(state == empty for state, empty in zip(states, self.initial, strict=True))

    def updates(self, step: str, window: KeyedWindow, arriving: Tuple) -> Step:
        """Call ``update``; by default the tuple is stored in the state of its input."""
        if self.update is None:
            return Step(self._stored(window.states, arriving), [])
        call = (step, "update", arriving)
        try:
            made = self.update(window, arriving)
        except Exception as error:
            _failed(call, error)
        if made is None:
            return Step(window.states, [])
        if not isinstance(made, Updated):
            _refuse(call, f"{made!r}; return tg.updated(state, rows=[...]) or None")
        if not isinstance(made.retire, bool):
            _refuse(call, f"retire={made.retire!r}, which is neither True nor False")
        if made.retire and window.end is not None:
            _refuse(call, "retire=True, and only the keys of an unbounded window can be retired")
        return Step(self._states(call, made, window), self._rows(call, made.rows), made.retire)

    def outputs(self, step: str, window: KeyedWindow) -> list[Record]:
        """Call ``output``; by default nothing is handed out."""
        if self.output is None:
            return []
        call = (step, "output", window)
        try:
            made = self.output(window)
        except Exception as error:
            _failed(call, error)
        return self._rows(call, made)

    def slides(self, step: str, window: KeyedWindow) -> tuple[Record, ...]:
        """Call ``slide`` for a window that has advanced; by default tuples before its start are purged."""
        if self.slide is None:
            assert window.start is not None
            return self._purged(window.states, window.start)
        call = (step, "slide", window)
        try:
            made = self.slide(window)
        except Exception as error:
            _failed(call, error)
        if made is None:
            return window.states
        if not isinstance(made, Updated) or made.retire or self._rows(call, made.rows):
            _refuse(call, f"{made!r}; return tg.updated(state), without rows, or None")
        return self._states(call, made, window)

    def _stored(self, states: tuple[Record, ...], arriving: Tuple) -> tuple[Record, ...]:
        at = arriving.input
        stored, _ = self.shapes[at].take({STORED: (*states[at][STORED], arriving)})
        return (*states[:at], stored, *states[at + 1 :])

    def _purged(self, states: tuple[Record, ...], start: int) -> tuple[Record, ...]:
        made = []
        for state, shape, time in zip(states, self.shapes, self.times, strict=True):
            if not state:
                made.append(state)
                continue
            held = state[STORED]
            kept = tuple(one for one in held if in_microseconds(one[time]) >= start)
            made.append(state if len(kept) == len(held) else shape.take({STORED: kept})[0])
        return tuple(made)

    def _states(self, call: Call, made: Updated, window: KeyedWindow) -> tuple[Record, ...]:
        if not made.states:
            return window.states
        if len(made.states) != len(self.states):
            _refuse(call, f"{len(made.states)} states; there is one per input, and {len(self.states)} inputs")
        taken = []
        for given, shape, empty in zip(made.states, self.shapes, self.initial, strict=True):
            try:
                taken.append(empty if given is None else shape.take(given)[0])
            except Misfit as misfit:
                _refuse(call, f"a state that was not declared: {misfit}", misfit)
        return tuple(taken)

    def _rows(self, call: Call, rows: Any) -> list[Record]:
        try:
            return [self.row_shape.check(row)[0] for row in _listed(rows)]
        except Misfit as misfit:
            _refuse(call, f"rows that were not declared: {misfit}", misfit)
        except Exception as error:
            # A generator fails while it is read.
            _failed(call, error)


def empty_state(schema: pa.Schema, given: Mapping[str, Any]) -> Record:
    """The state before the first tuple: what is given, else empty lists and nulls."""
    values = {field.name: () if pa.types.is_list(field.type) else None for field in schema}
    record: Record = record_of(schema).take({**values, **given})[0]
    return record


def arrived(rows: Iterable[Any], schema: pa.Schema, size: int, times: Iterable[int], side: int) -> list[Tuple]:
    """Rows of an input, as Arrow gives them, as tuples; nobody can change them, nor their lists and structs."""
    shape = record_of(schema)
    if any(pa.types.is_nested(kind) for kind in schema.types):
        rows = [shape.check(row)[0] for row in rows]
    return [Tuple(row, shape, size, time, side) for row, time in zip(rows, times, strict=True)]


def stored_tuples(schema: pa.Schema) -> pa.Schema:
    """The state that holds whole tuples of a schema."""
    return pa.schema([(STORED, pa.list_(pa.struct(list(schema))))])


def _listed(rows: Any) -> Iterable[Any]:
    """Rows as a function may give them: none, one mapping, or several."""
    if rows is None:
        return ()
    if isinstance(rows, tuple | list):
        return rows
    if isinstance(rows, Mapping):
        return (rows,)
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes):
        raise Misfit("", rows, "a row or a list of rows")
    return rows


def _about(call: Call) -> str:
    """What a function was called for; written only where something went wrong."""
    _, _, subject = call
    return f"the tuple {dict(subject)}" if isinstance(subject, Tuple) else f"the key {subject.key!r}"


def _failed(call: Call, error: Exception) -> NoReturn:
    step, function, _ = call
    told = f"step '{step}': {function} failed for {_about(call)}: {type(error).__name__}: {error}"
    raise DataError(told) from error


def _refuse(call: Call, what: str, cause: Exception | None = None) -> NoReturn:
    step, function, _ = call
    raise DataError(f"step '{step}': {function} returned, for {_about(call)}, {what}") from cause
