"""Balancing at work on one subquery: whether shards should move between the instances there are, period by period.

A balancer is asked where the controller has nothing to say about shards: when it holds, and when it gives a new number of
instances without a mapping. Loads are in busy shares (`shard_use`), so θ and the upper imbalance threshold apply to what
instances do, whatever their tuples cost.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from tidegate.control.balancers.balance import (
    Balance,
    Balancer,
    Floats,
    Ints,
    Verdict,
    deviation,
    named_limit,
    observed_shards,
    shard_use,
)
from tidegate.control.controller import Action, Alternative, Controller, Decision, Effect, hold
from tidegate.control.observation import Observation

HOT = 0.5
"""The busy share that some instance must have: below it nobody waits for the most loaded one."""
NEW_WEIGHT = 0.5
"""The weight of a period among those before it."""
RESTS = 2
"""Periods that lie between two moves at least: the one of the move itself, and one to see what became of it."""
MOST_RESTS = 256
HELPED = 0.95
"""A move has helped if the deviation of busy shares is at most this part of what it was."""


def without_balancing(controller: Controller) -> Controller:
    """A controller that leaves shards to a balancer beside it: `steady` and `thresholds` have one of their own."""
    if not is_dataclass(controller):
        return controller
    own = {field.name for field in fields(controller)}
    changes: dict[str, Any] = {"balances": False} if "balances" in own else {}
    changes |= {"balancer": None} if "balancer" in own else {}
    plain: Controller = replace(controller, **changes)
    return plain


def balances_itself(controller: Controller) -> bool:
    """Whether a controller has a balancer of its own."""
    return bool(getattr(controller, "balances", False) or getattr(controller, "balancer", None))


class Balancing:
    """A balancer at work on one subquery. Call `see` with each observation and `balanced` where shards may be moved.

    It remembers the tuples per second of each shard and the busy share of each instance, averaged over periods with the
    newest counting most. Busy shares belong to a mapping: they are forgotten with it, and the period in which it changed is
    left out. A move that does not help doubles the time until the next is tried, up to `MOST_RESTS` periods; one that helps
    makes that short again.
    """

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._rates: Floats | None = None
        self._busy: Floats | None = None
        self._mapping: tuple[int, ...] | None = None
        self._rest = 0
        self._rests = RESTS
        self._before: float | None = None

    def see(self, observation: Observation) -> None:
        """Take an observation into account."""
        same, self._mapping = observation.mapping == self._mapping, observation.mapping
        self._rest = max(self._rest - 1, 0)
        shards, busy = observed_shards(observation), observation.busy
        if shards is None or busy is None or len(busy) != observation.instances:
            self._rates = self._busy = None
            return
        self._rates = _averaged(self._rates, shards[1])
        self._busy = _averaged(self._busy, np.asarray(busy, dtype=np.float64)) if same else None
        if same and self._before is not None:
            helped = deviation(np.asarray(busy)) <= HELPED * self._before
            self._rests = RESTS if helped else min(2 * self._rests, MOST_RESTS)
            self._rest, self._before = 0 if helped else self._rests, None

    def balanced(self, decision: Decision, observation: Observation) -> Decision:
        """What a controller decided, with a mapping where it left that open and shards are known."""
        shards = self._shards(observation)
        if shards is None or decision.mapping is not None or decision.action is Action.BALANCE:
            return decision
        owners, loads = shards
        if decision.changes:
            return replace(decision, mapping=self._balancer.balance(owners, loads, decision.instances).mapping)
        if self._rest or np.max(observation.busy or (0.0,)) < HOT:
            return decision
        return self._decided(self._balancer.balance(owners, loads, observation.instances), decision, observation)

    def moved(self, observation: Observation) -> None:
        """Shards were moved after this observation."""
        self._rest, self._before = RESTS, deviation(np.asarray(observation.busy or (0.0,)))

    def _shards(self, observation: Observation) -> tuple[Ints, Floats] | None:
        """The instance of each shard, and the busy share that it causes; None where that is not known."""
        shards = observed_shards(observation)
        if shards is None or self._rates is None or self._busy is None or not self._rates.any():
            return None
        return shards[0], shard_use(shards[0], self._rates, self._busy)

    def _decided(self, plan: Balance, decision: Decision, observation: Observation) -> Decision:
        spread = f"busy shares deviate by {plan.deviation_before:.3f}"
        limit = None if plan.limit is None else named_limit(plan.limit, observation)
        verdict = "" if limit is None else f"; {limit}"
        if not plan.moved:
            if plan.verdict is Verdict.EVEN:
                return decision
            reason = f"{spread}, {limit or plan.verdict.value}"
            rejected = (*decision.rejected, Alternative(observation.instances, f"balancing: {reason}"))
            return hold(observation, f"{decision.why}; {reason}", missing=decision.missing, rejected=rejected)
        why = f"{spread}: moving {len(plan.moved)} shards ({self._balancer.name}) brings that to {plan.deviation_after:.3f}"
        expected = Effect(observation.utilisation, deviation=plan.deviation_after)
        return Decision(
            observation.subquery,
            Action.BALANCE,
            observation.instances,
            f"{why}{verdict}; {decision.why}",
            plan.mapping,
            expected,
            decision.rejected,
        )


def _averaged(before: Floats | None, new: Floats) -> Floats:
    """What was seen so far, and something new that counts for `NEW_WEIGHT`."""
    known = before is not None and len(before) == len(new)
    return before + NEW_WEIGHT * (new - before) if known and before is not None else new
