"""Stores: maps of declared types that the window of a key keeps, changed in place by the functions of `apply`.

The managed state of Gedik et al. (§5, appendix A.1): put, get, has, remove and iteration. A store belongs to one window of
one key, so it is part of the key's shard. Entries come in the canonical order of their keys, whatever happened before, and
keys are told apart as keys of streams are: null is one, NaN is one, −0.0 is 0.0.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import QueryError, choices
from tidegate.query.schema import arrow_type, as_schema, canonical, is_scalar, normal_schema, normal_type, show_columns
from tidegate.query.user_functions import Misfit, ValueShape, plain_size, record_of, shape_of

Columns: TypeAlias = pa.DataType | pa.Schema | Mapping[str, pa.DataType]
NOTHING = pa.null()
"""The type of the values of a store that has keys alone."""
MOST_LOOKUPS = 32
"""To look so many entries up, by scanning the columns of keys, takes less time than to decode a store once."""
Entry: TypeAlias = tuple[tuple[Any, ...], Any, int]
"""An entry: the parts of its key, its value, and about how many bytes it takes."""


class StoreError(Exception):
    """A wrong use of a store; the message names it and the key."""


@dataclass(frozen=True, eq=False)
class StoreType:
    """The columns of a store: those of its keys, and its values, which are plain or structs."""

    key: pa.Schema
    value: pa.DataType

    @cached_property
    def key_shapes(self) -> tuple[ValueShape, ...]:
        """The shape of each part of a key."""
        return tuple(map(shape_of, self.key.types))

    @cached_property
    def value_shape(self) -> ValueShape:
        """The shape of a value."""
        return record_of(pa.schema(list(self.value))) if pa.types.is_struct(self.value) else shape_of(self.value)

    @cached_property
    def take_value(self) -> Callable[[Any], tuple[Any, int]]:
        """A value as it is kept, and about how many bytes it takes. A struct is there as a whole; its parts may be null."""
        shape = self.value_shape
        return shape.check if pa.types.is_struct(shape.kind) else shape.take

    @cached_property
    def plain_size(self) -> Callable[..., int] | None:
        """About how many bytes the parts of a key take, −1 if they need a closer look; None if all do."""
        return None if self.has_floats or self.has_zones else plain_size(self.key.types)

    @cached_property
    def has_floats(self) -> bool:
        """Whether Python's own equality does not do for keys."""
        return any(pa.types.is_floating(kind) for kind in self.key.types)

    @cached_property
    def has_zones(self) -> bool:
        """Whether keys hold times, whose zone Arrow gives back as another object than they were put with."""
        return any(pa.types.is_timestamp(kind) and kind.tz for kind in self.key.types)

    def normal(self, step: str, name: str) -> StoreType:
        """The same in the types that a step keeps; what cannot be kept is refused."""
        where = f"step '{step}': store '{name}'"
        key = normal_schema(self.key, step)
        for column in key:
            if not is_scalar(column.type):
                raise QueryError(f"{where}: its key '{column.name}' is {column.type}; a key is no list and no struct")
        if self.value.equals(NOTHING):
            return StoreType(key, NOTHING)
        return StoreType(
            key, normal_schema(pa.schema([(f"{name} value", normal_type(self.value))]), step).field(0).type
        )

    def __str__(self) -> str:
        if self.value.equals(NOTHING):
            return f"({show_columns(self.key)})"
        value = show_columns(pa.schema(list(self.value))) if pa.types.is_struct(self.value) else str(self.value)
        return f"({show_columns(self.key)} -> {value})"


def store(key: Columns, value: Columns | None = None) -> StoreType:
    """Declare a store of `apply`: the types of its keys and of its values.

    Each is one type, or several columns by name. A key of several columns is a tuple of their values, and a value of
    named columns is a dict. Without ``value`` the store is a set of keys.

    >>> str(store(key=pa.string(), value=pa.int64()))
    '(key: string -> int64)'
    >>> str(store(key={"ip": pa.string(), "port": pa.int32()}, value={"bytes": pa.int64(), "last": pa.string()}))
    '(ip: string, port: int32 -> bytes: int64, last: string)'
    """
    keys = as_schema(key, "store: key") if isinstance(key, pa.Schema | Mapping) else None
    if keys is None:
        keys = pa.schema([("key", arrow_type(key, "store: key"))])
    if not keys.names:
        raise QueryError("store: key has no columns, so there would be one entry; keep it in state=...")
    if value is None:
        return StoreType(keys, NOTHING)
    if isinstance(value, pa.Schema | Mapping):
        return StoreType(keys, pa.struct(list(as_schema(value, "store: value"))))
    return StoreType(keys, arrow_type(value, "store: value"))


def _removed(order: list[Any], key: Any) -> None:
    """Remove a key that is in an order."""
    del order[bisect_left(order, key)]


@dataclass(slots=True, eq=False)
class Store:
    """A map of one window: its entries are read and changed in place.

    ``kept`` are entries from before. A few of them are looked up where they are; where many are asked for, or all, they are
    decoded once. Of such a store changes are noted. `get`, `put`, `has` and `remove` then cost what a dict costs. Keys are
    sorted when `first` or an iteration asks for their order, and kept in it from then on, unless one is null.
    """

    name: str
    of: StoreType
    owner: Any
    kept: pa.Table | None = None
    bytes: int = field(default=0, init=False)
    can_change: bool = field(default=True, init=False)
    _entries: dict[Any, Entry | None] = field(default_factory=dict, init=False)
    _order: list[Any] | None = field(default=None, init=False)
    _plain: bool = field(default=True, init=False)
    _changed: dict[Any, tuple[Any, ...]] = field(default_factory=dict, init=False)
    _length: int = field(default=0, init=False)
    _lookups: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.kept is not None:
            self._length, self._lookups = self.kept.num_rows, min(self.kept.num_rows, MOST_LOOKUPS)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or a default."""
        found = self._entry(*self._identity("get", key)[:2])
        return default if found is None else found[1]

    def has(self, key: Any) -> bool:
        """Whether there is an entry of a key."""
        return self._entry(*self._identity("has", key)[:2]) is not None

    __contains__ = has

    def put(self, key: Any, value: Any = None) -> None:
        """Set the value of a key."""
        identity, parts, size = self._identity("put", key)
        if not self.can_change:
            self._refuse_change("put")
        try:
            taken, value_size = self.of.take_value(value)
        except Misfit as misfit:
            self._refuse(f"put, for {key!r}, a value that was not declared: {misfit}", misfit)
        before = self._entry(identity, parts) if self._lookups else self._entries.get(identity)
        size += value_size
        if before is None:
            if self._order is not None:
                self._reorder(identity, insort)
            self._length += 1
            self.bytes += size
        elif before[1] is taken:
            return
        else:
            self.bytes += size - before[2]
        self._entries[identity] = (parts, taken, size)
        if self.kept is not None:
            self._changed[identity] = parts

    def remove(self, key: Any) -> bool:
        """Remove the entry of a key; whether there was one."""
        identity, parts, _ = self._identity("remove", key)
        if not self.can_change:
            self._refuse_change("remove")
        before = self._entry(identity, parts) if self._lookups else self._entries.get(identity)
        if before is None:
            return False
        self.bytes -= before[2]
        self._length -= 1
        if self._order is not None:
            self._reorder(identity, _removed)
        if self._lookups:
            self._entries[identity] = None  # so that it is not looked up again
        else:
            del self._entries[identity]
        if self.kept is not None:
            self._changed[identity] = parts
        return True

    def clear(self) -> None:
        """Remove all entries."""
        for key in self:
            self.remove(key)

    def first(self) -> tuple[Any, Any] | None:
        """The least key, in canonical order, and its value; None if there is no entry."""
        entries = self._all() if self._lookups else self._entries
        if not entries:
            return None
        order = self._order
        found = entries[(self._ordered(self._all()) if order is None else order)[0]]
        assert found is not None
        parts, value, _ = found
        return parts if len(parts) > 1 else parts[0], value

    def items(self) -> list[tuple[Any, Any]]:
        """All keys and values, in the canonical order of the keys; the store may be changed while they are read."""
        entries = self._all()
        return [(self._given(entries[one][0]), entries[one][1]) for one in self._ordered(entries)]

    def __iter__(self) -> Iterator[Any]:
        entries = self._all()
        return iter([self._given(entries[one][0]) for one in self._ordered(entries)])

    def __len__(self) -> int:
        return self._length

    def entries(self) -> list[tuple[tuple[Any, ...], Any]]:
        """The parts of all keys, and their values, in no order."""
        return [(parts, value) for parts, value, _ in self._all().values()]

    def changes(self) -> Iterator[tuple[tuple[Any, ...], bool, Any]]:
        """What differs from the entries from before: key, whether it is there, value."""
        if self.kept is None:
            for parts, value, _ in self._all().values():
                yield parts, True, value
            return
        for identity, parts in self._changed.items():
            found = self._entries.get(identity)
            yield (parts, False, None) if found is None else (found[0], True, found[1])

    def _given(self, parts: tuple[Any, ...]) -> Any:
        """A key as functions give and get it."""
        return parts if len(parts) > 1 else parts[0]

    def _ordered(self, entries: dict[Any, Entry]) -> list[Any]:
        if self._order is None:
            # Python's own order of whole numbers, text (by code points, as by bytes) and dates is canonical, but for null.
            self._plain = self.of.has_floats or not any(None in parts for parts in entries)
            self._order = sorted(entries, key=None if self._plain else canonical)
        return self._order

    def _reorder(self, identity: Any, change: Callable[[list[Any], Any], Any]) -> None:
        """Insert a key into the order, which there is, or remove it, if Python's own comparison can search it."""
        if self._order is not None and self._plain and (self.of.has_floats or None not in identity):
            change(self._order, identity)
        else:
            self._order = None

    def _entry(self, identity: Any, parts: tuple[Any, ...]) -> Entry | None:
        """The entry of a key, looked up in what was kept if it was not asked for before."""
        if not self._lookups or identity in self._entries:
            return self._entries.get(identity)
        if self._lookups == 1 or self.of.has_floats:
            return self._all().get(identity)
        self._lookups -= 1
        assert self.kept is not None
        here = None
        for column, part in zip(self.kept.columns[:-1], parts, strict=True):
            same = column.is_null() if part is None else pc.equal(column, pa.scalar(part, column.type))
            here = same if here is None else pc.and_(here, same)
        row = pc.index(here, True).as_py()
        self._entries[identity] = None if row < 0 else self._decoded(parts, self.kept.column(-1)[row].as_py())
        return self._entries[identity]

    def _all(self) -> dict[Any, Entry]:
        """All entries, by what identifies their keys."""
        if self._lookups:
            assert self.kept is not None
            known, self._lookups = self._entries, 0
            *columns, values = (column.to_pylist() for column in self.kept.columns)
            self._entries = {}
            for parts, value in zip(zip(*columns, strict=True), values, strict=True):
                if self.of.has_zones:
                    parts = tuple(shape.take(part)[0] for shape, part in zip(self.of.key_shapes, parts, strict=True))
                identity = canonical(parts) if self.of.has_floats else parts
                if identity not in known:
                    self._entries[identity] = self._decoded(parts, value)
            self._entries |= {identity: found for identity, found in known.items() if found is not None}
        return self._entries  # type: ignore[return-value]  # what is not there is not noted any more

    def _decoded(self, parts: tuple[Any, ...], value: Any) -> Entry:
        taken, size = self.of.value_shape.take(value)
        return parts, taken, size

    def _identity(self, function: str, key: Any) -> tuple[Any, tuple[Any, ...], int]:
        """What is equal for equal keys, the parts of a key, and about how many bytes they take."""
        shapes, plain_size = self.of.key_shapes, self.of.plain_size
        given = (key,) if len(shapes) == 1 else key
        if plain_size is not None and type(given) is tuple and len(given) == len(shapes):
            size = plain_size(*given)
            if size >= 0:
                return given, given, size
        if not isinstance(given, tuple) or len(given) != len(shapes):
            self._refuse(f"{function} of {key!r}; a key is a tuple of {choices(self.of.key.names)}")
        parts, total = [], 0
        for part, shape, name in zip(given, shapes, self.of.key.names, strict=True):
            try:
                taken, size = shape.take(part)
            except Misfit as misfit:
                self._refuse(f"{function} of a key that was not declared: {misfit.below(name)}", misfit)
            parts.append(taken + 0.0 if isinstance(taken, float) else taken)
            total += size
        whole = tuple(parts)
        return canonical(whole) if self.of.has_floats else whole, whole, total

    def _refuse_change(self, function: str) -> NoReturn:
        self._refuse(f"{function} in output, which reads what the window holds; change it in update or slide")

    def _refuse(self, what: str, cause: Exception | None = None) -> NoReturn:
        raise StoreError(f"store '{self.name}' of the key {self.owner!r}: {what}") from cause
