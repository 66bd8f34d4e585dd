"""Rules from a TOML file, with messages that name the line, what stands there and what may.

::

    [default]                      # every subquery without a table of its own
    controller = "saso"
    most = 16

    [subquery.speed]               # what it leaves out is as in [default]
    controller = "thresholds"

    [controllers.thresholds]       # settings of a controller, wherever it is used
    upper = 0.85

    [subquery.speed.controllers.thresholds]     # and for one subquery
    upper = 0.8
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tidegate.control.controller import Controller, Limits
from tidegate.control.controllers import CONTROLLERS, RECOMMENDED
from tidegate.control.rules import Rule, Rules
from tidegate.control.settings import Setting, settings_of
from tidegate.control.toml_lines import Key, key_lines, line_of
from tidegate.errors import UserError, choices

TOP = ("default", "subquery", "controllers")
RULE = {
    "controller": Setting("controller", str),
    "least": Setting("least", int),
    "most": Setting("most", int),
    "cooldown_seconds": Setting("cooldown_seconds", float),
    "max_step": Setting("max_step", int),
    "dry_run": Setting("dry_run", bool),
    "shadows": Setting("shadows", tuple[str, ...]),
}


def read_rules(path: str | Path) -> Rules:
    """The rules in a file."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(
            f"there is no rules file {str(file)!r}; tidegate simulate --print-rules prints one to start from"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"rules file {str(file)!r} cannot be read: {error}") from error
    return parse_rules(text, file.name)


def parse_rules(text: str, name: str = "rules") -> Rules:
    """The rules in a TOML text; `name` is what messages call it."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        told = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
        line, what = (told[2], f"{told[1]} at column {told[3]}") if told else (text.count("\n") + 1, error)
        raise UserError(
            f"{name} line {line}: not valid TOML: {what}; tidegate simulate --print-rules prints rules that are"
        ) from error
    return _Reader(name, key_lines(text), tree).rules()


@dataclass(frozen=True, slots=True)
class _Reader:
    """A parsed text with the lines of its keys."""

    name: str
    lines: dict[Key, int]
    tree: dict[str, Any]

    def rules(self) -> Rules:
        self._only(self.tree, TOP, ())
        self._controllers(())
        default = self._rule(("default",))
        subqueries = self._table(("subquery",))
        return Rules(default, tuple((name, self._rule(("subquery", name))) for name in subqueries))

    def _rule(self, where: Key) -> Rule:
        """The rule in a table; what it leaves out is as in the default."""
        table = self._table(where)
        own = where != ("default",)
        self._only(table, (*RULE, "controllers") if own else tuple(RULE), where)
        if own:
            self._controllers(where)
        # For each key, the table in which it is set.
        places = dict.fromkeys(self._table(("default",)), ("default",)) | dict.fromkeys(table, where)
        given = {key: self._value(RULE[key], (*place, key)) for key, place in places.items() if key in RULE}
        shadows = tuple(
            self._controller(shadow, (*places["shadows"], "shadows"), where) for shadow in given.get("shadows", ())
        )
        named = given.get("controller", RECOMMENDED)
        controller = self._controller(named, (*places.get("controller", where), "controller"), where)
        limits: dict[str, Any] = {key: given[key] for key in ("least", "most") if key in given}
        others: dict[str, Any] = {
            key: given[key] for key in ("cooldown_seconds", "max_step", "dry_run") if key in given
        }
        keys = {key: (*place, key) for key, place in places.items()}
        made: Limits = self._made(Limits, limits, keys, where)
        rule: Rule = self._made(
            Rule, {"controller": controller, "limits": made, "shadows": shadows, **others}, keys, where
        )
        return rule

    def _controllers(self, where: Key) -> None:
        """Check the names of all settings, also of controllers that nobody uses."""
        place = (*where, "controllers")
        self._only(self._table(place), tuple(CONTROLLERS), place)
        for name in self._table(place):
            self._only(self._table((*place, name)), tuple(settings_of(CONTROLLERS[name])), (*place, name))

    def _controller(self, name: str, said: Key, where: Key) -> Controller:
        """A controller with its settings: its own, those for all, those for this subquery."""
        if name not in CONTROLLERS:
            self._fail(said, f"there is no such controller; choose one of {choices(CONTROLLERS)}")
        known = settings_of(CONTROLLERS[name])
        keys: dict[str, Key] = {}
        for place in (("controllers", name), (*where, "controllers", name)):
            keys |= {key: (*place, key) for key in self._table(place)}
        given = {key: self._value(known[key], place) for key, place in keys.items()}
        lacking = [setting.name for setting in known.values() if setting.required and setting.name not in given]
        if lacking:
            self._fail(said, f"it needs {' and '.join(lacking)}; set that in [controllers.{name}]")
        made: Controller = self._made(CONTROLLERS[name], given, keys, said)
        return made

    def _made(self, kind: type, given: dict[str, Any], keys: dict[str, Key], where: Key) -> Any:
        """The value, or its complaint with the line of the setting at fault.

        Of the settings that the complaint names, that is the last one in the text without which there would be no
        complaint, or the last one if no single one is to blame.
        """
        try:
            return kind(**given)
        except UserError as error:
            rule = str(error).partition(": ")[2] or str(error)
            named = [key for key in keys if key in given and re.search(rf"\b{key}\b", rule)]
            named.sort(key=lambda key: line_of(self.lines, keys[key]), reverse=True)
            blamed = [key for key in named if _valid(kind, {each: given[each] for each in given if each != key})]
            self._fail(keys[(blamed or named)[0]] if named else where, rule, error)

    def _value(self, setting: Setting, where: Key) -> Any:
        try:
            return setting.converted(self._at(where))
        except UserError as error:
            self._fail(where, str(error), error)

    def _table(self, where: Key) -> dict[str, Any]:
        """The table at a path; empty if it is not there."""
        value: dict[str, Any] | None = self._at(where)
        if value is not None and not isinstance(value, dict):
            self._fail(where, "must be a table")
        return value or {}

    def _at(self, where: Key) -> Any:
        value: Any = self.tree
        for part in where:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def _only(self, table: dict[str, Any], valid: tuple[str, ...], where: Key) -> None:
        for key in table:
            if key not in valid:
                line = line_of(self.lines, (*where, key))
                at = f" in [{'.'.join(where)}]" if where else ""
                raise UserError(f"{self.name} line {line}: there is no '{key}'{at}; choose one of {choices(valid)}")

    def _fail(self, where: Key, rule: str, cause: Exception | None = None) -> NoReturn:
        value = self._at(where)
        what = f"[{'.'.join(where)}]" if isinstance(value, dict) or value is None else f"{where[-1]} = {_shown(value)}"
        raise UserError(f"{self.name} line {line_of(self.lines, where)}: {what}: {rule}") from cause


def _valid(kind: type, given: dict[str, Any]) -> bool:
    try:
        kind(**given)
    except (UserError, TypeError):
        return False
    return True


def _shown(value: Any) -> str:
    """A value as TOML writes it, near enough."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case list():
            return f"[{', '.join(map(_shown, value))}]"
        case _:
            return str(value)
