"""Users' functions: the context they are called in, and the values they return, checked against declared types.

The tuple form of `apply` works on Python values, and its state and results have declared Arrow types. A `ValueShape` is such
a type as a check: it takes what a function returned and gives the value that is kept, or says which part does not fit.
Structs become `Record`s and lists become `RecordList`s, both read-only; they know their shape, so a part that was checked
before is not checked again.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cache
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tidegate.errors import choices
from tidegate.query.event_time import EPOCH
from tidegate.query.schema import contiguous

_MICROSECOND = timedelta(microseconds=1)
_FIXED_BYTES = 8

_FIRST_MOMENT, _LAST_MOMENT = np.datetime64("0001-01-01", "us"), np.datetime64("9999-12-31", "us")

Context = Callable[[], AbstractContextManager[None]]


class _PerThread(threading.local):
    context: Context = nullcontext


_per_thread = _PerThread()


def user_context() -> AbstractContextManager[None]:
    """The context in which the calling thread calls a user's function; empty unless `set_user_context` set one."""
    return _per_thread.context()


def set_user_context(context: Context) -> None:
    """Let the calling thread call users' functions in a context, from now on."""
    _per_thread.context = context


def returned_array(values: Any, kind: pa.DataType) -> pa.Array:
    """Values that a user's function returned, as one array of a type; raises what Arrow raises if they do not fit."""
    array = contiguous(values) if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    return array if array.type == kind else array.cast(kind)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python's own, as ``to_pylist`` gives them, many times faster for plain types."""
    array = contiguous(column)
    kind = array.type
    if array.null_count == 0:
        if pa.types.is_integer(kind) or kind == pa.float64() or pa.types.is_string(kind):
            found: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
            return found
        if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
            moments = array.to_numpy(zero_copy_only=False)
            # What no datetime can hold is a number here; Arrow refuses it.
            if not len(moments) or (moments.min() >= _FIRST_MOMENT and moments.max() <= _LAST_MOMENT):
                naive: list[Any] = moments.tolist()
                return naive if kind.tz is None else [moment.replace(tzinfo=_zone(kind)) for moment in naive]
    values: list[Any] = array.to_pylist()
    return values


class Misfit(Exception):
    """A value that is not of the declared type; ``path`` leads to the part that is not."""

    def __init__(self, path: str, value: object, kind: pa.DataType | str) -> None:
        super().__init__(f"{path}: {value!r} is not {kind}" if path else f"{value!r} is not {kind}")
        self.path, self.value, self.kind = path, value, kind

    def below(self, name: str) -> Misfit:
        """The same misfit, seen from the value that holds it."""
        return Misfit(name + ("" if not self.path or self.path[0] == "[" else ".") + self.path, self.value, self.kind)


class Record(dict[str, Any]):
    """A struct: a dict that cannot be changed. ``{**record, "n": 1}`` is a changed copy."""

    __slots__ = ("shape", "size")

    def __init__(self, values: Mapping[str, Any], shape: ValueShape, size: int) -> None:
        dict.__init__(self, values)
        self.shape = shape
        self.size = size

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("tuples and state cannot be changed; return {**state, 'field': value} as the new state")

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle would fill it item by item, which is refused; queries travel to workers with their initial state.
        return _taken, (self.shape.kind, dict(self))

    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = update = setdefault = _refuse


class RecordList(tuple[Any, ...]):
    """A list: a tuple of values. ``[*items, value]`` is a longer list."""

    shape: ValueShape
    size: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _taken, (self.shape.kind, list(self))


Check = Callable[[Any], tuple[Any, int]]


@dataclass(frozen=True, slots=True, eq=False)
class ValueShape:
    """A type as a check: ``take`` gives the value to keep and about how many bytes it holds, or raises `Misfit`."""

    kind: pa.DataType
    check: Check

    def take(self, value: Any) -> tuple[Any, int]:
        return (None, 1) if value is None else self.check(value)

    def __reduce__(self) -> tuple[Any, ...]:
        return shape_of, (self.kind,)


def record_of(schema: pa.Schema) -> ValueShape:
    """The shape of the rows of a schema."""
    return shape_of(pa.struct(list(schema)))


def _taken(kind: pa.DataType, value: Any) -> Any:
    return shape_of(kind).take(value)[0]


@cache
def shape_of(kind: pa.DataType) -> ValueShape:
    """The shape of a type; the same one for the same type."""
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind):
        return _list(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    return ValueShape(kind, _scalar(kind))


def _scalar(kind: pa.DataType) -> Check:
    if pa.types.is_signed_integer(kind):
        low, high = -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1
        return lambda value: (_integer(value, low, high, kind), _FIXED_BYTES)
    if pa.types.is_floating(kind):
        return lambda value: (_float(value, kind), _FIXED_BYTES)
    if pa.types.is_timestamp(kind):
        return lambda value: (_moment(value, kind), _FIXED_BYTES)
    if pa.types.is_boolean(kind):
        return _of(kind, (bool, np.bool_), bool)
    if pa.types.is_date32(kind):
        return lambda value: (_date(value, kind), _FIXED_BYTES)
    if pa.types.is_decimal(kind):
        return lambda value: (_decimal(value, kind), 2 * _FIXED_BYTES)
    return _of(kind, (str,) if pa.types.is_string(kind) else (bytes,), None)


def _of(kind: pa.DataType, classes: tuple[type[Any], ...], convert: Callable[[Any], Any] | None) -> Check:
    def check(value: Any) -> tuple[Any, int]:
        if not isinstance(value, classes):
            raise Misfit("", value, kind)
        if convert is not None:
            return convert(value), 1
        # A slice of text of a class of its own is plain text.
        plain = value if type(value) in classes else classes[0].__getitem__(value, slice(None))
        return plain, len(plain)

    return check


def _integer(value: Any, low: int, high: int, kind: pa.DataType) -> int:
    if type(value) is int and low <= value <= high:
        return value
    if not isinstance(value, bool | np.bool_):
        try:
            whole = operator.index(value)
        except TypeError:
            whole = None
        if whole is not None and low <= whole <= high:
            return whole
    raise Misfit("", value, kind)


def _float(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise Misfit("", value, kind)
    return float(value) if kind == pa.float64() else float(np.float32(value))


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    """A decimal with all digits of its type; whole numbers are decimals too, floats are not: they would be rounded."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Decimal | int | np.integer):
        raise Misfit("", value, kind)
    try:
        found = pa.scalar(Decimal(int(value)) if not isinstance(value, Decimal) else value, kind).as_py()
    except (pa.ArrowException, ValueError) as error:
        raise Misfit("", value, f"{kind}: {error}") from error
    assert isinstance(found, Decimal)
    return found


def _date(value: Any, kind: pa.DataType) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise Misfit("", value, kind)
    return value


def _moment(value: Any, kind: pa.DataType) -> datetime:
    """A moment, with a zone if the type has one; whole numbers are microseconds since the epoch."""
    if isinstance(value, int) and not isinstance(value, bool):
        moment = EPOCH + value * _MICROSECOND
        return moment.astimezone(_zone(kind)) if kind.tz else moment.replace(tzinfo=None)
    if not isinstance(value, datetime) or (value.tzinfo is None) == bool(kind.tz):
        raise Misfit("", value, kind)
    # What is read again, and what arrives, is in the zone of the type, so all is from the beginning.
    return value.astimezone(_zone(kind)) if kind.tz and value.tzinfo is not _zone(kind) else value


@cache
def _zone(kind: pa.DataType) -> tzinfo:
    """The zone of a type of moments, as Arrow gives it to Python."""
    zone = pa.scalar(0, kind).as_py().tzinfo
    assert isinstance(zone, tzinfo)
    return zone


def _struct(kind: pa.DataType) -> ValueShape:
    parts = {field.name: shape_of(field.type) for field in kind}
    plain_record = _plain_record(kind)

    def check(value: Any) -> tuple[Any, int]:
        if type(value) is dict:
            record = plain_record(value, shape)
            if record is not None:
                return record, record.size
        if isinstance(value, Record) and value.shape is shape:
            # What is kept is a record and no more, such as a tuple that knows its input.
            return value if type(value) is Record else Record(value, shape, value.size), value.size
        if not isinstance(value, dict | Mapping):
            raise Misfit("", value, kind)
        if value.keys() != parts.keys():
            missing = [name for name in parts if name not in value]
            unknown = [name for name in value if name not in parts]
            wrong = [f"without {choices(missing)}"] if missing else []
            wrong += [f"with the unknown {choices(unknown)}"] if unknown else []
            raise Misfit("", dict(value), f"one value for each of {choices(parts)}: it is {' and '.join(wrong)}")
        taken, total = {}, 0
        for name, part in parts.items():
            try:
                taken[name], size = part.take(value[name])
            except Misfit as misfit:
                raise misfit.below(name) from None
            total += size
        return Record(taken, shape, total), total

    shape = ValueShape(kind, check)
    return shape


def plain_size(kinds: Sequence[pa.DataType]) -> Callable[..., int]:
    """A function of so many values: about how many bytes they hold, or −1 if they need a closer look."""
    parameters = [f"v{at}" for at in range(len(kinds))]
    lines = [f"def size_of({', '.join(parameters)}):", *_size_lines(kinds), "    return size"]
    size_of: Callable[..., int] = _written("size_of", lines, {})
    return size_of


def _plain_record(kind: pa.DataType) -> Callable[[dict[str, Any], ValueShape], Record | None]:
    """A function that makes a record of a dict, or None if that needs a closer look, or is no such value."""
    names = [field.name for field in kind]
    lines = ["def plain_record(given, shape):", "    try:", "        pass"]
    lines += [f"        v{at} = given[{name!r}]" for at, name in enumerate(names)]
    lines += [
        "    except KeyError:",
        "        return None",
        f"    if len(given) != {len(names)}:",
        "        return None",
    ]
    lines += [line.replace("return -1", "return None") for line in _size_lines([field.type for field in kind])]
    values = ", ".join(f"{name!r}: v{at}" for at, name in enumerate(names))
    lines += ["    record = new(Record)", f"    fill(record, {{{values}}})"]
    lines += ["    record.shape = shape", "    record.size = size", "    return record"]
    scope = {"Record": Record, "new": Record.__new__, "fill": dict.update}
    plain_record: Callable[[dict[str, Any], ValueShape], Record | None] = _written("plain_record", lines, scope)
    return plain_record


def _size_lines(kinds: Sequence[pa.DataType]) -> list[str]:
    """Lines that add up the bytes of the values ``v0``, ``v1``, …, and return −1 if one is not kept just as it is."""
    lines = ["    size = 0"]
    for at, kind in enumerate(kinds):
        size = str(_FIXED_BYTES)
        if pa.types.is_signed_integer(kind):
            most = 1 << (kind.bit_width - 1)
            plain = f"type(v{at}) is int and {-most} <= v{at} < {most}"
        elif kind == pa.float64():
            plain = f"type(v{at}) is float"
        elif pa.types.is_boolean(kind):
            plain, size = f"type(v{at}) is bool", "1"
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            plain, size = f"type(v{at}) is {'str' if pa.types.is_string(kind) else 'bytes'}", f"len(v{at})"
        else:
            plain = "False"
        lines += [f"    if {plain}: size += {size}", f"    elif v{at} is None: size += 1", "    else: return -1"]
    return lines


def _written(name: str, lines: Sequence[str], scope: dict[str, Any]) -> Any:
    """The function of some lines. They are our own; names of the user's are in them as text alone."""
    exec("\n".join(lines), scope)
    return scope[name]


def _map(kind: pa.DataType) -> ValueShape:
    """A map is a tuple of its entries, as Arrow gives it; a dict is taken for one too."""
    entry = (shape_of(kind.key_type), shape_of(kind.item_type))

    def check(value: Any) -> tuple[Any, int]:
        if isinstance(value, RecordList) and value.shape is shape:
            return value, value.size
        entries = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(entries, list | tuple) or not all(
            isinstance(each, tuple) and len(each) == 2 for each in entries
        ):
            raise Misfit("", value, kind)
        taken, total = [], 0
        for pair in entries:
            if pair[0] is None:
                raise Misfit("", value, f"{kind}: no key of a map is null")
            try:
                (name, name_size), (item, size) = (part.take(each) for part, each in zip(entry, pair, strict=True))
            except Misfit as misfit:
                raise misfit.below(f"[{pair[0]!r}]") from None
            taken.append((name, item))
            total += name_size + size
        items = RecordList(taken)
        items.shape, items.size = shape, total
        return items, total

    shape = ValueShape(kind, check)
    return shape


def _list(kind: pa.DataType) -> ValueShape:
    part = shape_of(kind.value_type)

    def check(value: Any) -> tuple[Any, int]:
        if isinstance(value, RecordList) and value.shape is shape:
            return value, value.size
        if not isinstance(value, list | tuple):
            raise Misfit("", value, kind)
        taken, total = [], 0
        for position, element in enumerate(value):
            try:
                kept, size = part.take(element)
            except Misfit as misfit:
                raise misfit.below(f"[{position}]") from None
            taken.append(kept)
            total += size
        items = RecordList(taken)
        items.shape, items.size = shape, total
        return items, total

    shape = ValueShape(kind, check)
    return shape
