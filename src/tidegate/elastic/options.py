"""What a user may pass as `elastic=`, resolved to rules and the settings around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.control.balancers import BALANCERS
from tidegate.control.balancers.balance import Balancer
from tidegate.control.balancing import balances_itself, without_balancing
from tidegate.control.controller import Controller, Limits
from tidegate.control.controllers import CONTROLLERS
from tidegate.control.controllers.fixed import Fixed
from tidegate.control.protocols.planner import MovePlanner
from tidegate.control.rules import Rule, Rules
from tidegate.control.rules_file import read_rules
from tidegate.errors import UserError, choices

PAGE_PORT = 8787
WATCH_SECONDS = 1.0
"""How often a job is looked at that is only shown on a page."""


@dataclass(frozen=True, slots=True)
class Elastic:
    """How a query follows its load: by which rules, polled how often, recorded where.

    ``rules`` is a controller or its name, a rule, rules, or the path of a rules file; without it, what is
    recommended for the runtime. ``least`` and ``most`` are limits where the rules set none. ``ledger`` is a file
    that keeps every decision. ``balance`` says what moves shards between instances: a balancer or its name, True for what
    is recommended, False for nothing; by default what is recommended where the runtime can, unless the controller does so
    itself. ``protocol`` names how shards change owners; by default the one that costs least and is in force within
    ``deadline_seconds``. ``metrics_port`` serves metrics to Prometheus on the loopback address; 0 takes a free
    port. ``page`` does the same for the page (docs/page.md); True takes port 8787.
    """

    rules: Rules | Rule | Controller | str | Path | None = None
    least: int = 1
    most: int | None = None
    period_seconds: float | None = None
    ledger: str | Path | None = None
    dry_run: bool = False
    shadows: tuple[Controller | str, ...] = ()
    metrics_port: int | None = None
    balance: Balancer | str | bool | None = None
    protocol: str | None = None
    deadline_seconds: float | None = None
    page: int | None = None

    def __post_init__(self) -> None:
        if self.period_seconds is not None and not 0 < self.period_seconds < float("inf"):
            raise UserError(f"elastic: period_seconds ({self.period_seconds}) must be above 0, and finite")
        if self.most is not None or self.least != 1:
            Limits(self.least, max(self.least, 1) if self.most is None else self.most)
        if not isinstance(self.balance, bool | None):
            _balancer(self.balance)
        if not isinstance(self.page, int | None):
            raise UserError(f"page is a port, 0 for a free one, or True for {PAGE_PORT}; got {self.page!r}")
        if isinstance(self.page, bool):
            object.__setattr__(self, "page", PAGE_PORT if self.page else None)

    @classmethod
    def of(
        cls,
        value: Elastic | Rules | Rule | Controller | str | Path | bool | None,
        balance: Balancer | str | bool | None = None,
        page: int | None = None,
    ) -> Elastic | None:
        """The values of `elastic=`, `balance=` and `page=` as options; None if there is nothing to do beside the query.

        With ``balance`` or ``page`` alone the number of instances stays as it is.
        """
        if page is not None and page is not False:
            asked = cls.of(value, balance)
            watched = cls(Fixed(), period_seconds=WATCH_SECONDS, balance=False)
            return replace(watched if asked is None else asked, page=page)
        if isinstance(value, Elastic):
            return value if balance is None else replace(value, balance=balance)
        if value is None or value is False:
            return cls(Fixed(), balance=balance) if balance else None
        return cls(balance=balance) if value is True else cls(value, balance=balance)

    @property
    def watches_only(self) -> bool:
        """Whether nothing is ever changed."""
        return self.keeps_size and self.balance is False and not self.shadows

    def resolved(self, most: int, recommended: Controller, balancer: Balancer | None = None) -> Rules:
        """The rules; ``most`` is the upper limit and ``recommended`` the controller where none is given.

        ``balancer`` is what is recommended, None where the runtime cannot move shards.
        """
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
        own = tuple((name, self._with(rule, balancer)) for name, rule in rules.subqueries)
        return Rules(self._with(rules.default, balancer), own)

    @property
    def keeps_size(self) -> bool:
        """Whether the number of instances or executors is to stay as it is."""
        return isinstance(self.rules, Fixed) or self.rules == Fixed.name

    def balancer(self, recommended: Balancer) -> Balancer | None:
        """What is to move shards; None if nothing was asked for."""
        if isinstance(self.balance, bool | None):
            return recommended if self.balance else None
        return _balancer(self.balance)

    def planned_by(self, planner: MovePlanner) -> MovePlanner:
        """A runtime's planner with the protocol and the deadline that are asked for."""
        deadline = planner.deadline_seconds if self.deadline_seconds is None else self.deadline_seconds
        return replace(planner, protocol=self.protocol, deadline_seconds=deadline)

    def _with(self, rule: Rule, balancer: Balancer | None) -> Rule:
        shadows = tuple(_controller(each) for each in self.shadows)
        rule = replace(rule, dry_run=rule.dry_run or self.dry_run, shadows=(*rule.shadows, *shadows))
        if self.balance is False:
            return replace(rule, controller=without_balancing(rule.controller), balancer=None)
        if not isinstance(self.balance, bool | None):
            return replace(rule, balancer=_balancer(self.balance))
        if rule.balancer is None and not balances_itself(rule.controller):
            return replace(rule, balancer=balancer)
        return rule


def most_of(rules: Rules) -> int:
    """The most instances that any subquery may get."""
    return max(rule.limits.most for rule in (rules.default, *(rule for _, rule in rules.subqueries)))


def _balancer(given: Balancer | str) -> Balancer:
    """A balancer, or the one of that name with its default settings."""
    if isinstance(given, str) and given in BALANCERS:
        return BALANCERS[given]()
    if isinstance(given, str) or not hasattr(given, "balance"):
        raise UserError(f"balance: there is no balancer {given!r}; choose one of {choices(BALANCERS)}, True or False")
    return given


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
