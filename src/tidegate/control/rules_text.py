"""Rules as the text of a TOML file, each key with what it means; reading it gives the same rules."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any

from tidegate.control.balancers import BALANCERS
from tidegate.control.controller import Controller
from tidegate.control.controllers import CONTROLLERS
from tidegate.control.rules import Rule, Rules
from tidegate.control.settings import NO_BALANCER, settings_of
from tidegate.errors import UserError, choices

HEAD = """\
# Rules of control: which controller drives which subquery. What a [subquery.NAME] leaves out is as in [default].
"""
MEANING = {
    "controller": f"one of {choices(CONTROLLERS)}",
    "least": "fewest instances",
    "most": "most instances",
    "cooldown_seconds": "after a change, ask for no other for so long",
    "max_step": "change by so many instances at a time; left out: any number",
    "dry_run": "true: advise, change nothing",
    "shadows": "controllers that see the same and do nothing",
}


def rules_text(rules: Rules) -> str:
    """The text of a rules file. Rules that a file cannot say, such as two settings of one controller, are refused."""
    common = _settings_by_name("default", rules.default)
    parts = [HEAD, _table("[default]", _values(rules.default), MEANING)]
    parts += [_table(f"[controllers.{name}]", values) for name, values in common.items()]
    for name, rule in rules.subqueries:
        head = f"subquery.{_key(name)}"
        if rule.max_step is None and rules.default.max_step is not None:
            raise UserError(f"rules: subquery {name!r} has no max_step and the default has one; a file cannot say that")
        parts.append(_table(f"[{head}]", _values(rule)))
        for controller, values in _settings_by_name(name, rule).items():
            lost = [key for key in common.get(controller, {}) if key not in values]
            if lost:
                raise UserError(f"rules: {controller} of subquery {name!r} has no {lost[0]} and the default's has one")
            parts.append(_table(f"[{head}.controllers.{controller}]", values))
    return "\n".join(parts)


def _values(rule: Rule) -> dict[str, str]:
    values: dict[str, Any] = {
        "controller": rule.controller.name,
        "least": rule.limits.least,
        "most": rule.limits.most,
        "cooldown_seconds": rule.cooldown_seconds,
        "max_step": rule.max_step,
        "dry_run": rule.dry_run,
        "shadows": [shadow.name for shadow in rule.shadows],
    }
    return {key: _toml(value) for key, value in values.items() if value is not None}


def _settings_by_name(where: str, rule: Rule) -> dict[str, dict[str, str]]:
    """The settings of each controller of a rule that has any to give."""
    found: dict[str, dict[str, str]] = {}
    for controller in (rule.controller, *rule.shadows):
        values = _settings(controller)
        if found.setdefault(controller.name, values) != values:
            raise UserError(f"rules of {where!r}: {controller.name} has two different settings; a file cannot say that")
    return {name: values for name, values in found.items() if values}


def _settings(controller: Controller) -> dict[str, str]:
    if CONTROLLERS.get(controller.name) is not type(controller):
        raise UserError(
            f"rules: {controller.name!r} is none of the controllers that a file can name: {choices(CONTROLLERS)}"
        )
    known = settings_of(type(controller))
    values = {key: getattr(controller, key) for key in known}
    return {key: _toml(value) for key, value in values.items() if value is not None or key == "balancer"}


def _toml(value: Any) -> str:
    match value:
        case None:
            return json.dumps(NO_BALANCER)
        case bool():
            return str(value).lower()
        case Enum():
            return json.dumps(value.value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case _ if type(value) in BALANCERS.values():
            listed = "".join(f", {key} = {_toml(getattr(value, key))}" for key in settings_of(type(value)))
            return f"{{ name = {_toml(value.name)}{listed} }}"
        case _:
            raise UserError(f"rules: a file cannot say {value!r}")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _table(head: str, values: dict[str, str], meaning: dict[str, str] | None = None) -> str:
    lines = [f"{key} = {value}" for key, value in values.items()]
    if meaning:
        width = max(map(len, lines))
        lines = [f"{line:<{width}}  # {meaning[key]}" for line, key in zip(lines, values, strict=True)]
        left_out = [f"# {key} = …  # {text}" for key, text in meaning.items() if key not in values]
        lines += left_out
    return "\n".join([head, *lines, ""])
