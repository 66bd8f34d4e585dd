"""What a user may pass as `elastic=`, resolved to rules and the settings around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.control.controller import Controller, Limits
from tidegate.control.controllers import CONTROLLERS
from tidegate.control.rules import Rule, Rules
from tidegate.control.rules_file import read_rules
from tidegate.errors import UserError, choices


@dataclass(frozen=True, slots=True)
class Elastic:
    """How a query follows its load: by which rules, polled how often, recorded where.

    ``rules`` is a controller or its name, a rule, rules, or the path of a rules file; without it, what is
    recommended for the runtime. ``least`` and ``most`` are limits where the rules set none. ``ledger`` is a file
    that keeps every decision. ``metrics_port`` serves metrics to Prometheus on the loopback address; 0 takes a free
    port.
    """

    rules: Rules | Rule | Controller | str | Path | None = None
    least: int = 1
    most: int | None = None
    period_seconds: float | None = None
    ledger: str | Path | None = None
    dry_run: bool = False
    shadows: tuple[Controller | str, ...] = ()
    metrics_port: int | None = None

    def __post_init__(self) -> None:
        if self.period_seconds is not None and not 0 < self.period_seconds < float("inf"):
            raise UserError(f"elastic: period_seconds ({self.period_seconds}) must be above 0, and finite")
        if self.most is not None or self.least != 1:
            Limits(self.least, max(self.least, 1) if self.most is None else self.most)

    @classmethod
    def of(cls, value: Elastic | Rules | Rule | Controller | str | Path | bool | None) -> Elastic | None:
        """The value of an `elastic=` argument as options; None if the query is not elastic."""
        if isinstance(value, Elastic):
            return value
        if value is None or value is False:
            return None
        return cls() if value is True else cls(value)

    def resolved(self, most: int, recommended: Controller) -> Rules:
        """The rules; ``most`` is the upper limit and ``recommended`` the controller where none is given."""
        given = self.rules
        match given:
            case Rules():
                rules = given
            case Rule():
                rules = Rules(given)
            case Path():
                rules = read_rules(given)
            case str() if given not in CONTROLLERS and (given.endswith(".toml") or Path(given).exists()):
                rules = read_rules(given)
            case _:
                # By its name alone, the recommended one comes with the settings that fit the runtime.
                controller = recommended if given in (None, recommended.name) else _controller(given)
                rules = Rules(Rule(controller, Limits(self.least, max(self.most or most, self.least))))
        if not self.dry_run and not self.shadows:
            return rules
        return Rules(self._with(rules.default), tuple((name, self._with(rule)) for name, rule in rules.subqueries))

    def _with(self, rule: Rule) -> Rule:
        shadows = tuple(_controller(each) for each in self.shadows)
        return replace(rule, dry_run=rule.dry_run or self.dry_run, shadows=(*rule.shadows, *shadows))


def most_of(rules: Rules) -> int:
    """The most instances that any subquery may get."""
    return max(rule.limits.most for rule in (rules.default, *(rule for _, rule in rules.subqueries)))


def _controller(given: Controller | str) -> Controller:
    """A controller, or the one of that name with its default settings."""
    if not isinstance(given, str):
        if not (hasattr(given, "start") and hasattr(given, "name")):
            raise UserError(f"elastic: {given!r} is no controller; choose one of {choices(CONTROLLERS)}")
        return given
    if given not in CONTROLLERS:
        raise UserError(
            f"elastic: there is no controller and no rules file {given!r}; choose one of {choices(CONTROLLERS)}"
        )
    named: Controller = CONTROLLERS[given]()
    return named
