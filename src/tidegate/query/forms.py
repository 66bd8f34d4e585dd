"""The tuple form of `apply`: the functions of STRETCH (§4, table 1) on one tuple at a time.

``update`` is f_U, ``output`` f_O and ``slide`` f_S. The window they get stands for the I window instances of one key, one
per input, so it has one state per input. Stores are shared by all inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import pyarrow as pa

from tidegate.errors import DataError, choices
from tidegate.query.event_time import in_microseconds
from tidegate.query.stores import Store, StoreError, StoreType
from tidegate.query.translated.written import WrittenFunction
from tidegate.query.user_functions import Misfit, Record, ValueShape, record_of

STORED = "tuples"
"""The one field of the state that holds whole tuples: what is kept unless a state is declared."""


class Tuple(Record):
    """A tuple that arrives: a read-only dict of its columns, with its event time in µs and the input it came by.

    Once it is stored in a state only the columns are left of it.
    """

    __slots__ = ("input", "time")

    def __init__(self, values: Mapping[str, Any], shape: ValueShape, size: int, time: int, input_index: int) -> None:
        dict.__init__(self, values)  # without a call of the constructors between: there is one of these for each tuple
        self.shape, self.size, self.time, self.input = shape, size, time, input_index


@dataclass(frozen=True, slots=True)
class KeyedWindow:
    """The window of one key: its bounds in µs (None if it is unbounded), its states, one per input, and its stores.

    ``key`` is a value, or a tuple of values where the key is composed of several columns.
    """

    key: Any
    start: int | None
    end: int | None
    states: tuple[Record, ...]
    stores: Mapping[str, Store] = field(default_factory=dict)

    @property
    def state(self) -> Record:
        """The state, where there is one input."""
        if len(self.states) != 1:
            raise TypeError(f"there are {len(self.states)} inputs, each with its state; ask for window.states[input]")
        return self.states[0]

    def store(self, name: str) -> Store:
        """A store that was declared, with the entries of this window."""
        if name not in self.stores:
            raise StoreError(f"there is no store {name!r}; declared in stores=... are {choices(self.stores)}")
        return self.stores[name]


Call = tuple[str, str, Tuple | KeyedWindow]
"""One call of a function: the step, the function's name, and what it was called for."""


@dataclass(frozen=True, slots=True)
class Updated:
    """The new states of a window and its results; see `updated`."""

    states: tuple[Any, ...]
    rows: Any = ()
    of: Any = None
    retire: Any = False


def updated(*states: Any, rows: Any = (), of: Any = None, retire: Any = False) -> Updated:
    """What ``update`` or ``slide`` returns: the new states, one per input, and result rows.

    Without states they stay as they are; None is the empty state. ``retire=True`` forgets the key of an unbounded
    window. In the columnar form the state is one mapping of columns, ``rows`` are columns, ``of`` says which
    contribution each of them belongs to, and ``retire`` is one boolean per window.

    >>> updated({"count": 3}, rows=[{"word": "tide"}])
    Updated(states=({'count': 3},), rows=[{'word': 'tide'}], of=None, retire=False)
    """
    return Updated(states, rows, of, retire)


@dataclass(slots=True)
class TupleResult:
    """The result of one call: states to keep, checked rows to emit, and whether the key is retired."""

    states: tuple[Record, ...]
    rows: list[Record]
    retired: bool = False


@dataclass(frozen=True, eq=False)
class TupleForm:
    """The three functions, the state of each input, and the columns of results; None is the default of table 1.

    ``times`` names the event time of each input, ``stores`` the stores of a window, ``written`` the source of functions by
    role. Nothing here knows when a function is to be called.
    """

    update: Callable[[KeyedWindow, Tuple], Updated | None] | None
    output: Callable[[KeyedWindow], Any] | None
    slide: Callable[[KeyedWindow], Updated | None] | None
    states: tuple[pa.Schema, ...]
    initial: tuple[Record, ...]
    returns: pa.Schema
    times: tuple[str, ...]
    stores: Mapping[str, StoreType] = field(default_factory=dict)
    written: Mapping[str, WrittenFunction] = field(default_factory=dict)

    @cached_property
    def shapes(self) -> tuple[ValueShape, ...]:
        """The shape of each state."""
        return tuple(map(record_of, self.states))

    @cached_property
    def row_shape(self) -> ValueShape:
        """The shape of results."""
        return record_of(self.returns)

    def new_stores(self, key: tuple[Any, ...]) -> Mapping[str, Store]:
        """The stores of a window before its first tuple."""
        if not self.stores:
            return {}
        owner = key if len(key) > 1 else key[0]
        return {name: Store(name, of, owner) for name, of in self.stores.items()}

    def is_empty(self, states: tuple[Record, ...], stores: Mapping[str, Store]) -> bool:
        """Whether all states are the empty ones, and no store has an entry."""
        same = all(state == empty for state, empty in zip(states, self.initial, strict=True))
        return same and not any(stores.values())

    def updates(self, step: str, window: KeyedWindow, arriving: Tuple) -> TupleResult:
        """Call ``update``; by default the tuple is stored in the state of its input."""
        if self.update is None:
            return TupleResult(self._stored(window.states, arriving), [])
        call = (step, "update", arriving)
        try:
            returned = self.update(window, arriving)
        except Exception as error:
            _failed(call, error)
        if returned is None:
            return TupleResult(window.states, [])
        if not isinstance(returned, Updated):
            _refuse(call, f"{returned!r}; return tg.updated(state, rows=[...]) or None")
        retire = returned.retire
        if retire is not False:
            if not isinstance(retire, bool):
                _refuse(call, f"retire={retire!r}, which is neither True nor False")
            if window.end is not None:
                _refuse(call, "retire=True, and only the keys of an unbounded window can be retired")
        states = self._states(call, returned.states, window) if returned.states else window.states
        return TupleResult(states, self._rows(call, returned.rows) if returned.rows else [], retire)

    def outputs(self, step: str, window: KeyedWindow) -> list[Record]:
        """Call ``output``; by default nothing is emitted."""
        if self.output is None:
            return []
        call = (step, "output", window)
        for store in window.stores.values():
            store.can_change = False
        rows = self._rows(call, _called(call, self.output, window))
        for store in window.stores.values():
            store.can_change = True
        return rows

    def slides(self, step: str, window: KeyedWindow) -> tuple[Record, ...]:
        """Call ``slide`` for a window that has advanced; by default tuples before its start are purged."""
        if self.slide is None:
            assert window.start is not None
            return self._purged(window.states, window.start)
        call = (step, "slide", window)
        returned = _called(call, self.slide, window)
        if returned is None:
            return window.states
        if not isinstance(returned, Updated) or returned.retire or self._rows(call, returned.rows):
            _refuse(call, f"{returned!r}; return tg.updated(state), without rows, or None")
        return self._states(call, returned.states, window) if returned.states else window.states

    def _stored(self, states: tuple[Record, ...], arriving: Tuple) -> tuple[Record, ...]:
        at = arriving.input
        stored, _ = self.shapes[at].take({STORED: (*states[at][STORED], arriving)})
        return (*states[:at], stored, *states[at + 1 :])

    def _purged(self, states: tuple[Record, ...], start: int) -> tuple[Record, ...]:
        purged = []
        for state, shape, time in zip(states, self.shapes, self.times, strict=True):
            if not state:
                purged.append(state)
                continue
            held = state[STORED]
            kept = tuple(one for one in held if in_microseconds(one[time]) >= start)
            purged.append(state if len(kept) == len(held) else shape.take({STORED: kept})[0])
        return tuple(purged)

    def _states(self, call: Call, states: tuple[Any, ...], window: KeyedWindow) -> tuple[Record, ...]:
        if len(states) != len(self.states):
            _refuse(call, f"{len(states)} states; there is one per input, and {len(self.states)} inputs")
        taken = []
        for given, shape, empty in zip(states, self.shapes, self.initial, strict=True):
            try:
                taken.append(empty if given is None else shape.take(given)[0])
            except Misfit as misfit:
                _refuse(call, f"a state that was not declared: {misfit}", misfit)
        return tuple(taken)

    def _rows(self, call: Call, rows: Any) -> list[Record]:
        check = self.row_shape.check
        try:
            return [check(row)[0] for row in listed_rows(rows)]
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
    """Rows of an input, as Arrow gives them, as tuples; they are read-only, and so are their lists and structs."""
    shape = record_of(schema)
    if any(pa.types.is_nested(kind) for kind in schema.types):
        rows = [shape.check(row)[0] for row in rows]
    return [Tuple(row, shape, size, time, side) for row, time in zip(rows, times, strict=True)]


def stored_tuples(schema: pa.Schema) -> pa.Schema:
    """The state that holds whole tuples of a schema."""
    return pa.schema([(STORED, pa.list_(pa.struct(list(schema))))])


def listed_rows(rows: Any) -> Iterable[Any]:
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


def _called(call: Call, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        _failed(call, error)


def _failed(call: Call, error: Exception) -> NoReturn:
    step, function, _ = call
    what = f"{function} failed for {_about(call)}: {type(error).__name__}: {error}"
    if isinstance(error, StoreError):
        what = f"{error} ({function}, for {_about(call)})"
    raise DataError(f"step '{step}': {what}") from error


def _refuse(call: Call, what: str, cause: Exception | None = None) -> NoReturn:
    step, function, _ = call
    raise DataError(f"step '{step}': {function} returned, for {_about(call)}, {what}") from cause
