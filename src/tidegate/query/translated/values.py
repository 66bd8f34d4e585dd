"""What an expression is, as far as a translation knows: a number, text or moment in a variable, or a dict, list or result.

A `Scalar` has the type that Python gives it, always: where two branches give different ones, they are translated apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

Kind = Literal["int", "float", "bool", "text", "moment", "none"]
YES, NO = "True", "False"
NOTHING_OF: dict[Kind, str] = {"int": "0", "float": "0.0", "bool": NO, "text": "0", "moment": "0"}
"""What stands in a variable where there is None."""
LEAST, MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value: its kind, the source that gives it, the source that says whether it is there at all, and its constant."""

    kind: Kind
    source: str
    there: str = YES
    constant: Any = None


@dataclass(frozen=True, slots=True)
class Mapped:
    """A dict with known names. One that a function may change is known under one name at most."""

    values: dict[str, Any]
    changes: bool = True


@dataclass(frozen=True, slots=True)
class Listed:
    """A list or tuple of known length."""

    items: tuple[Any, ...]
    changes: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """What ``tg.updated`` returns."""

    states: tuple[Any, ...]
    rows: Any
    retire: Any


@dataclass(frozen=True, slots=True)
class Parameter:
    """The window or the tuple that a function is called with: what its attributes are."""

    what: str
    attributes: dict[str, Any]
    items: Mapped | None = None


@dataclass(frozen=True, slots=True)
class Object:
    """A function or module that was found by name."""

    given: Any


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A column or field of a type that is not compiled."""

    what: str


Known = Scalar | Mapped | Listed | Result | Parameter | Object | Unsupported
NONE = Scalar("none", "0", NO)


def kind_of(type_: pa.DataType) -> Kind | None:
    """The kind of a column's values; None if they are not compiled."""
    if pa.types.is_signed_integer(type_):
        return "int"
    if pa.types.is_floating(type_):
        return "float"
    if pa.types.is_boolean(type_):
        return "bool"
    if pa.types.is_string(type_):
        return "text"
    return "moment" if pa.types.is_timestamp(type_) else None


def number(value: int | float) -> str:
    """A constant as source."""
    if isinstance(value, float):
        if math.isnan(value):
            return "np.nan"
        return f"({value!r})" if math.isfinite(value) else f"({'-' if value < 0 else ''}np.inf)"
    # The negative of what is no int64 would be a float.
    return f"({value!r})" if value != LEAST else f"(-{MOST} - 1)"
