"""The settings of a controller that a rules file may give, and what it may give for each."""

from __future__ import annotations

import types
from dataclasses import MISSING, Field, dataclass, fields
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tidegate.control.balancers import BALANCERS
from tidegate.control.balancers.balance import Balancer
from tidegate.errors import UserError, choices

NO_BALANCER = "none"
PLAIN = (float, int, bool, str, tuple[str, ...], Balancer)


@dataclass(frozen=True, slots=True)
class Setting:
    """A named setting, the type of its values, and whether it has to be given."""

    name: str
    kind: Any
    required: bool = False

    def converted(self, value: Any) -> Any:
        """What a value of a TOML file stands for; it is refused if it is not of the setting's type.

        >>> Setting("upper", float).converted(1)
        1.0
        """
        kind = self.kind
        if kind is Balancer:
            return _balancer(value)
        if get_origin(kind) is Literal:
            return _one_of(value, get_args(kind))
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind(_one_of(value, tuple(each.value for each in kind)))
        truth = isinstance(value, bool)
        if kind is float and isinstance(value, int | float) and not truth:
            return float(value)
        if kind is int and isinstance(value, int) and not truth:
            return value
        if (kind is bool and truth) or (kind is str and isinstance(value, str)):
            return value
        if kind == tuple[str, ...] and isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        names = {float: "a number", int: "a whole number", bool: "true or false", str: "a text in quotes"}
        raise UserError(f"must be {names.get(kind, 'a list of texts in quotes')}")


def settings_of(controller: type) -> dict[str, Setting]:
    """The settings of a controller by name; not those whose values a file cannot say."""
    hints = get_type_hints(controller)
    found = {}
    for field in fields(controller):
        kind = _without_none(hints[field.name])
        if kind in PLAIN or get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
            found[field.name] = Setting(field.name, kind, _required(field))
    return found


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _without_none(kind: Any) -> Any:
    """The type of a setting that may be left out: TOML has no null, so None is said by saying nothing."""
    if get_origin(kind) in (Union, types.UnionType):
        others = [each for each in get_args(kind) if each is not type(None)]
        return others[0] if len(others) == 1 else kind
    return kind


def _one_of(value: Any, valid: tuple[Any, ...]) -> Any:
    if value not in valid:
        raise UserError(f"choose one of {choices(valid)}")
    return value


def _balancer(value: Any) -> Balancer | None:
    """A balancer by its name, or by a table with its name and its settings; "none" for none at all."""
    given = dict(value) if isinstance(value, dict) else {"name": value}
    name = _one_of(given.pop("name", None), (*BALANCERS, NO_BALANCER))
    made = BALANCERS.get(name)
    known = {} if made is None else settings_of(made)
    unknown = [key for key in given if key not in known]
    if unknown:
        raise UserError(f"there is no '{unknown[0]}'; beside name, choose from {choices(known)}")
    return None if made is None else made(**{key: known[key].converted(each) for key, each in given.items()})
