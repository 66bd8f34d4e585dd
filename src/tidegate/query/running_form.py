"""The four functions of `running`: the state of a key, period by period (A∞ of "On the Semantic Overlap", §5.2, listing 6).

``create`` is f_c, ``add`` f_a, ``merge`` f_m and ``output`` f_o. Nothing here knows when a function is to be called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.forms import Tuple, Updated, listed_rows
from tidegate.query.user_functions import Misfit, Record, ValueShape, record_of, shape_of


@dataclass(frozen=True, slots=True)
class RunningOutput:
    """What ``output`` made of a state: its rows, and whether the key is retired behind them."""

    rows: tuple[Record, ...]
    retired: bool = False


@dataclass(frozen=True, eq=False)
class RunningForm:
    """The four functions, the state of a key, and the columns of results besides time and key.

    ``output`` depends on the state alone, so what it gave stays true until the state changes.
    """

    create: Callable[[Tuple], Any]
    add: Callable[[Any, Tuple], Any]
    merge: Callable[[Any, Any], Any]
    output: Callable[[Any], Any]
    state: pa.Schema
    returns: pa.Schema

    @cached_property
    def shapes(self) -> tuple[ValueShape, ValueShape, ValueShape]:
        """What is kept of a key: the state of earlier periods, what ``output`` made of it, and the state of the period.

        The first two, or the last, may be missing.
        """
        shape = record_of(self.state)
        return shape, shape_of(pa.list_(pa.struct(list(self.returns)))), shape

    @cached_property
    def row_shape(self) -> ValueShape:
        """The shape of results."""
        return record_of(self.returns)

    def updated(self, step: str, period: Record | None, arriving: Tuple) -> Record:
        """The state of a period behind one more tuple."""
        called = "create" if period is None else "add"
        try:
            made = self.create(arriving) if period is None else self.add(period, arriving)
        except Exception as error:
            _failed(step, called, f"the tuple {dict(arriving)}", error)
        try:
            return self._state(made)
        except Misfit as misfit:
            _refuse(step, called, f"the tuple {dict(arriving)}", f"a state that was not declared: {misfit}", misfit)

    def merged(self, step: str, key: Any, carried: Record | None, period: Record) -> Record:
        """The state behind a period; that of the key's first one is the period's own."""
        if carried is None:
            return period
        try:
            made = self.merge(carried, period)
        except Exception as error:
            _failed(step, "merge", f"the key {key!r}", error)
        try:
            return self._state(made)
        except Misfit as misfit:
            _refuse(step, "merge", f"the key {key!r}", f"a state that was not declared: {misfit}", misfit)

    def outputs(self, step: str, key: Any, state: Record) -> RunningOutput:
        """The rows of a key at the end of a period."""
        try:
            made = self.output(state)
            retired, rows = (made.retire, made.rows) if isinstance(made, Updated) else (False, made)
            taken = tuple(self.row_shape.check(row)[0] for row in listed_rows(rows))
        except Misfit as misfit:
            _refuse(step, "output", f"the key {key!r}", f"rows that were not declared: {misfit}", misfit)
        except Exception as error:
            _failed(step, "output", f"the key {key!r}", error)
        if isinstance(made, Updated) and made.states:
            _refuse(step, "output", f"the key {key!r}", "a state; only tuples change it")
        if not isinstance(retired, bool):
            _refuse(step, "output", f"the key {key!r}", f"retire={retired!r}, which is neither True nor False")
        return RunningOutput(taken, retired)

    def _state(self, made: Any) -> Record:
        if made is None:
            raise Misfit("", made, self.shapes[0].kind)
        taken: Record = self.shapes[0].check(made)[0]
        return taken


def _failed(step: str, function: str, about: str, error: Exception) -> NoReturn:
    raise DataError(f"step '{step}': {function} failed for {about}: {type(error).__name__}: {error}") from error


def _refuse(step: str, function: str, about: str, what: str, cause: Exception | None = None) -> NoReturn:
    raise DataError(f"step '{step}': {function} returned, for {about}, {what}") from cause
