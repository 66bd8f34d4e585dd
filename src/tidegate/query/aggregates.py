"""What an aggregate computes over the tuples of one key in one window: descriptions, with their definition in Python.

Every aggregate is a commutative monoid: the states of two bags of tuples merge into the state of their sum, in any
order. That is what lets tuples be combined before an exchange, slices be shared by windows, and shards be computed by
any instance. Null inputs are left out by all but `count`, `first`, `last` and `collect`.
"""

from __future__ import annotations

import builtins
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from functools import reduce
from typing import Any

import pyarrow as pa

from tidegate.errors import DataError, QueryError
from tidegate.query.advice import advised
from tidegate.query.schema import (
    arrow_type,
    as_schema,
    canonical,
    canonical_tuple,
    column_type,
    contiguous,
    is_decimal,
    is_integer,
    is_number,
    is_scalar,
)
from tidegate.query.user_functions import returned_array, user_context

DECIMAL_STATE = tuple(pa.field(name, pa.int64()) for name in ("part0", "part1", "part2", "part3", "present"))
"""The state of a sum of decimals: its parts of 32 bits, the lowest first, and how many values were not null."""


class Aggregate(ABC):
    """A description of an aggregate; its text is the call that builds it."""

    __slots__ = ()

    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return ()

    @abstractmethod
    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        """The type of its result over tuples of a schema; refuses columns it cannot aggregate."""

    @abstractmethod
    def value(self, tuples: Sequence[Mapping[str, Any]], schema: pa.Schema, time: str) -> Any:
        """Its value over some tuples, all at once: the definition that every runtime must agree with."""

    @property
    def combined(self) -> str:
        """What is left of the tuples when they are combined before an exchange."""
        return "shrinks to one state per key and slice"


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """The number of tuples."""

    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        return pa.int64()

    def value(self, tuples: Sequence[Mapping[str, Any]], schema: pa.Schema, time: str) -> int:
        return len(tuples)

    def __str__(self) -> str:
        return "count()"


@dataclass(frozen=True, slots=True)
class _OneColumn(Aggregate):
    """An aggregate over the values of one column."""

    column: str

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def value(self, tuples: Sequence[Mapping[str, Any]], schema: pa.Schema, time: str) -> Any:
        return self.of_values([row[self.column] for row in tuples if row[self.column] is not None])

    @abstractmethod
    def of_values(self, values: Sequence[Any]) -> Any:
        """Its value over the values of the column, without nulls."""

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}({self.column})"


@dataclass(frozen=True, slots=True)
class Sum(_OneColumn):
    """The exact sum of integers as int64, or of decimals with 38 digits (overflow is an error), or the sum of floats.

    It is null if all are null.
    """

    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        kind = _numeric(schema, self.column, step, "sum")
        if is_decimal(kind):
            return pa.decimal128(38, kind.scale)
        return pa.int64() if is_integer(kind) else pa.float64()

    def of_values(self, values: Sequence[Any]) -> Any:
        if values and isinstance(values[0], Decimal):
            digits = _exact_sum(values)
            if len(digits.as_tuple().digits) > 38:
                raise decimal_overflow(self.column)
            return digits
        total = builtins.sum(values) if values else None
        if isinstance(total, int) and not -(2**63) <= total < 2**63:
            raise DataError(
                f"a sum of integers is {total}, which does not fit int64; cast the column to float64 to allow it"
            )
        return total


@dataclass(frozen=True, slots=True)
class Mean(_OneColumn):
    """The arithmetic mean as float64; null if all are null."""

    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        _numeric(schema, self.column, step, "mean")
        return pa.float64()

    def of_values(self, values: Sequence[Any]) -> float | None:
        if values and isinstance(values[0], Decimal):
            return float(Fraction(_exact_sum(values)) / len(values))
        add = math.fsum if all(map(math.isfinite, values)) else builtins.sum
        return add(values) / len(values) if values else None


@dataclass(frozen=True, slots=True)
class Extreme(_OneColumn):
    """The least (``sign`` 1) or greatest (``sign`` −1) value in canonical order; null if all are null."""

    sign: int

    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        return _ordered(schema, self.column, step, self._function)

    def of_values(self, values: Sequence[Any]) -> Any:
        choose = builtins.min if self.sign > 0 else builtins.max
        return choose(values, key=canonical, default=None)

    @property
    def _function(self) -> str:
        return "min" if self.sign > 0 else "max"

    def __str__(self) -> str:
        return f"{self._function}({self.column})"


@dataclass(frozen=True, slots=True)
class Distinct(_OneColumn):
    """The exact number of distinct values, nulls left out."""

    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        _ordered(schema, self.column, step, "distinct")
        return pa.int64()

    def of_values(self, values: Sequence[Any]) -> int:
        return len(set(map(canonical, values)))

    @property
    def combined(self) -> str:
        return "shrinks to the distinct values of a key and slice"


@dataclass(frozen=True, slots=True)
class Ranked(Aggregate):
    """The first ``limit`` tuples (all if None) in an order: the value or the list of values of ``take``, or whole tuples.

    The order is canonical (τ, then all columns left to right), reversed if ``descending``; or, with ``by``, that
    column from the greatest down, nulls left out, ties in canonical order. State refers to whole tuples, because ties are
    broken by all of their columns; each is held once, however many keys and windows it counts for.
    """

    take: str | None
    limit: int | None
    descending: bool = False
    by: str | None = None
    single: bool = False

    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in (self.take, self.by) if name is not None)

    def kept(self, schema: pa.Schema) -> list[str]:
        """The columns that a state keeps: all of them, unless ties cannot be told apart in the result."""
        return schema.names if self.by is None or self.by != self.take else [self.by]

    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        kind = pa.struct(list(schema)) if self.take is None else column_type(schema, self.take, step)
        if self.by is not None:
            _ordered(schema, self.by, step, "top_k")
        return kind if self.single else pa.list_(kind)

    def value(self, tuples: Sequence[Mapping[str, Any]], schema: pa.Schema, time: str) -> Any:
        ordered = sorted(tuples, key=lambda row: canonical_tuple(row, schema, time), reverse=self.descending)
        if (by := self.by) is not None:
            ordered = [row for row in ordered if row[by] is not None]
            ordered.sort(key=lambda row: canonical(row[by]), reverse=True)  # stable: ties stay in canonical order
        values = [dict(row) if self.take is None else row[self.take] for row in ordered[: self.limit]]
        return values[0] if self.single else values

    @property
    def combined(self) -> str:
        if self.limit is None:
            return "only packs, every tuple is shipped"
        return f"shrinks to {'1 tuple' if self.limit == 1 else f'at most {self.limit} tuples'} per key and slice"

    def __str__(self) -> str:
        if self.take is None:
            return f"top_n({self.limit}, by='{self.by}')"
        if self.by is not None:
            taken = "" if self.take == self.by else f", take='{self.take}'"
            return f"top_k({self.by}, {self.limit}{taken})"
        return f"{'collect' if not self.single else 'last' if self.descending else 'first'}({self.take})"


@dataclass(frozen=True, slots=True, eq=False)
class Monoid(Aggregate):
    """A user's own aggregate over whole columns; see `monoid`."""

    reads: tuple[str, ...]
    state: pa.Schema
    lift: Callable[..., Mapping[str, Any]]
    merge: Callable[..., Mapping[str, Any]]
    finish: Callable[..., Any]
    result: pa.DataType
    name: str

    def columns(self) -> tuple[str, ...]:
        return self.reads

    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        for column in self.reads:
            column_type(schema, column, step)
        try:
            lifted = self.lift_rows(schema.empty_table())
            self.merged(lifted, lifted)
            self.finished(lifted)
        except QueryError:
            raise
        except Exception as error:
            raise QueryError(f"step '{step}': monoid '{self.name}' fails on no rows: {error}") from error
        return self.result

    def value(self, tuples: Sequence[Mapping[str, Any]], schema: pa.Schema, time: str) -> Any:
        reads = [schema.field(name) for name in self.reads]
        rows = (pa.table([pa.array([row[each.name]], each.type) for each in reads], self.reads) for row in tuples)
        return self.finished(reduce(self.merged, map(self.lift_rows, rows)))[0].as_py()

    def lift_rows(self, rows: pa.Table) -> pa.Table:
        """One state per row."""
        columns = _arrays(rows, self.reads)
        with user_context():
            states = self.lift(**columns)
        return self._table(states, "lift")

    def merged(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """The merge of each state on the left with the one beside it on the right."""
        one, other = _arrays(left, self.state.names), _arrays(right, self.state.names)
        with user_context():
            states = self.merge(one, other)
        return self._table(states, "merge")

    def finished(self, states: pa.Table) -> pa.Array:
        """One result per state."""
        columns = _arrays(states, self.state.names)
        with user_context():
            results = self.finish(**columns)
        return _array(results, self.result, f"monoid '{self.name}': finish")

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.reads)})"

    def _table(self, columns: Mapping[str, Any], function: str) -> pa.Table:
        subject = f"monoid '{self.name}': {function}"
        if not isinstance(columns, Mapping) or set(columns) != set(self.state.names):
            got = sorted(columns) if isinstance(columns, Mapping) else type(columns).__name__
            raise QueryError(f"{subject} must return the state's columns {self.state.names}; got {got}")
        return pa.table([_array(columns[f.name], f.type, subject) for f in self.state], schema=self.state)


AGGREGATES = ("count", "sum", "mean", "min", "max", "first", "last", "collect", "top_k", "distinct", "monoid")
"""The functions below, which messages list."""


@advised
def count() -> Count:
    """Count tuples.

    >>> import tidegate as tg
    >>> tg.count()
    Count()
    """
    return Count()


@advised
def sum(column: str) -> Sum:  # noqa: A001 - the public name is tg.sum
    """Add up a column: exact int64 for integers, exact decimals of 38 digits for decimals, float64 for floats."""
    return Sum(column)


@advised
def mean(column: str) -> Mean:
    """Average a column, as float64."""
    return Mean(column)


@advised
def min(column: str) -> Extreme:  # noqa: A001 - the public name is tg.min
    """Take the least value of a column; NaN counts as greater than any number."""
    return Extreme(column, 1)


@advised
def max(column: str) -> Extreme:  # noqa: A001 - the public name is tg.max
    """Take the greatest value of a column; NaN counts as greater than any number."""
    return Extreme(column, -1)


@advised
def first(column: str) -> Ranked:
    """Take a column's value in the first tuple in canonical order."""
    return Ranked(column, 1, single=True)


@advised
def last(column: str) -> Ranked:
    """Take a column's value in the last tuple in canonical order."""
    return Ranked(column, 1, descending=True, single=True)


@advised
def collect(column: str) -> Ranked:
    """List a column's values in the canonical order of their tuples."""
    return Ranked(column, None)


@advised
def top_k(by: str, k: int, *, take: str | None = None) -> Ranked:
    """List the ``k`` greatest values of ``by`` from the top, or the ``take`` column of the tuples that hold them."""
    if not isinstance(k, int) or k < 1:
        raise QueryError(f"top_k: k is a whole number from 1; got {k!r}")
    return Ranked(take or by, k, by=by)


@advised
def distinct(column: str) -> Distinct:
    """Count the distinct values of a column, exactly."""
    return Distinct(column)


@advised
def monoid(
    *columns: str,
    state: pa.Schema | Mapping[str, pa.DataType],
    lift: Callable[..., Mapping[str, Any]],
    merge: Callable[..., Mapping[str, Any]],
    finish: Callable[..., Any],
    returns: pa.DataType,
    name: str = "monoid",
) -> Monoid:
    """Aggregate with your own commutative monoid, written on whole Arrow columns.

    ``lift(**columns)`` gives one state per row, ``merge(left, right)`` merges states side by side, ``finish(**state)``
    gives the results. All three get Arrow arrays and return Arrow arrays or anything `pyarrow.array` takes. ``merge``
    must be associative and commutative: the order in which states meet is not defined.

    >>> import pyarrow as pa, pyarrow.compute as pc, tidegate as tg
    >>> spread = tg.monoid(
    ...     "x", state={"low": pa.int64(), "high": pa.int64()},
    ...     lift=lambda x: {"low": x, "high": x},
    ...     merge=lambda a, b: {"low": pc.min_element_wise(a["low"], b["low"]),
    ...                         "high": pc.max_element_wise(a["high"], b["high"])},
    ...     finish=lambda low, high: pc.subtract(high, low), returns=pa.int64(), name="spread")
    """
    return Monoid(
        tuple(columns),
        as_schema(state, "monoid: state"),
        lift,
        merge,
        finish,
        arrow_type(returns, "monoid: returns"),
        name,
    )


def decimal_overflow(column: str) -> DataError:
    """The error about a sum that has too many digits."""
    return DataError(
        f"a sum of '{column}' has more than the 38 digits of a decimal; cast the column to float64 to allow rounding instead"
    )


def _exact_sum(values: Sequence[Decimal]) -> Decimal:
    """The sum of decimals, without rounding."""
    with localcontext(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN):
        return builtins.sum(values, Decimal(0))


def _numeric(schema: pa.Schema, column: str, step: str, function: str) -> pa.DataType:
    kind = column_type(schema, column, step)
    if not is_number(kind):
        numbers = [field.name for field in schema if is_number(field.type)]
        raise QueryError(f"step '{step}': {function}('{column}') needs a number, and it is {kind}; numbers: {numbers}")
    return kind


def _ordered(schema: pa.Schema, column: str, step: str, function: str) -> pa.DataType:
    kind = column_type(schema, column, step)
    if not is_scalar(kind):
        raise QueryError(f"step '{step}': {function}('{column}') needs a scalar column, and it is {kind}")
    return kind


def _arrays(table: pa.Table, names: Iterable[str]) -> dict[str, pa.Array]:
    return {name: contiguous(table.column(name)) for name in names}


def _array(values: Any, kind: pa.DataType, subject: str) -> pa.Array:
    try:
        return returned_array(values, kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise QueryError(f"{subject} must give {kind}: {error}") from error
