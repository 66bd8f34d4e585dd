"""Lookups: tuples get the columns of another table by key, of one that is given or of a stream of its changes.

A stream of changes is versioned by event time: a lookup in it is an as-of join without tolerance. A table that is given is
one version, so a lookup in it needs no state and no order: it is a step on batches, and the table is part of its value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import QueryError
from tidegate.query import expressions
from tidegate.query.as_of import How, as_of_node, check_how, matched_columns
from tidegate.query.joins import On, join_keys
from tidegate.query.nodes import AsOf, JoinColumn, LookupTable, Node
from tidegate.query.predicates.tree import LEFT, RIGHT
from tidegate.query.schema import column_type, contiguous, fitting, is_decimal, is_text, normal_schema

INDEXED = 4
"""So many tables stay indexed in a process."""
SPARSE = 8
"""An array from the least to the greatest number of a column may be so many times as long as there are numbers."""
SHORT = 8
"""A batch that is so many times as short as a table is looked up value by value; for others the values are hashed anew."""


def lookup_in_changes(
    step: str, left: Node, changes: Node, on: On, how: How, deleted: str | nw.Expr | None, suffix: str
) -> AsOf:
    """A checked lookup in a stream of changes; ``deleted`` is true of a change that takes its key away."""
    _check_on(step, on)
    if deleted is None:
        return as_of_node(step, left, changes, on, None, how, suffix)
    expr = nw.col(deleted) if isinstance(deleted, str) else deleted
    if not isinstance(expr, nw.Expr):
        raise QueryError(
            f"step '{step}': deleted is a column of the changes that is true or false, or an expression over them, as in "
            f"deleted=nw.col('op') == 'd'; got {deleted!r}"
        )
    hidden = deleted if isinstance(deleted, str) else None
    if hidden is not None:
        column_type(changes.schema, hidden, f"{step}, deleted")
    expressions.derive_condition(step, changes.schema, "deleted", expr)
    return as_of_node(step, left, changes, on, None, how, suffix, expr, hidden)


def lookup_in_table(step: str, left: Node, given: Any, on: On, how: How, suffix: str) -> LookupTable:
    """A checked lookup in a table that is given."""
    check_how(step, how)
    _check_on(step, on)
    table = _as_table(step, given, on)
    table = fitting(table, normal_schema(table.schema, f"{step}, table"), f"step '{step}': table")
    pairs = join_keys(step, on, left.schema, table.schema)
    columns = matched_columns(step, left.schema, table.schema, pairs, suffix)
    kinds = (left.schema, table.schema)
    schema = pa.schema([(column.name, kinds[column.side].field(column.column).type) for column in columns])
    found = GivenTable.of(step, table, tuple(other for _, other in pairs))
    function = TableLookup(found, tuple(name for name, _ in pairs), how == "left", columns)
    return LookupTable(step, (left,), normal_schema(schema, step), left.time, function)


@dataclass(frozen=True, eq=False)
class GivenTable:
    """A table with one row for each key; two of the same content are equal."""

    table: pa.Table
    keys: tuple[str, ...]
    digest: bytes

    @classmethod
    def of(cls, step: str, table: pa.Table, keys: tuple[str, ...]) -> GivenTable:
        """A table without rows whose key is null, which match nothing; refused if a key is there twice."""
        table = _without_null(table, keys).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content = f"{keys}".encode() + sink.getvalue().to_pybytes()
        given = cls(table, keys, hashlib.sha256(content).digest())
        rows = _index(given).rows(given.key_columns(table, keys))
        twice = np.flatnonzero(rows != np.arange(table.num_rows))
        if len(twice):
            key = table.select(list(keys)).slice(int(twice[0]), 1).to_pylist()[0]
            raise QueryError(
                f"step '{step}': {len(twice):,} rows of the table have a key that another row has, such as {key}; a lookup "
                "gives a tuple one row at most, so leave one of each, or join a stream of changes"
            )
        return given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GivenTable) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @staticmethod
    def key_columns(rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> list[pa.Array]:
        """The key columns of some rows."""
        return [contiguous(rows.column(name)) for name in names]


@dataclass(frozen=True)
class TableLookup:
    """Gives the rows of a batch the columns of a table by key. ``on`` are the key columns of the batch."""

    given: GivenTable
    on: tuple[str, ...]
    keeps_unmatched: bool
    columns: tuple[JoinColumn, ...]

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        """The rows of a batch that have a match, in their order, or all of them."""
        found = _index(self.given).rows(self.given.key_columns(batch, self.on))
        matched = found >= 0
        if not self.keeps_unmatched and not matched.all():
            batch, found = batch.filter(pa.array(matched)), found[matched]
        rows = pa.array(found, mask=found < 0)
        columns = [
            batch.column(made.column)
            if made.side == LEFT
            else contiguous(self.given.table.column(made.column)).take(rows)
            for made in self.columns
        ]
        return pa.table(columns, names=[made.name for made in self.columns])

    def __str__(self) -> str:
        keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in zip(self.on, self.given.keys, strict=True))
        made = ", ".join(made.name for made in self.columns if made.side == RIGHT)
        kept = "; tuples without a match are kept" if self.keeps_unmatched else ""
        rows = self.given.table.num_rows
        return f"on {keys} in {rows:,} row{'' if rows == 1 else 's'}: {made}{kept}"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The values of one key column of a table, numbered: numbers in their order, texts and decimals as they come.

    ``texts`` is for columns that are short beside the table, ``values`` for others. Where numbers lie close together,
    ``places`` has the number of each from the least on, −1 for what is not there.
    """

    numbers: np.ndarray[Any, Any]
    texts: Mapping[Any, int]
    values: pa.Array
    places: np.ndarray[Any, Any]

    @classmethod
    def of(cls, column: pa.Array) -> KeyColumn:
        """Those of a column without nulls."""
        none = np.empty(0, np.int64)
        if is_text(column.type) or is_decimal(column.type):
            values = column.unique()
            texts = {value: at for at, value in enumerate(_plain(values))}
            return cls(none, texts, values.cast(pa.binary()) if is_text(column.type) else values, none)
        numbers = np.unique(_bits(column))
        span = int(numbers[-1]) - int(numbers[0]) + 1 if len(numbers) else 0
        if span > SPARSE * len(numbers):
            return cls(numbers, {}, column[:0], none)
        places = np.full(span, -1, np.int64)
        places[numbers - numbers[:1]] = np.arange(len(numbers))
        return cls(numbers, {}, column[:0], places)

    def codes(self, column: pa.Array) -> np.ndarray[Any, Any]:
        """The number of each value; −1 for what is not there, null too."""
        if is_text(column.type) and SHORT * len(column) >= len(self.values):
            found = pc.index_in(column.cast(pa.binary()), value_set=self.values)
            return np.asarray(found.fill_null(-1)).astype(np.int64)
        if is_text(column.type) or is_decimal(column.type):
            encoded = column.dictionary_encode()
            found = np.array([self.texts.get(value, -1) for value in _plain(encoded.dictionary)], np.int64)
            return _at(found, np.asarray(encoded.indices.fill_null(-1)))
        wanted = _bits(column)
        if len(self.places):
            # Far from the least one, the difference does not fit, and is no place either.
            away = (wanted - self.numbers[0]).view(np.uint64)
            inside = (away < np.uint64(len(self.places))) & _valid(column)
            return np.where(inside, self.places[np.where(inside, away, np.uint64(0)).view(np.int64)], -1)
        return np.where(_valid(column), _places(self.numbers, wanted), -1)


@dataclass(frozen=True, slots=True)
class TableIndex:
    """Finds the row of a key: by column a number for its values, then for each pair of numbers another."""

    columns: tuple[KeyColumn, ...]
    pairs: tuple[np.ndarray[Any, Any], ...]
    order: np.ndarray[Any, Any]

    def rows(self, keys: Sequence[pa.Array]) -> np.ndarray[Any, Any]:
        """The row of each key, −1 where there is none; of several rows of one key the first."""
        codes = self.columns[0].codes(keys[0])
        for column, key, pairs in zip(self.columns[1:], keys[1:], self.pairs, strict=True):
            codes = _places(pairs, _paired(codes, column.codes(key)))
        return _at(self.order, codes)


@lru_cache(maxsize=INDEXED)
def _index(given: GivenTable) -> TableIndex:
    keys = given.key_columns(given.table, given.keys)
    columns = tuple(map(KeyColumn.of, keys))
    codes = columns[0].codes(keys[0])
    pairs = []
    for column, key in zip(columns[1:], keys[1:], strict=True):
        both = _paired(codes, column.codes(key))
        pairs.append(np.unique(both))
        codes = _places(pairs[-1], both)
    order = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    order[codes[::-1]] = np.arange(len(codes))[::-1]
    return TableIndex(columns, tuple(pairs), order)


def _check_on(step: str, on: Any) -> None:
    if on is None:
        raise QueryError(f"step '{step}': a lookup goes by key; name the column that both have, as in on='id'")


def _paired(codes: np.ndarray[Any, Any], others: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One number for two, each below 2³¹; −1 where either is."""
    return np.where((codes >= 0) & (others >= 0), (codes << 31) | others, -1)


def _places(values: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where numbers are among ascending ones, −1 for those that are not."""
    if len(values) == 0:
        return np.full(len(wanted), -1, np.int64)
    places = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return np.where(values[places] == wanted, places, -1)


def _at(values: np.ndarray[Any, Any], places: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values at places, −1 where the place is."""
    if len(values) == 0:
        return np.full(len(places), -1, np.int64)
    return np.where(places >= 0, values[places], -1)


def _valid(column: pa.Array) -> np.ndarray[Any, Any]:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _plain(column: pa.Array) -> list[Any]:
    """The bytes of texts, and decimals as they are."""
    return list((column.cast(pa.binary()) if is_text(column.type) else column).to_pylist())


def _bits(column: pa.Array) -> np.ndarray[Any, Any]:
    """A whole number for each value, the same for equal ones: NaN is one value, and −0.0 is 0.0."""
    kind = column.type
    if pa.types.is_floating(kind):
        values = np.asarray(column.cast(pa.float64()).fill_null(0.0)) + 0.0
        values[np.isnan(values)] = np.nan
        return values.view(np.int64)
    plain = column.view(pa.int64()) if pa.types.is_timestamp(kind) else column
    plain = plain.view(pa.int32()) if pa.types.is_date32(kind) else plain
    return np.asarray(plain.cast(pa.int64()).fill_null(0))


def _without_null(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows of a table that have a key."""
    known = pc.is_valid(table.column(keys[0]))
    for name in keys[1:]:
        known = pc.and_(known, pc.is_valid(table.column(name)))
    return table.filter(known)


def _as_table(step: str, given: Any, on: On) -> pa.Table:
    """What was given as an Arrow table."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    try:
        if isinstance(given, str | Path):
            return pq.read_table(given)
        if isinstance(given, Mapping) and given and all(isinstance(row, Mapping) for row in given.values()):
            if not isinstance(on, str):
                raise QueryError(f"step '{step}': a dict of rows has keys of one column; name it, as in on='id'")
            return pa.Table.from_pylist([{on: key, **row} for key, row in given.items()])
        if isinstance(given, Mapping):
            return pa.table(dict(given))
        if isinstance(given, list):
            return pa.Table.from_pylist(given)
        return nw.from_native(given, eager_only=True).to_arrow()
    except (pa.ArrowException, OSError, TypeError, AttributeError) as error:
        raise QueryError(
            f"step '{step}': a lookup takes a stream of changes, or a table: Arrow, pandas, Polars, a list of dicts, a dict "
            f"of rows by key, or a parquet file; got {type(given).__name__}: {error}"
        ) from error
