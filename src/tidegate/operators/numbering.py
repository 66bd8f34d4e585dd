"""Numbers for values, from 0 in the order in which they first occur, and groups of rows that have one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, byte_layout, hashes, order_codes
from tidegate.query.schema import is_decimal, is_text

LEAST_PLACES = 1 << 8
DECIMAL_BYTES = 16


@dataclass(slots=True, eq=False)
class Numbering:
    """A hash table of whole numbers that only grows. Each is searched for in one place or a few, however many there are.

    Used by one thread at a time while values are added; what was added is found by any.

    >>> numbering = Numbering()
    >>> numbering.add(np.array([7, 4, 7])).tolist(), numbering.find(np.array([4, 5])).tolist()
    ([0, 1, 0], [1, -1])
    """

    size: int = 0
    _table: Array = field(default_factory=lambda: np.full(LEAST_PLACES, -1, np.int32))
    _distinct: Array = field(default_factory=lambda: np.empty(LEAST_PLACES // 2, np.int64))

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self._table.nbytes + self._distinct.nbytes

    @property
    def values(self) -> Array:
        """The values by number."""
        return self._distinct[: self.size]

    def add(self, values: Array) -> Array:
        """The number of each value; those that have none get one."""
        from tidegate.operators.number_kernels import number_values

        # Copied, since loops are compiled anew for arrays that cannot be written, as those of Arrow.
        values = np.require(values, requirements="W")
        codes, at = np.empty(len(values), np.int64), 0
        while True:
            at, self.size = number_values(values, self._table, self._shift, self._distinct, codes, at, self.size)
            if at == len(values):
                return codes
            self._grow()

    def find(self, values: Array) -> Array:
        """The number of each value, −1 for those that have none."""
        from tidegate.operators.number_kernels import find_values

        return find_values(np.require(values, requirements="W"), self._table, self._shift, self._distinct)

    def rows_near(self, keys: Array, lows: Array, highs: Array, starts: Array, times: Array) -> tuple[Array, ...]:
        """See the loop of that name."""
        from tidegate.operators.number_kernels import rows_near

        return rows_near(keys, lows, highs, self._table, self._shift, self._distinct, starts, times)

    @property
    def _shift(self) -> int:
        return 64 - (len(self._table).bit_length() - 1)

    def _grow(self) -> None:
        """Make room for more values."""
        from tidegate.operators.number_kernels import place_values

        places = 4 * len(self._table)
        table, distinct = np.full(places, -1, np.int32), np.empty(places // 2, np.int64)
        distinct[: self.size] = self.values
        self._table, self._distinct = table, distinct
        place_values(self.values, table, self._shift)


@dataclass(slots=True, eq=False)
class TextNumbering:
    """The same for texts. Two that only have one hash are told apart."""

    size: int = 0
    _table: Array = field(default_factory=lambda: np.full(LEAST_PLACES, -1, np.int32))
    _hashes: Array = field(default_factory=lambda: np.empty(LEAST_PLACES // 2, np.uint64))
    _edges: Array = field(default_factory=lambda: np.zeros(LEAST_PLACES // 2 + 1, np.int64))
    _store: Array = field(default_factory=lambda: np.empty(LEAST_PLACES, np.uint8))

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self._table.nbytes + self._hashes.nbytes + self._edges.nbytes + self._store.nbytes

    def add(self, texts: pa.Array) -> Array:
        """The number of each text; those that have none get one. None of them is null."""
        return self._numbers(texts, True)

    def find(self, texts: pa.Array) -> Array:
        """The number of each text, −1 for those that have none."""
        return self._numbers(texts, False)

    def kept(self, numbers: Array) -> TextNumbering:
        """Some of the texts, numbered anew in this order."""
        from tidegate.operators.kernels import gather_bytes

        offsets, data = gather_bytes(self._store, self._edges[numbers], self._edges[numbers + 1])
        found = TextNumbering()
        parts = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        found.add(pa.BinaryArray.from_buffers(pa.binary(), len(numbers), parts))
        return found

    def _numbers(self, texts: pa.Array, adds: bool) -> Array:
        from tidegate.operators.number_kernels import number_texts

        hashed, (offsets, data) = hashes(texts), byte_layout(texts)
        codes, at = np.empty(len(texts), np.int64), 0
        while True:
            shift = 64 - (len(self._table).bit_length() - 1)
            held = self._table, shift, self._hashes, self._edges, self._store
            at, self.size = number_texts(hashed, offsets, data, *held, codes, at, self.size, adds)
            if at == len(texts):
                return codes
            self._grow(int(offsets[at + 1] - offsets[at]))

    def _grow(self, length: int) -> None:
        """Make room for a text of some length, and more."""
        from tidegate.operators.number_kernels import place_values

        used = int(self._edges[self.size])
        if used + length > len(self._store):
            store = np.empty(2 * (used + length), np.uint8)
            store[:used] = self._store[:used]
            self._store = store
        if self.size == len(self._hashes):
            places = 4 * len(self._table)
            table, hashed = np.full(places, -1, np.int32), np.empty(places // 2, np.uint64)
            edges = np.zeros(places // 2 + 1, np.int64)
            hashed[: self.size], edges[: self.size + 1] = self._hashes, self._edges
            self._table, self._hashes, self._edges = table, hashed, edges
            place_values(self._hashes[: self.size], table, 64 - (places.bit_length() - 1))


@dataclass(frozen=True, slots=True, eq=False)
class KeyNumbering:
    """The same for keys of one column or several, in columns without nulls: NaN is equal to itself, and −0.0 to 0.0."""

    columns: tuple[Numbering | TextNumbering, ...]
    pairs: tuple[Numbering, ...]

    @staticmethod
    def of(kinds: Sequence[pa.DataType]) -> KeyNumbering:
        """An empty one for columns of some types."""
        parts = [TextNumbering() if is_text(kind) or is_decimal(kind) else Numbering() for kind in kinds]
        return KeyNumbering(tuple(parts), tuple(Numbering() for _ in parts[1:]))

    @property
    def size(self) -> int:
        """How many keys have a number."""
        return (*self.columns[:1], *self.pairs)[-1].size

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return sum(part.nbytes for part in (*self.columns, *self.pairs))

    def add(self, keys: Sequence[pa.Array]) -> Array:
        """The number of each key; those that have none get one."""
        values = _comparable(keys)
        codes = self.columns[0].add(values[0])
        for numbering, column, pairs in zip(self.columns[1:], values[1:], self.pairs, strict=True):
            codes = pairs.add((codes << 32) | numbering.add(column))
        return codes

    def find(self, keys: Sequence[pa.Array]) -> Array:
        """The number of each key, −1 for those that have none."""
        values = _comparable(keys)
        codes = self.columns[0].find(values[0])
        for numbering, column, pairs in zip(self.columns[1:], values[1:], self.pairs, strict=True):
            others = numbering.find(column)
            codes = np.where((codes < 0) | (others < 0), -1, pairs.find((codes << 32) | others))
        return codes


def _comparable(keys: Sequence[pa.Array]) -> list[Any]:
    """Texts and decimals as texts, and other columns as whole numbers that are equal where the values are."""
    return [
        as_texts(column) if is_text(column.type) or is_decimal(column.type) else order_codes(column) for column in keys
    ]


def as_texts(column: pa.Array) -> pa.Array:
    """Texts as they are; decimals as their bytes, which are equal where they are."""
    if is_text(column.type):
        return column
    offsets = np.arange(column.offset, column.offset + len(column) + 1, dtype=np.int32) * DECIMAL_BYTES
    return pa.BinaryArray.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(offsets), column.buffers()[1]])


@dataclass(frozen=True, slots=True, eq=False)
class KeyGroups:
    """Where in an order by key the rows of each key are; those of one key are in the order of time.

    ``largest`` is how many rows the most frequent key has.
    """

    keys: Numbering
    starts: Array
    largest: int

    @staticmethod
    def of(keys: Array) -> tuple[KeyGroups, Array]:
        """The groups of rows in the order of time, given a number for the key of each; and the order in which they are."""
        from tidegate.operators.kernels import sort_slots

        numbering = Numbering()
        order, starts = sort_slots(numbering.add(keys), numbering.size)
        return KeyGroups(numbering, starts, int(np.diff(starts).max(initial=0))), order

    @property
    def nbytes(self) -> int:
        """How much memory they take."""
        return self.keys.nbytes + self.starts.nbytes

    def near(self, keys: Array, lows: Array, highs: Array, times: Array) -> tuple[Array, ...]:
        """Which keys have rows with ``times`` from ``lows[i]`` to ``highs[i]``: the keys, first rows, and ends of rows."""
        return self.keys.rows_near(keys, lows, highs, self.starts, times)
