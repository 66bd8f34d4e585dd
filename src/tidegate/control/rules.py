"""Rules: which controller drives which subquery, within which limits, and watched by which others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.control.balancers.balance import Balancer
from tidegate.control.controller import Controller, Limits
from tidegate.control.controllers.steady import Steady
from tidegate.errors import UserError


@dataclass(frozen=True, slots=True)
class Rule:
    """How one subquery is driven, by default as is recommended; `ControlLoop` says what each of these means.

    Without a `balancer`, shards are the controller's own affair: `steady` and `thresholds` move them, the others do not.
    """

    controller: Controller = field(default_factory=Steady)
    limits: Limits = Limits()  # noqa: RUF009 - a frozen value
    cooldown_seconds: float = 0.0
    max_step: int | None = None
    dry_run: bool = False
    shadows: tuple[Controller, ...] = ()
    balancer: Balancer | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.cooldown_seconds < float("inf"):
            raise UserError(f"rule: cooldown_seconds ({self.cooldown_seconds}) must be 0 or more, and finite")
        if self.max_step is not None and self.max_step < 1:
            raise UserError(f"rule: max_step ({self.max_step}) must be 1 or more; leave it out for no limit")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rule of each subquery that has one of its own, and the one of all others.

    >>> Rules(Rule()).of("speed").controller.name
    'steady'
    """

    default: Rule
    subqueries: tuple[tuple[str, Rule], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.subqueries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UserError(f"rules: {twice} have more than one rule; give each subquery one")

    def of(self, subquery: str) -> Rule:
        """The rule of a subquery: its own, else the default."""
        return dict(self.subqueries).get(subquery, self.default)

    def check(self, subqueries: Iterable[str]) -> None:
        """Refuse rules for subqueries that a query does not have: a name misspelt would go unnoticed."""
        known = list(subqueries)
        unknown = [name for name, _ in self.subqueries if name not in known]
        if unknown:
            raise UserError(f"rules: there is no subquery {unknown[0]!r}; the query has {', '.join(map(repr, known))}")
