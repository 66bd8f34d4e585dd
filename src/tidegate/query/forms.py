"""The two forms of `apply`: the functions of STRETCH (§4, table 1) on one tuple at a time, or on whole columns.

``update`` is f_U, ``output`` f_O and ``slide`` f_S. In the tuple form the window they get stands for the I window instances
of one key, one per input, so it has one state per input.

In the column form a tuple *contributes* once to each window of each of its keys. ``update`` gets a run of contributions in
canonical order, and with it the windows they go to: each has a slot, and its state is a row of columns. How contributions
are cut into runs is not defined, and one slot may occur several times in one: a function must give what it would give if it
were called for one contribution after the other. The reference does exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.event_time import in_microseconds
from tidegate.query.schema import contiguous
from tidegate.query.user_functions import Misfit, Record, ValueShape, record_of, returned_array, user_context

STORED = "tuples"
"""The one field of the state that holds whole tuples: what is kept unless a state is declared."""


class Tuple(Record):
    """A tuple that arrives: a read-only dict of its columns, with its event time in µs and the input it came by.

    Once it is stored in a state only the columns are left of it.
    """

    __slots__ = ("input", "time")

    def __init__(self, values: Mapping[str, Any], shape: ValueShape, size: int, time: int, input_index: int) -> None:
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


@dataclass(frozen=True, slots=True)
class TupleResult:
    """The result of one call: states to keep, checked rows to emit, and whether the key is retired."""

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
    def shapes(self) -> tuple[ValueShape, ...]:
        """The shape of each state."""
        return tuple(map(record_of, self.states))

    @cached_property
    def row_shape(self) -> ValueShape:
        """The shape of results."""
        return record_of(self.returns)

    def is_empty(self, states: tuple[Record, ...]) -> bool:
        """Whether all states are the empty ones."""
        return all(state == empty for state, empty in zip(states, self.initial, strict=True))

    def updates(self, step: str, window: KeyedWindow, arriving: Tuple) -> TupleResult:
        """Call ``update``; by default the tuple is stored in the state of its input."""
        if self.update is None:
            return TupleResult(self._stored(window.states, arriving), [])
        call = (step, "update", arriving)
        returned = _called(call, self.update, window, arriving)
        if returned is None:
            return TupleResult(window.states, [])
        if not isinstance(returned, Updated):
            _refuse(call, f"{returned!r}; return tg.updated(state, rows=[...]) or None")
        if not isinstance(returned.retire, bool):
            _refuse(call, f"retire={returned.retire!r}, which is neither True nor False")
        if returned.retire and window.end is not None:
            _refuse(call, "retire=True, and only the keys of an unbounded window can be retired")
        return TupleResult(self._states(call, returned, window), self._rows(call, returned.rows), returned.retire)

    def outputs(self, step: str, window: KeyedWindow) -> list[Record]:
        """Call ``output``; by default nothing is emitted."""
        if self.output is None:
            return []
        call = (step, "output", window)
        return self._rows(call, _called(call, self.output, window))

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
        return self._states(call, returned, window)

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

    def _states(self, call: Call, returned: Updated, window: KeyedWindow) -> tuple[Record, ...]:
        if not returned.states:
            return window.states
        if len(returned.states) != len(self.states):
            _refuse(call, f"{len(returned.states)} states; there is one per input, and {len(self.states)} inputs")
        taken = []
        for given, shape, empty in zip(returned.states, self.shapes, self.initial, strict=True):
            try:
                taken.append(empty if given is None else shape.take(given)[0])
            except Misfit as misfit:
                _refuse(call, f"a state that was not declared: {misfit}", misfit)
        return tuple(taken)

    def _rows(self, call: Call, rows: Any) -> list[Record]:
        try:
            return [self.row_shape.check(row)[0] for row in listed_rows(rows)]
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
    raise DataError(f"step '{step}': {what}") from error


def _refuse(call: Call, what: str, cause: Exception | None = None) -> NoReturn:
    step, function, _ = call
    raise DataError(f"step '{step}': {function} returned, for {_about(call)}, {what}") from cause


@dataclass(frozen=True, slots=True)
class Slots:
    """Windows side by side: their keys, bounds (null if unbounded) and states; row i of each belongs to slot i."""

    keys: pa.Table
    starts: pa.Array
    ends: pa.Array
    states: pa.Table

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Contributions:
    """A run of contributions of one input, in canonical order.

    Contribution i is tuple ``rows[i]`` of ``tuples`` for slot ``slots[i]`` of ``windows``. A tuple is not copied for
    its keys and windows; `column` spreads a column over the contributions if that is what you need.
    """

    tuples: pa.Table
    input: int
    rows: pa.Array
    slots: pa.Array
    windows: Slots

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> pa.Array:
        """A column of the tuples with one value per contribution."""
        taken = self.tuples.column(name).take(self.rows)
        return contiguous(taken)


@dataclass(frozen=True, slots=True)
class ColumnResult:
    """The result of one call: the states of all slots, rows with the contribution or slot of each, and what retires."""

    states: pa.Table
    rows: pa.Table
    of: pa.Array
    retired: np.ndarray[Any, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ColumnForm:
    """The three functions, the columns of a window's state, what they hold before the first tuple, and those of results.

    ``ordered`` says that ``update`` needs the contributions of all inputs in one order.
    """

    update: Callable[[Contributions], Updated]
    output: Callable[[Slots], Any] | None
    slide: Callable[[Slots], Updated] | None
    state: pa.Schema
    initial: pa.Table
    returns: pa.Schema
    ordered: bool = True

    def updates(self, step: str, batch: Contributions, unbounded: bool) -> ColumnResult:
        """Call ``update``."""
        returned = _call(step, "update", self.update, batch)
        if not isinstance(returned, Updated):
            _reject(step, "update", f"{type(returned).__name__}; return tg.updated(states, rows=..., of=...)")
        retired = None
        if returned.retire is not False:
            if not unbounded:
                _reject(step, "update", "retire=..., and only the keys of an unbounded window can be retired")
            retiring = self._array(step, "update", "retire", returned.retire, pa.bool_(), len(batch.windows))
            retired = np.asarray(retiring.fill_null(False).to_numpy(zero_copy_only=False))
        rows, of = self._rows(step, "update", returned, len(batch))
        return ColumnResult(self._states(step, "update", returned, batch.windows), rows, of, retired)

    def outputs(self, step: str, expired: Slots) -> ColumnResult:
        """Call ``output``; by default nothing is emitted."""
        if self.output is None:
            return ColumnResult(expired.states, self.returns.empty_table(), pa.array([], pa.int64()))
        returned = _call(step, "output", self.output, expired)
        if not isinstance(returned, Updated):
            returned = Updated((), returned, np.arange(len(expired)))
        if returned.states:
            _reject(step, "output", "states; a window that has expired has no next state")
        rows, of = self._rows(step, "output", returned, len(expired))
        return ColumnResult(expired.states, rows, of)

    def slides(self, step: str, advanced: Slots) -> pa.Table:
        """Call ``slide`` for windows that have advanced."""
        if self.slide is None:
            return advanced.states
        returned = _call(step, "slide", self.slide, advanced)
        if not isinstance(returned, Updated) or not _is_nothing(returned.rows):
            _reject(step, "slide", f"{type(returned).__name__}; return tg.updated(states), without rows")
        return self._states(step, "slide", returned, advanced)

    def _states(self, step: str, function: str, returned: Updated, windows: Slots) -> pa.Table:
        if not returned.states:
            return windows.states
        if len(returned.states) != 1:
            _reject(step, function, f"{len(returned.states)} states; the columns of the state are one mapping")
        return self._table(step, function, "state", returned.states[0], self.state, len(windows))

    def _rows(self, step: str, function: str, returned: Updated, most: int) -> tuple[pa.Table, pa.Array]:
        if _is_nothing(returned.rows):
            return self.returns.empty_table(), pa.array([], pa.int64())
        if returned.of is None:
            _reject(step, function, "rows without of=..., the index of what each of them belongs to")
        of = self._array(step, function, "of", returned.of, pa.int64(), None)
        where = np.asarray(of.fill_null(-1) if of.null_count else of)
        if len(where) and (where.min() < 0 or where.max() >= most):
            _reject(step, function, f"of=... with the index {where.min()} or {where.max()}; there are 0 to {most - 1}")
        return self._table(step, function, "rows", returned.rows, self.returns, len(of)), of

    def _table(self, step: str, function: str, what: str, given: Any, schema: pa.Schema, length: int) -> pa.Table:
        is_arrow = isinstance(given, pa.Table | pa.RecordBatch)
        columns = dict(zip(given.schema.names, given.columns, strict=True)) if is_arrow else given
        if not isinstance(columns, Mapping) or set(columns) != set(schema.names):
            got = list(columns) if isinstance(columns, Mapping) else type(columns).__name__
            _reject(step, function, f"{what} {got}; the declared columns are {schema.names}")
        arrays = [self._array(step, function, f"{what} '{f.name}'", columns[f.name], f.type, length) for f in schema]
        return pa.table(arrays, schema=schema) if arrays else _no_columns(length)

    def _array(
        self, step: str, function: str, what: str, given: Any, kind: pa.DataType, length: int | None
    ) -> pa.Array:
        try:
            array = returned_array(given, kind)
        except (pa.ArrowException, TypeError, ValueError) as error:
            _reject(step, function, f"{what} that is not {kind}: {error}", error)
        if length is not None and len(array) != length:
            _reject(step, function, f"{what} with {len(array)} values; there must be {length}")
        return array


def _is_nothing(rows: Any) -> bool:
    return rows is None or (isinstance(rows, tuple | list | Mapping) and not rows)


def _no_columns(length: int) -> pa.Table:
    """A table without columns that still has rows: what a form without state keeps."""
    return pa.table({"_": pa.nulls(length)}).select([])


def _call(step: str, name: str, function: Callable[[Any], Any], argument: Contributions | Slots) -> Any:
    try:
        with user_context():
            return function(argument)
    except Exception as error:
        raise DataError(
            f"step '{step}': {name} failed on {len(argument)} rows: {type(error).__name__}: {error}"
        ) from error


def _reject(step: str, function: str, what: str, cause: Exception | None = None) -> NoReturn:
    raise DataError(f"step '{step}': {function} returned {what}") from cause
