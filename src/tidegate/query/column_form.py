"""The column form of `apply`: the functions of STRETCH (§4, table 1) on whole columns.

A tuple *contributes* once to each window of each of its keys. ``update`` gets a run of contributions in canonical order,
and with it the windows they go to: each has a slot, and its state is a row of columns. How contributions are cut into runs
is not defined, and one slot may occur several times in one: a function must give what it would give if it were called for
one contribution after the other. The reference does exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.forms import Updated
from tidegate.query.schema import contiguous
from tidegate.query.user_functions import returned_array, user_context


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
