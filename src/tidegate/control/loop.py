"""The loop of one subquery: observe, decide, act, watch the effect, and have all of it written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.control.controller import Actuator, Controller, Deciding, Limits
from tidegate.control.decision import Action, Alternative, Decision, hold, hold_without, resize
from tidegate.control.events import (
    Acted,
    Advised,
    Decided,
    EffectMissed,
    EffectSeen,
    Event,
    Observed,
    Reading,
    Refused,
    ShadowDecided,
    ShadowFailed,
    Stepped,
    Withheld,
    reading,
)
from tidegate.control.needs import Needs, needs_of
from tidegate.control.observation import Observation
from tidegate.errors import UserError

Record = Callable[[Event], None]

ROUNDING_SECONDS = 1e-9


def unrecorded(event: Event) -> None:
    """Forget an event: for loops of which nobody wants to know afterwards."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A change whose effect has not been seen yet."""

    step: int
    decision: Decision
    before: Reading
    in_force_seconds: float


class ControlLoop:
    """Drives one subquery with one controller; other controllers may watch from the shadow.

    Call `step` with each observation, in order of time; there is no other clock. The loop returns, and has carried out,
    the decision that was left after its own rules, which apply in this order:

    - A controller whose needed observations are missing is not asked, and the decision is to hold.
    - For `cooldown_seconds` after a change the driving controller is not asked either. To it, the time is a longer
      period, not a row of refusals that a controller with a memory would take for effects of its own.
    - A decision is cut to `limits` and, from the observed number of instances, to `max_step` more or fewer. What is
      expected of it and its mapping belong to the number that was wanted, and go with it.
    - The same change is not asked for again as long as the actuator said that it is still under way.
    - In a `dry_run` nothing is carried out, and `Advised` is recorded instead.

    An actuator that refuses or raises is recorded and survived, and so is a shadow that raises. The driving controller's
    own error is not: it is raised, after nothing has been done.

    The effect of a change is read from the first period that lies wholly after the change came into force, which is at
    once if the actuator does not say when, and in which the subquery has as many instances as were asked for.
    """

    def __init__(
        self,
        controller: Controller,
        limits: Limits,
        actuator: Actuator,
        *,
        cooldown_seconds: float = 0.0,
        max_step: int | None = None,
        dry_run: bool = False,
        shadows: tuple[Controller, ...] = (),
        record: Record = unrecorded,
    ) -> None:
        if not cooldown_seconds >= 0:
            raise UserError(f"loop: cooldown_seconds ({cooldown_seconds}) must be 0 or more")
        if max_step is not None and max_step < 1:
            raise UserError(f"loop: max_step ({max_step}) must be 1 or more, or None for no limit")
        self._name = controller.name
        self._needs = needs_of(controller.name)
        self._driver = controller.start(limits)
        self._shadows = tuple(
            (label, needs_of(shadow.name), shadow.start(limits))
            for label, shadow in zip(shadow_labels(shadows), shadows, strict=True)
        )
        self._limits, self._actuator, self._record = limits, actuator, record
        self._cooldown_seconds, self._max_step, self._dry_run = cooldown_seconds, max_step, dry_run
        self._step = -1
        self._last: Observation | None = None
        self._changed_seconds: float | None = None
        self._pending: _Pending | None = None

    def step(self, observation: Observation) -> Decision:
        """Take one observation through the loop; returns what was settled on, whether or not it could be carried out."""
        self._check(observation)
        self._step, self._last = self._step + 1, observation
        where = (observation.subquery, self._step, observation.time_seconds)
        self._record(Observed(*where, observation))
        self._watch(observation)
        cooling = self._cooling(observation)
        decision, asked = (cooling, False) if cooling else _decide(self._driver, self._needs, observation)
        self._record(Decided(*where, self._name, decision, asked))
        allowed = self._allow(decision, observation)
        if allowed.changes:
            self._carry_out(allowed, observation)
        self._ask_shadows(observation)
        self._record(Stepped(*where, allowed))
        return allowed

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

    def _watch(self, observation: Observation) -> None:
        """Report the effect of the last change, if this is the first whole period under it."""
        pending = self._pending
        if pending is None or observation.instances != pending.decision.instances:
            return
        if observation.time_seconds - observation.period_seconds < pending.in_force_seconds - ROUNDING_SECONDS:
            return
        self._pending = None
        where = (observation.subquery, self._step, observation.time_seconds)
        expected = pending.decision.expected
        self._record(EffectSeen(*where, pending.step, pending.before, expected, reading(observation)))

    def _cooling(self, observation: Observation) -> Decision | None:
        """The decision to hold because something changed a short while ago, or None."""
        if self._changed_seconds is None:
            return None
        until = self._changed_seconds + self._cooldown_seconds
        if observation.time_seconds >= until - ROUNDING_SECONDS:
            return None
        why = f"cooling down until {until:g} s after the change at {self._changed_seconds:g} s"
        return hold(observation.subquery, observation.instances, why)

    def _allow(self, wanted: Decision, observation: Observation) -> Decision:
        """What the loop's own limits leave of a decision."""
        if not wanted.changes:
            return wanted
        before, after, reasons = observation.instances, wanted.instances, []
        if wanted.action is not Action.BALANCE:
            if self._max_step is not None and abs(after - before) > self._max_step:
                after = before + self._max_step if after > before else before - self._max_step
                reasons.append(f"at most {self._max_step} instances may change at a time")
            if self._limits.clamp(after) != after:
                after = self._limits.clamp(after)
                reasons.append(f"the limits are {self._limits} instances")
        allowed = wanted
        if reasons:
            why = "; ".join(reasons)
            cut = (*wanted.rejected, Alternative(wanted.instances, why))
            allowed = resize(wanted.subquery, before, after, f"{wanted.why}; {why}", rejected=cut)
        elif self._under_way(wanted, observation):
            reasons.append("the same change is still under way")
            allowed = hold(wanted.subquery, before, f"{reasons[0]}: {wanted.why}", rejected=wanted.rejected)
        if reasons:
            where = (observation.subquery, self._step, observation.time_seconds)
            self._record(Withheld(*where, wanted, allowed, "; ".join(reasons)))
        return allowed

    def _under_way(self, wanted: Decision, observation: Observation) -> bool:
        pending = self._pending
        return (
            pending is not None
            and observation.time_seconds < pending.in_force_seconds
            and (wanted.instances, wanted.mapping) == (pending.decision.instances, pending.decision.mapping)
        )

    def _carry_out(self, decision: Decision, observation: Observation) -> None:
        where = (observation.subquery, self._step, observation.time_seconds)
        if self._dry_run:
            self._record(Advised(*where, decision))
            return
        try:
            outcome = self._actuator.reconfigure(decision.subquery, decision.instances, decision.mapping)
        except Exception as error:
            self._record(Refused(*where, decision, f"the actuator failed: {type(error).__name__}: {error}"))
            return
        if not outcome.accepted:
            self._record(Refused(*where, decision, outcome.note or "the actuator gave no reason"))
            return
        if self._pending is not None:
            overtaken = f"overtaken by the change of step {self._step} before it had settled"
            self._record(EffectMissed(*where, self._pending.step, overtaken))
        self._record(Acted(*where, decision, outcome))
        now = self._changed_seconds = observation.time_seconds
        self._pending = _Pending(self._step, decision, reading(observation), now + (outcome.seconds or 0.0))

    def _ask_shadows(self, observation: Observation) -> None:
        where = (observation.subquery, self._step, observation.time_seconds)
        for label, needs, shadow in self._shadows:
            try:
                decision, asked = _decide(shadow, needs, observation)
            except Exception as error:
                self._record(ShadowFailed(*where, label, f"{type(error).__name__}: {error}"))
            else:
                self._record(ShadowDecided(*where, label, decision, asked))


def shadow_labels(shadows: tuple[Controller, ...]) -> tuple[str, ...]:
    """A name for each shadow: its controller's, numbered from the second of the same name on."""
    labels: list[str] = []
    for shadow in shadows:
        same = sum(label.split("#")[0] == shadow.name for label in labels)
        labels.append(f"{shadow.name}#{same + 1}" if same else shadow.name)
    return tuple(labels)


def _decide(deciding: Deciding, needs: Needs, observation: Observation) -> tuple[Decision, bool]:
    """What a controller decides, and whether it was asked: not if anything it needs is missing."""
    missing = needs.missing(observation)
    if missing:
        return hold_without(missing, observation.subquery, observation.instances), False
    return deciding.decide(observation), True
