"""Rules as a TOML file: read with messages that name the table and the key, written with what each key means.

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

import json
import re
import tomllib
import types
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from tidegate.control.balancers import BALANCERS
from tidegate.control.balancers.balance import Balancer
from tidegate.control.controller import Controller, Limits
from tidegate.control.controllers import CONTROLLERS, RECOMMENDED
from tidegate.control.rules import Rule, Rules
from tidegate.errors import UserError, choices

NO_BALANCER = "none"
HEAD = "# Rules of control: which controller drives which subquery. What a [subquery.NAME] leaves out is as in [default].\n"
TYPES: dict[Any, tuple[Any, str]] = {
    float: (int | float, "a number"),
    int: (int, "a whole number"),
    bool: (bool, "true or false"),
    str: (str, "a text in quotes"),
    tuple[str, ...]: (list, "a list of texts in quotes"),
    Balancer: (str | dict, "the name of a balancer, or a table with its name and settings"),
}
"""What a file gives for a setting of each type, and that in words."""

RULE_KEYS: dict[str, tuple[Any, str]] = {
    "controller": (str, f"one of {choices(CONTROLLERS)}"),
    "least": (int, "fewest instances"),
    "most": (int, "most instances"),
    "cooldown_seconds": (float, "after a change, ask for no other for so long"),
    "max_step": (int, "change by so many instances at a time; left out: any number"),
    "dry_run": (bool, "true: advise, change nothing"),
    "shadows": (tuple[str, ...], "controllers that see the same and do nothing"),
    "balancer": (Balancer, f"moves shards in place of the controller: one of {choices(BALANCERS)}"),
}
"""The keys of a rule's table: the type of each, and what it means."""

Table = dict[str, Any]


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
        raise UserError(
            f"{name}: not valid TOML: {error}; tidegate simulate --print-rules prints rules that are"
        ) from error
    try:
        return _rules(tree)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def settings_of(kind: type) -> dict[str, Any]:
    """The settings of a controller or a balancer that a file may give, and the type of each.

    TOML has no null: a setting that may be None is None when it is left out.
    """
    found = {}
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if get_origin(hint) in (Union, types.UnionType):
            (hint,) = (each for each in get_args(hint) if each is not type(None))
        if hint in TYPES:
            found[field.name] = hint
    return found


def _rules(tree: Table) -> Rules:
    default, common = _table(tree, "default"), _table(tree, "controllers")
    _known(tree, ("default", "subquery", "controllers"), "")
    _known(default, RULE_KEYS, "[default] ")
    _check_settings(common, "controllers")
    subqueries = []
    for name in _table(tree, "subquery"):
        where = f"subquery.{_key(name)}"
        table = _table(_table(tree, "subquery"), name, "subquery")
        own = _table(table, "controllers", where)
        _known(table, (*RULE_KEYS, "controllers"), f"[{where}] ")
        _check_settings(own, f"{where}.controllers")
        subqueries.append((name, _rule(table, default, own, common, where)))
    return Rules(_rule(default, {}, {}, common, "default"), tuple(subqueries))


def _rule(table: Table, default: Table, own: Table, common: Table, where: str) -> Rule:
    """The rule in a table; what it leaves out is as in the default."""
    given = {
        key: _converted(kind, source[key], f"[{place}] {key}")
        for source, place in ((default, "default"), (table, where))
        for key, (kind, _) in RULE_KEYS.items()
        if key in source
    }

    def controller(name: str, key: str) -> Controller:
        if name not in CONTROLLERS:
            raise UserError(f"[{where}] {key}: there is no controller {name!r}; choose one of {choices(CONTROLLERS)}")
        # Settings for all, then those for this subquery.
        settings = {**_table(common, name, "controllers"), **_table(own, name, f"{where}.controllers")}
        known = settings_of(CONTROLLERS[name])
        place = f"{where}.controllers.{name}" if name in own else f"controllers.{name}"
        values = {key: _converted(known[key], value, f"[{place}] {key}") for key, value in settings.items()}
        built: Controller = _built(CONTROLLERS[name], values, place)
        return built

    limits = _built(Limits, {key: given.pop(key) for key in ("least", "most") if key in given}, where)
    shadows = tuple(controller(name, "shadows") for name in given.pop("shadows", ()))
    driver = controller(given.pop("controller", RECOMMENDED), "controller")
    rule: Rule = _built(Rule, {"controller": driver, "limits": limits, "shadows": shadows, **given}, where)
    return rule


def _built(kind: type, given: Table, where: str) -> Any:
    try:
        return kind(**given)
    except UserError as error:
        raise UserError(f"[{where}] {str(error).partition(': ')[2] or error}") from error


def _check_settings(controllers: Table, where: str) -> None:
    """Refuse names of controllers and of settings that do not exist, also of controllers that no rule uses."""
    _known(controllers, CONTROLLERS, f"[{where}] ")
    for name in controllers:
        _known(_table(controllers, name, where), settings_of(CONTROLLERS[name]), f"[{where}.{name}] ")


def _table(parent: Table, key: str, where: str = "") -> Table:
    """The table under a key; empty if it is not there."""
    value = parent.get(key, {})
    if not isinstance(value, dict):
        raise UserError(f"{f'[{where}] ' if where else ''}{key} = {_toml(value)}: must be a table")
    return value


def _known(table: Table, valid: Iterable[str], where: str) -> None:
    unknown = [key for key in table if key not in valid]
    if unknown:
        raise UserError(f"{where}{unknown[0]}: there is no such key; choose one of {choices(valid)}")


def _converted(kind: Any, value: Any, where: str) -> Any:
    """What a value of a TOML file stands for; refused if it is not of the type."""
    accepted, said = TYPES[kind]
    # To Python, true is a whole number.
    fits = isinstance(value, accepted) and isinstance(value, bool) == (kind is bool)
    if not fits or (isinstance(value, list) and not all(isinstance(item, str) for item in value)):
        raise UserError(f"{where} = {_toml(value)}: must be {said}")
    return _balancer(value, where) if kind is Balancer else kind(value)


def _balancer(value: str | Table, where: str) -> Balancer | None:
    given = dict(value) if isinstance(value, dict) else {"name": value}
    name = given.pop("name", None)
    if name == NO_BALANCER:
        return None
    if name not in BALANCERS:
        raise UserError(f"{where} = {_toml(value)}: choose one of {choices((*BALANCERS, NO_BALANCER))}")
    known = settings_of(BALANCERS[name])
    _known(given, known, f"{where}.")
    built: Balancer = _built(
        BALANCERS[name], {key: _converted(known[key], each, f"{where}.{key}") for key, each in given.items()}, where
    )
    return built


def rules_text(rules: Rules) -> str:
    """The text of a rules file. Rules that a file cannot say, such as two settings of one controller, are refused."""
    parts = [HEAD, *_tables("default", "", rules.default)]
    for name, rule in rules.subqueries:
        where = f"subquery.{_key(name)}"
        parts += _tables(where, f"{where}.", rule)
    text = "\n".join(parts)
    if parse_rules(text) != rules:
        raise UserError(
            "rules: a file cannot say these: a controller has two different settings in one rule, or a subquery leaves out "
            "what the default has; change them, or keep them in Python"
        )
    return text


def _tables(where: str, prefix: str, rule: Rule) -> list[str]:
    """A rule's table and those of its controllers; the default's keys are explained."""
    values = {
        "controller": rule.controller.name,
        "least": rule.limits.least,
        "most": rule.limits.most,
        "cooldown_seconds": rule.cooldown_seconds,
        "max_step": rule.max_step,
        "dry_run": rule.dry_run,
        "shadows": [shadow.name for shadow in rule.shadows],
        "balancer": rule.balancer,
    }
    lines = {key: f"{key} = {_toml(value)}" if value is not None else f"# {key} = …" for key, value in values.items()}
    if where == "default":
        width = max(map(len, lines.values()))
        lines = {key: f"{line:<{width}}  # {RULE_KEYS[key][1]}" for key, line in lines.items()}
    tables = ["\n".join([f"[{where}]", *lines.values(), ""])]
    for name, controller in {each.name: each for each in (*rule.shadows, rule.controller)}.items():
        if CONTROLLERS.get(name) is not type(controller):
            raise UserError(f"rules: a file can name {choices(CONTROLLERS)}, not {controller!r}")
        settings = {key: getattr(controller, key) for key in settings_of(type(controller))}
        said = [f"{key} = {_toml(value)}" for key, value in settings.items() if value is not None or key == "balancer"]
        tables.append("\n".join([f"[{prefix}controllers.{name}]", *said, ""]))
    return tables


def _toml(value: Any) -> str:
    """A value as TOML writes it."""
    match value:
        case None:
            return json.dumps(NO_BALANCER)
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{ {', '.join(f'{_key(key)} = {_toml(each)}' for key, each in value.items())} }}"
        case _ if type(value) in BALANCERS.values():
            return _toml({"name": value.name} | {key: getattr(value, key) for key in settings_of(type(value))})
        case _:
            return repr(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
