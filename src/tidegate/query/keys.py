"""How a tuple gets its keys: one from columns, or a set of them from a list or a function (STRETCH's f_MK)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.errors import QueryError
from tidegate.query.advice import advised
from tidegate.query.schema import as_schema, check_unique, column_type, contiguous, is_scalar
from tidegate.query.user_functions import user_context

PARTS = 16
"""Into so many parts keys are split, whatever the cells: a power of two, so that they lie evenly among the shards."""
PART = "__tg_part"


@dataclass(frozen=True, slots=True)
class Columns:
    """One key per tuple, of one column or composed of several."""

    names: tuple[str, ...]

    def reads(self) -> tuple[str, ...]:
        return self.names

    def returns(self, schema: pa.Schema, step: str) -> pa.Schema:
        if not self.names:
            raise QueryError(f"step '{step}': key_by needs at least one column, each(...) or keys(...)")
        check_unique(self.names, step)
        return pa.schema([(name, _key_type(column_type(schema, name, step), name, step)) for name in self.names])

    def __str__(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True, slots=True)
class OneForAll:
    """One key for all tuples, which is null and no column of results."""

    def reads(self) -> tuple[str, ...]:
        return ()

    def returns(self, schema: pa.Schema, step: str) -> pa.Schema:
        return pa.schema([("__tg_all", pa.bool_())])

    def __str__(self) -> str:
        return "nothing"


@dataclass(frozen=True, slots=True)
class Each:
    """A set of keys per tuple: the elements of a list column; null and empty lists have none."""

    column: str
    name: str
    distinct: bool = True

    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def returns(self, schema: pa.Schema, step: str) -> pa.Schema:
        kind = column_type(schema, self.column, step)
        if not pa.types.is_list(kind):
            lists = [field.name for field in schema if pa.types.is_list(field.type)]
            raise QueryError(
                f"step '{step}': each('{self.column}') needs a list column, and it is {kind}; lists: {lists}. "
                "Did you forget to split it?"
            )
        return pa.schema([(self.name, _key_type(kind.value_type, self.column, step))])

    def __str__(self) -> str:
        return f"each({self.column})"


@dataclass(frozen=True, slots=True)
class Words:
    """A set of keys per tuple: the words of a text, which a separator of one byte cuts; null has none.

    The compiler puts this in place of `Each` over a list that was cut from a text.
    """

    column: str
    separator: str
    name: str
    distinct: bool = True

    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def __str__(self) -> str:
        return f"words({self.column})"


@dataclass(frozen=True, slots=True, eq=False)
class KeyFunction:
    """A set of keys per tuple, given by a user's function over a batch."""

    function: Callable[[pa.RecordBatch], Any]
    columns: pa.Schema
    read: tuple[str, ...] | None
    distinct: bool = True

    def reads(self) -> tuple[str, ...] | None:
        return self.read

    def returns(self, schema: pa.Schema, step: str) -> pa.Schema:
        for name in self.read or ():
            column_type(schema, name, step)
        for field in self.columns:
            _key_type(field.type, field.name, step)
        columns = schema if self.read is None else [schema.field(name) for name in self.read]
        try:
            self.key_lists(pa.RecordBatch.from_pylist([], schema=pa.schema(columns)))
        except QueryError as error:
            raise QueryError(f"step '{step}': {error}") from error
        except Exception as error:
            raise QueryError(f"step '{step}': the key function fails on no rows: {error}") from error
        return self.columns

    def key_lists(self, batch: pa.RecordBatch) -> pa.ListArray:
        """One list of keys per row: of values for one key column, of structs for several."""
        with user_context():
            lists = self.function(batch)
        lists = contiguous(lists)
        if not isinstance(lists, pa.ListArray) or len(lists) != batch.num_rows:
            raise QueryError(
                f"the key function must return a pyarrow ListArray with one list per row ({batch.num_rows}); got "
                f"{type(lists).__name__}" + (f" of {len(lists)}" if isinstance(lists, pa.Array) else "")
            )
        kind, names = lists.type.value_type, self.columns.names
        fields = [field.name for field in kind] if pa.types.is_struct(kind) else None
        if fields != names and not (fields is None and len(names) == 1):
            raise QueryError(f"the key function declared the columns {names} and returned lists of {kind}")
        return lists

    def __str__(self) -> str:
        return f"{getattr(self.function, '__name__', 'function')}(batch)"


@dataclass(frozen=True, slots=True)
class KeyParts:
    """One of `PARTS` parts of each key of a tuple, told by what some of its columns hold.

    The compiler puts this in place of other keys where the state of one key is spread over cells; `PART` is the last column.
    """

    keys: Columns | OneForAll | Each | Words | KeyFunction
    by: tuple[str, ...]

    def reads(self) -> tuple[str, ...] | None:
        reads = self.keys.reads()
        return None if reads is None else (*reads, *self.by)

    def __str__(self) -> str:
        return f"{self.keys}, in {PARTS} parts by {', '.join(self.by)}"


Keys = Columns | OneForAll | Each | Words | KeyFunction | KeyParts


@advised
def each(column: str, *, name: str | None = None, distinct: bool = True) -> Each:
    """Key a tuple by every element of a list column, without copying the tuple.

    An element that occurs twice in a tuple counts once, unless ``distinct=False``. The key column of the result is
    called ``name``, or like the list.

    >>> import tidegate as tg
    >>> tg.each("words", name="word")
    Each(column='words', name='word', distinct=True)
    """
    return Each(column, name or column, distinct)


@advised
def keys(
    function: Callable[[pa.RecordBatch], Any],
    *,
    columns: pa.Schema | Mapping[str, pa.DataType],
    reads: tuple[str, ...] | list[str] | None = None,
    distinct: bool = True,
) -> KeyFunction:
    """Key a tuple by the set that a function gives it.

    ``function`` gets a record batch (with only the columns ``reads``, if given) and returns an Arrow list array: one
    list of keys per row, of plain values for one key column or of structs for several; dictionary-encoded values stay
    encoded, which makes many keys cheap. It must look at one row at a time.
    """
    return KeyFunction(
        function, as_schema(columns, "keys: columns"), tuple(reads) if reads is not None else None, distinct
    )


def _key_type(kind: pa.DataType, name: str, step: str) -> pa.DataType:
    if not is_scalar(kind):
        raise QueryError(f"step '{step}': '{name}' cannot be a key: {kind} is not a scalar type")
    return kind
