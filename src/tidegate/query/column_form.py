"""The columnar form of O+: the same three functions over whole columns.

A tuple *contributes* once to each window of each of its keys. ``update`` gets a stretch of contributions in canonical
order, and with it the windows they go to: each has a slot, and its state is a row of columns. How contributions are cut
into stretches is not defined, and one slot may occur several times in one: a function must give what it would give if
it were called for one contribution after the other. The reference does exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.schema import contiguous
from tidegate.query.tuple_form import Updated
from tidegate.query.users_code import users_code


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
    """A stretch of contributions of one input, in canonical order.

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
class Made:
    """What came of one call: the states of all slots, results with the contribution or slot of each, and who retires."""

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

    def updates(self, step: str, batch: Contributions, unbounded: bool) -> Made:
        """Call ``update``."""
        try:
            with users_code():
                made = self.update(batch)
        except Exception as error:
            _failed(step, "update", len(batch), error)
        if not isinstance(made, Updated):
            _refuse(step, "update", f"{type(made).__name__}; return tg.updated(states, rows=..., of=...)")
        retired = None
        if made.retire is not False:
            if not unbounded:
                _refuse(step, "update", "retire=..., and only the keys of an unbounded window can be retired")
            told = self._array(step, "update", "retire", made.retire, pa.bool_(), len(batch.windows))
            retired = np.asarray(told.fill_null(False).to_numpy(zero_copy_only=False))
        rows, of = self._rows(step, "update", made, len(batch))
        return Made(self._states(step, "update", made, batch.windows), rows, of, retired)

    def outputs(self, step: str, expired: Slots) -> Made:
        """Call ``output``; by default nothing is handed out."""
        if self.output is None:
            return Made(expired.states, self.returns.empty_table(), pa.array([], pa.int64()))
        try:
            with users_code():
                made = self.output(expired)
        except Exception as error:
            _failed(step, "output", len(expired), error)
        if not isinstance(made, Updated):
            made = Updated((), made, np.arange(len(expired)))
        if made.states:
            _refuse(step, "output", "states; a window that has expired has no next state")
        rows, of = self._rows(step, "output", made, len(expired))
        return Made(expired.states, rows, of)

    def slides(self, step: str, advanced: Slots) -> pa.Table:
        """Call ``slide`` for windows that have advanced."""
        if self.slide is None:
            return advanced.states
        try:
            with users_code():
                made = self.slide(advanced)
        except Exception as error:
            _failed(step, "slide", len(advanced), error)
        if not isinstance(made, Updated) or not _is_nothing(made.rows):
            _refuse(step, "slide", f"{type(made).__name__}; return tg.updated(states), without rows")
        return self._states(step, "slide", made, advanced)

    def _states(self, step: str, function: str, made: Updated, windows: Slots) -> pa.Table:
        if not made.states:
            return windows.states
        if len(made.states) != 1:
            _refuse(step, function, f"{len(made.states)} states; the columns of the state are one mapping")
        return self._table(step, function, "state", made.states[0], self.state, len(windows))

    def _rows(self, step: str, function: str, made: Updated, most: int) -> tuple[pa.Table, pa.Array]:
        if _is_nothing(made.rows):
            return self.returns.empty_table(), pa.array([], pa.int64())
        if made.of is None:
            _refuse(step, function, "rows without of=..., the index of what made each of them")
        of = self._array(step, function, "of", made.of, pa.int64(), None)
        where = np.asarray(of.fill_null(-1) if of.null_count else of)
        if len(where) and (where.min() < 0 or where.max() >= most):
            _refuse(step, function, f"of=... with the index {where.min()} or {where.max()}; there are 0 to {most - 1}")
        return self._table(step, function, "rows", made.rows, self.returns, len(of)), of

    def _table(self, step: str, function: str, what: str, given: Any, schema: pa.Schema, length: int) -> pa.Table:
        columns = dict(zip(given.schema.names, given.columns, strict=True)) if _is_arrow(given) else given
        if not isinstance(columns, Mapping) or set(columns) != set(schema.names):
            got = list(columns) if isinstance(columns, Mapping) else type(columns).__name__
            _refuse(step, function, f"{what} {got}; the declared columns are {schema.names}")
        made = [self._array(step, function, f"{what} '{f.name}'", columns[f.name], f.type, length) for f in schema]
        return pa.table(made, schema=schema) if made else _no_columns(length)

    def _array(
        self, step: str, function: str, what: str, given: Any, kind: pa.DataType, length: int | None
    ) -> pa.Array:
        try:
            made = given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given)
            made = contiguous(made)
            made = made if made.type == kind else made.cast(kind)
        except (pa.ArrowException, TypeError, ValueError) as error:
            _refuse(step, function, f"{what} that is not {kind}: {error}", error)
        if length is not None and len(made) != length:
            _refuse(step, function, f"{what} with {len(made)} values; there must be {length}")
        return made


def _is_arrow(given: Any) -> bool:
    return isinstance(given, pa.Table | pa.RecordBatch)


def _is_nothing(rows: Any) -> bool:
    return rows is None or (isinstance(rows, tuple | list | Mapping) and not rows)


def _no_columns(length: int) -> pa.Table:
    """A table without columns that still has rows: what a form without state keeps."""
    return pa.table({"_": pa.nulls(length)}).select([])


def _failed(step: str, function: str, size: int, error: Exception) -> NoReturn:
    raise DataError(f"step '{step}': {function} failed on {size} rows: {type(error).__name__}: {error}") from error


def _refuse(step: str, function: str, what: str, cause: Exception | None = None) -> NoReturn:
    raise DataError(f"step '{step}': {function} returned {what}") from cause
