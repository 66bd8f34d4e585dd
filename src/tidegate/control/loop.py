"""The loop of one subquery: observe, decide, act, measure the effect, and record each of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidegate.control.balancing import Balancing, without_balancing
from tidegate.control.controller import (
    Action,
    Actuator,
    Alternative,
    ChangeOutcome,
    Deciding,
    Decision,
    Effect,
    MoveCost,
    MovesShards,
    hold,
    resize,
)
from tidegate.control.events import ChangeEffect, Event, MoveMeasured, Opinion, Stepped, measured_effect
from tidegate.control.observation import Observation
from tidegate.control.protocols.planner import MovePlan, MovePlanner
from tidegate.control.rules import Rule
from tidegate.errors import UserError

Record = Callable[[Event], None]

ROUNDING_SECONDS = 1e-9


def unrecorded(event: Event) -> None:
    """Forget an event: for loops without a ledger."""


@dataclass(frozen=True, slots=True)
class _PendingEffect:
    """A change whose effect has not been measured yet."""

    step: int
    decision: Decision
    before: Effect
    in_force_seconds: float


class ControlLoop:
    """Drives one subquery by a rule; the rule's shadows watch.

    Call `step` with each observation, in order of time; there is no other clock. The loop returns, and has carried out,
    the decision that is left after the rule, which applies in this order:

    - For `cooldown_seconds` after a change the driving controller is not asked. To it, the time is a longer period, not
      a row of refusals that a controller with a memory would take for effects of its own.
    - Where the rule has a balancer, it is asked about shards when the controller holds, or says how many instances there
      shall be and not which shards they get. A controller that balances by itself leaves that to it.
    - A decision is cut to `limits` and, from the observed number of instances, to `max_step` more or fewer. What is
      expected of it and its mapping belong to the number that was wanted, and go with it.
    - The same change is not asked for again as long as the actuator said that it is still under way.
    - In a `dry_run` nothing is carried out, and the decision is recorded as advice.

    Where there is a `planner`, it says by which protocol shards change owners and what that should cost; what moves took
    corrects its next estimates.

    An actuator that refuses or raises is recorded and survived, and so is a shadow that raises. The driving controller's
    own error is not: it is raised, after nothing has been done.

    The effect of a change is read from the first period that lies wholly after the change came into force, which is at
    once if the actuator does not say when, and in which the subquery has as many instances as were asked for.
    """

    def __init__(
        self, rule: Rule, actuator: Actuator, record: Record = unrecorded, planner: MovePlanner | None = None
    ) -> None:
        self._rule, self._actuator, self._record, self._planner = rule, actuator, record, planner
        self._balancing = None if rule.balancer is None else Balancing(rule.balancer)
        controller = rule.controller if rule.balancer is None else without_balancing(rule.controller)
        self._driver = controller.start(rule.limits)
        names = [shadow.name for shadow in rule.shadows]
        # From the second shadow of the same name on, names are numbered.
        counts = [names[:place].count(name) for place, name in enumerate(names)]
        self._shadows = [
            (f"{shadow.name}#{count + 1}" if count else shadow.name, shadow.start(rule.limits))
            for shadow, count in zip(rule.shadows, counts, strict=True)
        ]
        self._step = -1
        self._last: Observation | None = None
        self._changed_seconds: float | None = None
        self._pending: _PendingEffect | None = None
        self._planned: tuple[int, MovePlan] | None = None

    def step(self, observation: Observation) -> Decision:
        """Take one observation through the loop; returns what was settled on, whether or not it could be carried out."""
        self._check(observation)
        self._step, self._last = self._step + 1, observation
        effects = [*self._settled(observation)]
        cooling = self._cooling(observation)
        if self._balancing is not None:
            self._balancing.see(observation)
        wanted = cooling or self._decide(observation)
        allowed, withheld = self._allow(wanted, observation)
        plan, refused = self._plan(allowed, observation) if allowed.changes else (None, None)
        outcome = refused or (self._carry_out(allowed, plan) if allowed.changes and not self._rule.dry_run else None)
        if self._planner is not None and plan is not None and outcome is not None and outcome.accepted:
            if outcome.measured is None:
                self._planned = self._step, plan
            else:
                self._planner = self._planner.learned(plan, outcome.measured)
        if outcome is not None and outcome.accepted:
            if (pending := self._pending) is not None:
                overtaken = f"overtaken by the change of step {self._step} before it had settled"
                effects.append(ChangeEffect(pending.step, pending.before, None, overtaken))
            if self._balancing is not None and allowed.mapping is not None:
                self._balancing.moved(observation)
            now = self._changed_seconds = observation.time_seconds
            in_force_seconds = now + (outcome.seconds or 0.0)
            self._pending = _PendingEffect(self._step, allowed, measured_effect(observation), in_force_seconds)
        self._record(
            Stepped(
                observation.subquery,
                self._step,
                observation.time_seconds,
                observation,
                self._rule.controller.name,
                cooling is None,
                wanted,
                withheld,
                allowed,
                outcome,
                tuple(effects),
                tuple(_opinion(label, shadow, observation) for label, shadow in self._shadows),
                plan,
            )
        )
        return allowed

    def _decide(self, observation: Observation) -> Decision:
        """What the driving controller says, and the rule's balancer where that leaves shards alone."""
        decision = self._driver.decide(observation)
        return decision if self._balancing is None else self._balancing.balanced(decision, observation)

    def measured(self, cost: MoveCost, seconds: float) -> None:
        """Take down what the last planned move has cost, where its actuator could not say so at once."""
        planned, self._planned = self._planned, None
        if planned is not None and self._planner is not None and self._last is not None:
            step, plan = planned
            self._planner = self._planner.learned(plan, cost)
            self._record(MoveMeasured(self._last.subquery, step, seconds, cost))

    def _check(self, observation: Observation) -> None:
        last = self._last
        if last is not None and observation.subquery != last.subquery:
            raise UserError(
                f"loop of subquery '{last.subquery}': observation of '{observation.subquery}'; give each subquery a loop"
            )
        if last is not None and not observation.time_seconds > last.time_seconds:
            raise UserError(
                f"loop of subquery '{last.subquery}': observation at {observation.time_seconds:g} s after one at "
                f"{last.time_seconds:g} s; observations must come in order of time"
            )

    def _settled(self, observation: Observation) -> Iterator[ChangeEffect]:
        """The effect of the last change, if this is the first whole period under it."""
        pending = self._pending
        if pending is None or observation.instances != pending.decision.instances:
            return
        if observation.time_seconds - observation.period_seconds >= pending.in_force_seconds - ROUNDING_SECONDS:
            self._pending = None
            yield ChangeEffect(pending.step, pending.before, measured_effect(observation))

    def _cooling(self, observation: Observation) -> Decision | None:
        """The decision to hold because something changed a short while ago, or None."""
        if self._changed_seconds is None:
            return None
        until = self._changed_seconds + self._rule.cooldown_seconds
        if observation.time_seconds >= until - ROUNDING_SECONDS:
            return None
        why = f"cooling down until {until:g} s after the change at {self._changed_seconds:g} s"
        return hold(observation, why)

    def _allow(self, wanted: Decision, observation: Observation) -> tuple[Decision, str | None]:
        """What the loop's own limits leave of a decision, and why that is less than was wanted."""
        if not wanted.changes:
            return wanted, None
        before, after, reasons = observation.instances, wanted.instances, []
        if wanted.action is not Action.BALANCE:
            limits, most = self._rule.limits, self._rule.max_step
            if most is not None and abs(after - before) > most:
                after = before + most if after > before else before - most
                reasons.append(f"at most {most} instances may change at a time")
            if limits.clamp(after) != after:
                after = limits.clamp(after)
                reasons.append(f"the limits are {limits} instances")
        if reasons:
            why = "; ".join(reasons)
            cut = (*wanted.rejected, Alternative(wanted.instances, why))
            return resize(observation, after, f"{wanted.why}; {why}", rejected=cut), why
        if self._under_way(wanted, observation):
            why = "the same change is still under way"
            return hold(observation, f"{why}: {wanted.why}", rejected=wanted.rejected), why
        return wanted, None

    def _under_way(self, wanted: Decision, observation: Observation) -> bool:
        pending = self._pending
        return (
            pending is not None
            and observation.time_seconds < pending.in_force_seconds
            and (wanted.instances, wanted.mapping) == (pending.decision.instances, pending.decision.mapping)
        )

    def _plan(self, decision: Decision, observation: Observation) -> tuple[MovePlan | None, ChangeOutcome | None]:
        """How shards are to change owners, if somebody plans that; or why they cannot."""
        try:
            return (None if self._planner is None else self._planner.plan_of(observation, decision)), None
        except UserError as error:
            return None, ChangeOutcome(False, str(error))

    def _carry_out(self, decision: Decision, plan: MovePlan | None) -> ChangeOutcome:
        actuator, mapping = self._actuator, decision.mapping
        try:
            if plan is not None and mapping is not None and isinstance(actuator, MovesShards):
                outcome = actuator.move(decision.subquery, mapping, plan.protocol)
            else:
                outcome = actuator.reconfigure(decision.subquery, decision.instances, mapping)
        except Exception as error:
            return ChangeOutcome(False, f"the actuator failed: {type(error).__name__}: {error}")
        return outcome if outcome.accepted or outcome.note else ChangeOutcome(False, "the actuator gave no reason")


def _opinion(label: str, shadow: Deciding, observation: Observation) -> Opinion:
    try:
        return Opinion(label, shadow.decide(observation))
    except Exception as error:
        return Opinion(label, None, f"{type(error).__name__}: {error}")
