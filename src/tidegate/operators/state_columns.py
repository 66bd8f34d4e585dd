"""Columns of Python's values, as compiled loops take them: numbers, codes of texts, and whether a value is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, as_numpy, valid_mask
from tidegate.query.schema import contiguous
from tidegate.query.translated.values import Kind, kind_of
from tidegate.query.user_functions import Record, record_of

_DTYPES: dict[Kind | None, Any] = {"float": np.float64, "bool": np.bool_}
_BYTES: dict[Kind | None, int] = {"int": 8, "float": 8, "moment": 8, "bool": 1}


@dataclass(slots=True)
class TextNumbers:
    """Numbers for texts, from 0 on."""

    codes: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def copy(self) -> TextNumbers:
        return TextNumbers(dict(self.codes), list(self.texts))

    def code(self, text: str) -> int:
        """The number of a text, a new one if it has none."""
        found = self.codes.get(text)
        if found is None:
            found = self.codes[text] = len(self.texts)
            self.texts.append(text)
        return found

    def encode(self, column: pa.Array) -> Array:
        """The numbers of a column of texts; what stands for null is not defined."""
        encoded = column.dictionary_encode()
        codes = np.array([self.code(text) for text in encoded.dictionary.to_pylist()] or [0], np.int64)
        return codes[as_numpy(encoded.indices)]


def dtype_of(type_: pa.DataType) -> Any:
    """The type of a column's array."""
    return _DTYPES.get(kind_of(type_), np.int64)


def as_arrays(column: pa.Array | pa.ChunkedArray, codes: TextNumbers) -> tuple[Array, Array]:
    """The values of a column, and which of them are there."""
    array = contiguous(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    there = valid_mask(array)
    match kind_of(array.type):
        case "text":
            return codes.encode(array), there
        case "float":
            return as_numpy(array, pa.float64()), there
        case "bool":
            return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), np.bool_), there
        case _:
            return as_numpy(array), there


def as_column(values: Array, there: Array, type_: pa.DataType, codes: TextNumbers) -> pa.Array:
    """A column of a declared type."""
    mask = None if there.all() else ~there
    if kind_of(type_) == "text":
        return pa.array(codes.texts, type_).take(pa.array(values, mask=mask))
    made = pa.array(values, mask=mask)
    if made.type == type_:
        return made
    return made.view(type_) if pa.types.is_timestamp(type_) else made.cast(type_)


@dataclass(slots=True)
class StateColumns:
    """The states of some slots as columns, and back. What goes in and comes out is what Python's functions see."""

    schema: pa.Schema
    initial: Record
    codes: TextNumbers
    size: int
    arrays: list[tuple[Array, Array]] = field(init=False)
    first: list[tuple[Array, Array]] = field(init=False)

    def __post_init__(self) -> None:
        self.first = self._columns([self.initial])
        self.arrays = [(np.repeat(values, self.size), np.repeat(there, self.size)) for values, there in self.first]

    def _columns(self, records: Sequence[Record]) -> list[tuple[Array, Array]]:
        columns = [pa.array([record[f.name] for record in records], f.type) for f in self.schema]
        made = [as_arrays(column, self.codes) for column in columns]
        # Arrow's own arrays cannot be written to.
        return [
            (np.array(values, dtype_of(f.type)), there) for (values, there), f in zip(made, self.schema, strict=True)
        ]

    def load(self, places: Sequence[int], records: Sequence[Record]) -> None:
        """Put states in."""
        if places:
            for (values, there), (new, new_there) in zip(self.arrays, self._columns(records), strict=True):
                values[places], there[places] = new, new_there

    def reset(self, place: int) -> None:
        """Put the state before the first tuple in."""
        for (values, there), (first, first_there) in zip(self.arrays, self.first, strict=True):
            values[place], there[place] = first[0], first_there[0]

    def records(self, places: Array) -> list[Record]:
        """The states of some slots."""
        shape, names = record_of(self.schema), self.schema.names
        columns: list[list[Any]] = []
        sizes = np.zeros(len(places), np.int64)
        for (values, there), f in zip(self.arrays, self.schema, strict=True):
            present, fixed = there[places], _BYTES.get(kind_of(f.type))
            if fixed is None:
                coded = zip(values[places].tolist(), present.tolist(), strict=True)
                column = [self.codes.texts[code] if is_there else None for code, is_there in coded]
                sizes += np.array([1 if text is None else len(text) for text in column], np.int64)
            else:
                column = as_column(values[places], present, f.type, self.codes).to_pylist()
                sizes += np.where(present, fixed, 1)
            columns.append(column)
        rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True) if columns else ((),) * len(places)
        return [
            Record(dict(zip(names, row, strict=True)), shape, size)
            for row, size in zip(rows, sizes.tolist(), strict=True)
        ]
