"""From the Arrow rows of one side to the arrays that loops over pairs read.

Texts, and decimals that are keys, become numbers that are equal where they are, so that compiled loops can compare them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, as_numpy, canonical_floats, combine_hashes, in_time_order, mix, valid_mask
from tidegate.operators.numbering import KeyGroups, TextNumbering, as_texts
from tidegate.query.nodes import Join
from tidegate.query.predicates.bounds import Band
from tidegate.query.predicates.tree import Column, Side
from tidegate.query.schema import contiguous, is_decimal, is_text

LEAST_TEXTS = 65_536
"""So many texts are kept before those that are not in use any more are forgotten."""

_KINDS = {"int": np.int64, "float": np.float64, "bool": np.bool_, "text": np.int64}


class TextCodes:
    """The codes of the texts in a join's state; may be called from any thread.

    A text that no held tuple has any more is forgotten, and gets a new code if it comes again. Between a call of `encode`
    and the moment the codes can be found among those held, nothing may be forgotten: encode under `in_use`.
    """

    def __init__(self, constants: Iterable[str | bytes] = ()) -> None:
        self._known: dict[pa.DataType, _KnownTexts] = {}
        self._next = 0
        self._users = 0
        self._limit = LEAST_TEXTS
        self._lock = threading.Lock()
        self._constants = {text: int(self.encode(pa.array([text]))[0]) for text in constants}

    @property
    def held(self) -> int:
        """How many texts have a code."""
        return sum(known.numbering.size for known in self._known.values())

    def constant(self, text: str | bytes) -> int:
        """The code of a text that the predicate compares with; it never changes."""
        return self._constants[text]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While it lasts no code is forgotten."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def encode(self, column: pa.Array) -> Array:
        """The code of each text; −1 where it is null."""
        column = contiguous(column)
        valid = valid_mask(column) if column.null_count else None
        texts = as_texts(column if valid is None else column.drop_null())
        with self._lock:
            known = self._known.setdefault(column.type, _KnownTexts())
            numbers = known.numbering.add(texts)
            self._next = known.give_codes(self._next)
            codes = known.codes[numbers]
        if valid is None:
            return codes
        found = np.full(len(column), -1, np.int64)
        found[valid] = codes
        return found

    def forget_unused(self, held: Callable[[], Iterable[Array]]) -> None:
        """If there are many texts, drop those whose codes are not held."""
        if self.held <= self._limit:
            return
        with self._lock:
            if self._users:
                return
            used = np.concatenate([np.array(list(self._constants.values()), np.int64), *held()])
            self._known = {kind: known.kept(used) for kind, known in self._known.items()}
            self._limit = max(LEAST_TEXTS, 2 * self.held)


@dataclass(slots=True, eq=False)
class _KnownTexts:
    """Texts of one type by number, and the code of each number."""

    numbering: TextNumbering = field(default_factory=TextNumbering)
    codes: Array = field(default_factory=lambda: np.empty(0, np.int64))
    coded: int = 0

    def give_codes(self, first: int) -> int:
        """Give codes from ``first`` on to the texts that have none; what comes behind them."""
        stop = self.numbering.size
        if stop > len(self.codes):
            longer = np.empty(2 * stop, np.int64)
            longer[: self.coded] = self.codes[: self.coded]
            self.codes = longer
        behind = first + stop - self.coded
        self.codes[self.coded : stop] = np.arange(first, behind)
        self.coded = stop
        return behind

    def kept(self, used: Array) -> _KnownTexts:
        """Those whose codes are used."""
        numbers = np.flatnonzero(np.isin(self.codes[: self.coded], used))
        return _KnownTexts(self.numbering.kept(numbers), self.codes[numbers], len(numbers))


@dataclass(frozen=True, slots=True)
class TupleArrays:
    """Tuples of one side: event times, arrival numbers, codes of the keys, and the columns that the predicate reads.

    ``order`` is what they are sorted by, or grouped by if there are ``groups``. ``values`` of nulls are not defined;
    ``valid`` says where they are, and ``has_nulls`` whether there may be any.
    """

    times: Array
    arrivals: Array
    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    valid: tuple[Array, ...]
    has_nulls: bool
    order: Array | None = None
    groups: KeyGroups | None = None

    @staticmethod
    def of(arrays: Sequence[Array], keys: int, has_nulls: bool, order: Array | None = None) -> TupleArrays:
        """The inverse of `arrays`, given how many of them are keys."""
        first = 2 + keys
        middle = (first + len(arrays)) // 2
        keyed, values, valid = tuple(arrays[2:first]), tuple(arrays[first:middle]), tuple(arrays[middle:])
        return TupleArrays(arrays[0], arrays[1], keyed, values, valid, has_nulls, order)

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: Any) -> TupleArrays:
        """Some of the tuples, by a mask, positions or a slice."""
        order = None if self.order is None else self.order[rows]
        return TupleArrays.of([array[rows] for array in self.arrays], len(self.keys), self.has_nulls, order)

    def sorted_by(self, order: Array) -> TupleArrays:
        """The same tuples in the order of some values."""
        return replace(self, order=order).take(np.argsort(order, kind="stable"))

    def grouped_by(self, keys: Array) -> TupleArrays:
        """The same tuples, which are in the order of time, by a number for the key of each."""
        groups, by = KeyGroups.of(keys)
        return replace(replace(self, order=keys).take(by), groups=groups)

    def arrived_from(self, first: int) -> TupleArrays:
        """The same tuples with their final arrival numbers; until then they count from 0."""
        return replace(self, arrivals=self.arrivals + first)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays but the order, always as many and in the same order."""
        return (self.times, self.arrivals, *self.keys, *self.values, *self.valid)

    @property
    def nbytes(self) -> int:
        found = sum(array.nbytes for array in self.arrays) + (0 if self.order is None else self.order.nbytes)
        return found + (0 if self.groups is None else self.groups.nbytes)


@dataclass(frozen=True, slots=True)
class EncodedSide:
    """The tuples of one side of a segment: rows and their times, arrays of those that may join, and sizes.

    ``sizes`` are the largest numbers of columns. Where tuples may leave alone, some rows have no key and cannot join.
    """

    rows: pa.RecordBatch
    times: Array
    tuples: TupleArrays
    sizes: dict[Column, int]


@dataclass(frozen=True, slots=True)
class SideEncoder:
    """Encodes the tuples of one side of a join; ``columns`` are those that the predicate reads."""

    node: Join
    side: Side
    columns: tuple[Column, ...]
    band: Band | None
    codes: TextCodes

    @property
    def schema(self) -> pa.Schema:
        return self.node.inputs[self.side].schema

    @property
    def dtypes(self) -> list[Any]:
        """The types of the arrays of tuples without keys."""
        kinds = [_KINDS[column.kind] for column in self.columns]
        return [np.int64, np.int64, *kinds, *([np.bool_] * len(kinds))]

    def encode(self, rows: pa.Table) -> EncodedSide:
        """Encode tuples; they come out in the order of time, by key, or sorted for bisection."""
        if self.side not in self.node.lonely_sides:
            rows = without_null_keys(self.node, self.side, rows)
        # Copied, since loops are compiled anew for arrays that cannot be written, as those of Arrow.
        rows, times = in_time_order(rows, as_numpy(rows.column(self.node.inputs[self.side].time)).copy())
        batches = rows.select(self.schema.names).combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self.schema)
        keyed = _with_keys(self.node, self.side, rows)
        if keyed is not None:
            rows = rows.filter(pa.array(keyed))
        keys = tuple(self._key(contiguous(rows.column(names[self.side]))) for names in self.node.on)
        times_of = times if keyed is None else times[keyed]
        tuples, sizes = arrays_read(self.columns, rows, times_of, self.codes)
        if keyed is not None:
            tuples = replace(tuples, arrivals=np.flatnonzero(keyed))
        return EncodedSide(batch, times, self._sorted(replace(tuples, keys=keys)), sizes)

    def codes_in(self, tuples: TupleArrays) -> Iterator[Array]:
        """All numbers of some tuples that may be codes of texts."""
        yield from tuples.keys
        read = zip(tuples.values, self.columns, strict=True)
        yield from (values for values, column in read if column.kind == "text")

    def _sorted(self, tuples: TupleArrays) -> TupleArrays:
        """By the only key, the hash of several, or the band's column, if there are keys or a band."""
        if self.node.on:
            return tuples.grouped_by(_hash_of(tuples.keys))
        if self.band is None:
            return tuples
        column = self.band.left if self.side == 0 else self.band.right
        order = tuples.values[self.columns.index(column)]
        return tuples.sorted_by(order if self.band.is_whole else order.astype(np.float64))

    def _key(self, array: pa.Array) -> Array:
        """A number for each key, equal where the keys are: NaN is equal to itself, and −0.0 to 0.0."""
        if is_text(array.type) or is_decimal(array.type):
            return self.codes.encode(array)
        if pa.types.is_floating(array.type):
            return as_numpy(canonical_floats(array), pa.float64()).astype(np.float64).view(np.int64)
        return as_numpy(array).astype(np.int64)


def arrays_read(
    columns: Sequence[Column], rows: pa.Table, times: Array, codes: TextCodes
) -> tuple[TupleArrays, dict[Column, int]]:
    """What a predicate reads of tuples, in their order and without keys; and the largest number of each column."""
    values, valid, sizes = [], [], {}
    nulls = False
    for column in columns:
        array = contiguous(rows.column(column.name))
        values.append(_values(array, column, codes))
        valid.append(valid_mask(array))
        nulls = nulls or array.null_count > 0
        if column.kind == "int" and len(array):
            sizes[column] = max(abs(int(values[-1].min())), abs(int(values[-1].max())))
    return TupleArrays(times, np.arange(len(times)), (), tuple(values), tuple(valid), nulls), sizes


def _values(array: pa.Array, column: Column, codes: TextCodes) -> Array:
    match column.kind:
        case "text":
            return codes.encode(array)
        case "bool":
            return np.array(array.fill_null(False) if array.null_count else array, np.bool_)
        case kind:
            return as_numpy(array, pa.int64() if kind == "int" else pa.float64()).astype(_KINDS[kind])


def without_null_keys(node: Join, side: int, tuples: pa.Table) -> pa.Table:
    """The tuples without those that have a null among their keys and so are equal to none."""
    keyed = _with_keys(node, side, tuples)
    return tuples if keyed is None else tuples.filter(pa.array(keyed))


def _with_keys(node: Join, side: int, tuples: pa.Table) -> Array | None:
    """Which tuples have no null among their keys; None for all."""
    columns = [tuples.column(names[side]) for names in node.on]
    valid = [valid_mask(contiguous(column)) for column in columns if column.null_count]
    return np.logical_and.reduce(valid) if valid else None


def _hash_of(keys: tuple[Array, ...]) -> Array:
    if len(keys) == 1:
        return keys[0]
    first, *others = (key.view(np.uint64) for key in keys)
    return combine_hashes([mix(first), *others]).view(np.int64)
