"""The names that a function finds outside: constants, `tg.updated`, and a few functions of Python."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from tidegate.query.translated.values import LEAST, MOST, NONE, Known, Object, Scalar, number
from tidegate.query.translated.written import Untranslatable

CONSTANTS = (bool, int, float, str, type(None))
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Found:
    """A name, with the attributes that lead on from it, and what it stood for when a function was translated."""

    path: tuple[str, ...]
    value: Any

    def still_holds(self, function: FunctionType) -> bool:
        """Whether it stands for the same: a function reads its names anew in every call."""
        now = look_up(function, self.path)
        if isinstance(self.value, CONSTANTS):
            return type(now) is type(self.value) and repr(now) == repr(self.value)
        return now is self.value


def look_up(function: FunctionType, path: tuple[str, ...]) -> Any:
    """What a name stands for in a function."""
    name, *attributes = path
    code = function.__code__
    found: Any = _MISSING
    if name in code.co_freevars:
        cell = (function.__closure__ or ())[code.co_freevars.index(name)]
        try:
            found = cell.cell_contents
        except ValueError:
            found = _MISSING
    elif name in function.__globals__:
        found = function.__globals__[name]
    else:
        found = getattr(builtins, name, _MISSING)
    for attribute in attributes:
        found = getattr(found, attribute, _MISSING)
    return found


def as_known(value: Any, name: str) -> Known:
    """A value that was found by name, if it can be part of a loop."""
    if value is _MISSING:
        raise Untranslatable(f"there is no {name}")
    if value is None:
        return NONE
    if type(value) is bool:
        return Scalar("bool", repr(value), constant=value)
    if type(value) is int:
        if not LEAST <= value <= MOST:
            raise Untranslatable(f"{name} is beyond 64 bits")
        return Scalar("int", number(value), constant=value)
    if type(value) is float:
        return Scalar("float", number(value), constant=value)
    if type(value) is str:
        return Scalar("text", "", constant=value)
    if isinstance(value, ModuleType) or callable(value):
        return Object(value)
    raise Untranslatable(
        f"{name} is of type {type(value).__name__}; only numbers, text, True, False and None are constants"
    )


def defaults_of(function: FunctionType, arguments: int) -> dict[str, Any]:
    """The parameters after the first ones, with their defaults."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    given = dict(zip(reversed(names), reversed(function.__defaults__ or ()), strict=False))
    given |= function.__kwdefaults__ or {}
    others = [*names[arguments:], *code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]]
    if len(names) < arguments or code.co_flags & 0x0C or any(name not in given for name in others):
        raise Untranslatable(f"it does not take {arguments} {'argument' if arguments == 1 else 'arguments'}")
    return {name: given[name] for name in others}
