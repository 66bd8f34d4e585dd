"""The loop of one subquery: what it passes on, what it cuts down, what it survives and what it records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.controller import Action, Alternative, ChangeOutcome, Decision, Effect, Limits, hold, resize
from tidegate.control.controllers.saso import Saso
from tidegate.control.events import ChangeEffect, Event, Stepped, measured_effect
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule
from tidegate.errors import UserError

LIMITS = Limits(1, 10)
Wish = Callable[[Observation], Decision]


@dataclass(frozen=True)
class Scripted:
    """A controller that does as it is told, and notes the times at which it was asked."""

    wish: Wish
    name: str = "scripted"
    asked: list[float] = field(default_factory=list)

    def start(self, limits: Limits) -> Scripted:
        return self

    def decide(self, observation: Observation) -> Decision:
        self.asked.append(observation.time_seconds)
        return self.wish(observation)


@dataclass
class Machine:
    """An actuator that does what it is asked, after a while."""

    instances: int = 1
    seconds: float | None = None
    calls: list[int] = field(default_factory=list)

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        self.calls.append(instances)
        self.instances = instances
        return ChangeOutcome(True, "", self.seconds, 1_000)


class Broken:
    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        raise ConnectionError("nobody there")


class Stubborn:
    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        return ChangeOutcome(False, "no cores left")


def to(instances: int, expected: Effect = Effect()) -> Scripted:  # noqa: B008 - a frozen value
    return Scripted(lambda seen: resize(seen, instances, "as told", expected=expected))


def seen(time_seconds: float, instances: int = 1, **known: object) -> Observation:
    return Observation("q", time_seconds, 5.0, instances, **known)  # type: ignore[arg-type]


def steps(events: list[Event]) -> list[Stepped]:
    return [event for event in events if isinstance(event, Stepped)]


def results(events: list[Event]) -> list[str]:
    return [step.result for step in steps(events)]


def effects(events: list[Event]) -> list[tuple[Stepped, ChangeEffect]]:
    return [(step, effect) for step in steps(events) for effect in step.effects]


def test_a_step_observes_decides_acts_and_ends() -> None:
    events: list[Event] = []
    machine = Machine()
    decision = ControlLoop(Rule(to(3), LIMITS), machine, events.append).step(seen(5.0))
    assert (decision.action, decision.instances) == (Action.PROVISION, 3)
    assert machine.calls == [3]
    (step,) = steps(events)
    assert (step.subquery, step.step, step.time_seconds, step.result) == ("q", 0, 5.0, "acted")
    assert (step.observation, step.controller, step.decision) == (seen(5.0), "scripted", decision)


def test_holding_asks_nothing_of_the_actuator() -> None:
    events: list[Event] = []
    machine = Machine()
    ControlLoop(Rule(to(1), LIMITS), machine, events.append).step(seen(5.0))
    assert machine.calls == []
    assert results(events) == ["held"]


def test_a_balance_is_carried_out_with_its_mapping() -> None:
    mapping = (0, 1, 0, 1)
    given: list[tuple[int, tuple[int, ...] | None]] = []

    class Mapped:
        def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
            given.append((instances, mapping))
            return ChangeOutcome(True)

    driver = Scripted(lambda seen: Decision("q", Action.BALANCE, 2, "uneven", mapping))
    ControlLoop(Rule(driver, LIMITS, max_step=1), Mapped()).step(seen(5.0, 2))
    assert given == [(2, mapping)]


def test_the_step_limit_cuts_both_ways_and_takes_the_expectation_along() -> None:
    events: list[Event] = []
    machine = Machine(instances=5)
    up = ControlLoop(Rule(to(9, Effect(0.5)), LIMITS, max_step=2), machine, events.append).step(seen(5.0, 5))
    assert (up.instances, machine.calls, up.expected) == (7, [7], Effect())
    assert up.rejected == (Alternative(9, "at most 2 instances may change at a time"),)
    (step,) = steps(events)
    assert (step.wanted.instances, step.decision.instances) == (9, 7)
    assert step.withheld == "at most 2 instances may change at a time"
    down = ControlLoop(Rule(to(1), LIMITS, max_step=2), Machine()).step(seen(5.0, 5))
    assert (down.action, down.instances) == (Action.DECOMMISSION, 3)


@pytest.mark.parametrize(("wanted", "now", "allowed"), [(40, 4, 10), (0, 4, 1), (40, 10, 10)])
def test_nothing_leaves_the_limits(wanted: int, now: int, allowed: int) -> None:
    machine = Machine(instances=now)
    decision = ControlLoop(Rule(to(wanted), LIMITS), machine).step(seen(5.0, now))
    assert decision.instances == allowed
    assert machine.calls == ([] if allowed == now else [allowed])
    assert decision.changes == (allowed != now)


def test_the_controller_is_not_asked_while_cooling_down() -> None:
    events: list[Event] = []
    driver = Scripted(lambda seen: resize(seen, seen.instances + 1, "more"))
    machine = Machine()
    loop = ControlLoop(Rule(driver, LIMITS, cooldown_seconds=10.0), machine, events.append)
    decisions = [loop.step(seen(time, machine.instances)) for time in (5.0, 10.0, 14.9, 15.0)]
    assert driver.asked == [5.0, 15.0]
    assert machine.calls == [2, 3]
    assert [decision.changes for decision in decisions] == [True, False, False, True]
    assert decisions[1].why == "cooling down until 15 s after the change at 5 s"
    assert [step.asked for step in steps(events)] == [True, False, False, True]


def test_a_refused_change_starts_no_cool_down() -> None:
    driver = to(3)
    loop = ControlLoop(Rule(driver, LIMITS, cooldown_seconds=100.0), Stubborn())
    loop.step(seen(5.0))
    loop.step(seen(10.0))
    assert driver.asked == [5.0, 10.0]


@pytest.mark.parametrize(
    ("actuator", "why"),
    [(Broken(), "the actuator failed: ConnectionError: nobody there"), (Stubborn(), "no cores left")],
)
def test_an_actuator_that_will_not_is_recorded_and_survived(actuator: Broken | Stubborn, why: str) -> None:
    events: list[Event] = []
    loop = ControlLoop(Rule(to(3), LIMITS), actuator, events.append)
    assert loop.step(seen(5.0)).instances == 3
    assert loop.step(seen(10.0)).instances == 3
    assert [step.outcome for step in steps(events)] == [ChangeOutcome(False, why)] * 2
    assert results(events) == ["refused", "refused"]
    assert not effects(events)


def test_a_dry_run_only_advises() -> None:
    events: list[Event] = []
    machine = Machine()
    loop = ControlLoop(Rule(to(3), LIMITS, dry_run=True, cooldown_seconds=60.0), machine, events.append)
    assert [loop.step(seen(time)).instances for time in (5.0, 10.0)] == [3, 3]
    assert machine.calls == []
    assert results(events) == ["advised", "advised"]


def test_the_effect_is_that_of_the_first_whole_period_under_the_change() -> None:
    # in force at 5 + 3 = 8 s, so the period from 5 to 10 s still has some of the old; 10 to 15 s is whole
    events: list[Event] = []
    expected = Effect(utilisation=0.6)
    loop = ControlLoop(Rule(to(2, expected), LIMITS), Machine(seconds=3.0), events.append)
    loop.step(seen(5.0, 1, busy=(1.0,), processed=100.0))
    loop.step(seen(10.0, 2, busy=(0.9, 0.9)))
    assert not effects(events)
    loop.step(seen(15.0, 2, busy=(0.5, 0.7), processed=120.0))
    loop.step(seen(20.0, 2, busy=(0.1, 0.1)))
    ((step, effect),) = effects(events)
    assert (effect.decided_step, step.step, effect.missed) == (0, 2, None)
    assert steps(events)[0].decision.expected == expected
    assert effect.before == Effect(1.0, None, 100.0, 0.0)
    assert effect.seen is not None
    assert (effect.seen.utilisation, effect.seen.processed) == (pytest.approx(0.6), 120.0)
    assert effect.seen.deviation == pytest.approx(0.1)


def test_no_effect_is_seen_before_the_instances_are_there() -> None:
    events: list[Event] = []
    driver = Scripted(lambda seen: resize(seen, 2, "two") if seen.time_seconds < 6 else hold(seen, "-"))
    loop = ControlLoop(Rule(driver, LIMITS), Machine(), events.append)
    for time, instances in ((5.0, 1), (10.0, 1), (15.0, 1), (20.0, 2)):
        loop.step(seen(time, instances))
    assert [step.time_seconds for step, effect in effects(events) if effect.seen] == [20.0]


def test_a_change_that_is_overtaken_has_no_effect_of_its_own() -> None:
    events: list[Event] = []
    driver = Scripted(lambda seen: resize(seen, 2 + int(seen.time_seconds > 5), "more"))
    loop = ControlLoop(Rule(driver, LIMITS), Machine(seconds=30.0), events.append)
    loop.step(seen(5.0, 1))
    loop.step(seen(10.0, 1))
    ((step, effect),) = effects(events)
    assert (effect.decided_step, step.step, effect.seen) == (0, 1, None)
    assert effect.missed == "overtaken by the change of step 1 before it had settled"


def test_a_change_under_way_is_not_asked_for_again_until_it_is_overdue() -> None:
    machine = Machine(seconds=12.0)
    loop = ControlLoop(Rule(to(4), LIMITS), machine)
    decisions = [loop.step(seen(time, 1)) for time in (5.0, 10.0, 15.0, 20.0)]
    assert machine.calls == [4, 4]
    assert [decision.changes for decision in decisions] == [True, False, False, True]


def test_shadows_see_the_same_and_do_nothing() -> None:
    events: list[Event] = []
    machine = Machine()
    shadows = (to(7), Scripted(to(8).wish), Saso())
    loop = ControlLoop(Rule(to(1), LIMITS, shadows=shadows), machine, events.append)
    loop.step(seen(5.0))
    assert machine.calls == []
    opinions = {each.shadow: each.decision for step in steps(events) for each in step.opinions if each.decision}
    assert {label: decision.instances for label, decision in opinions.items()} == {
        "scripted": 7,
        "scripted#2": 8,
        "saso": 1,
    }
    assert opinions["saso"].missing == ("congestion", "processed")


def test_a_shadow_sees_what_comes_while_the_driver_cools_down() -> None:
    shadow = to(1)
    loop = ControlLoop(Rule(to(3), LIMITS, cooldown_seconds=100.0, shadows=(shadow,)), Machine())
    loop.step(seen(5.0))
    loop.step(seen(10.0))
    assert shadow.asked == [5.0, 10.0]


def test_a_shadow_that_fails_is_recorded_and_survived() -> None:
    def fail(observation: Observation) -> Decision:
        raise ZeroDivisionError("no rate")

    events: list[Event] = []
    machine = Machine()
    ControlLoop(Rule(to(3), LIMITS, shadows=(Scripted(fail, "odd"),)), machine, events.append).step(seen(5.0))
    assert machine.calls == [3]
    (failed,) = steps(events)[0].opinions
    assert (failed.shadow, failed.decision, failed.error) == ("odd", None, "ZeroDivisionError: no rate")


def test_the_drivers_own_error_is_raised_and_nothing_is_done() -> None:
    def fail(observation: Observation) -> Decision:
        raise ZeroDivisionError("no rate")

    machine = Machine()
    with pytest.raises(ZeroDivisionError):
        ControlLoop(Rule(Scripted(fail), LIMITS), machine).step(seen(5.0))
    assert machine.calls == []


def test_a_loop_is_for_one_subquery_in_order_of_time() -> None:
    loop = ControlLoop(Rule(to(1), LIMITS), Machine())
    loop.step(seen(5.0))
    with pytest.raises(UserError, match="at 5 s after one at 5 s"):
        loop.step(seen(5.0))
    with pytest.raises(UserError, match="give each subquery a loop"):
        loop.step(Observation("other", 10.0, 5.0, 1))


@pytest.mark.parametrize("wrong", [{"cooldown_seconds": -1.0}, {"cooldown_seconds": float("nan")}, {"max_step": 0}])
def test_wrong_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        ControlLoop(Rule(to(1), LIMITS, **wrong), Machine())  # type: ignore[arg-type]


def test_a_reading_leaves_out_what_was_not_observed() -> None:
    assert measured_effect(seen(5.0)) == Effect()
    assert measured_effect(seen(5.0, 2, busy=(0.2, 0.4), latency_seconds=1.5)) == Effect(
        pytest.approx(0.3), 1.5, None, pytest.approx(0.1)
    )


@given(
    wishes=st.lists(st.tuples(st.integers(-3, 60), st.booleans()), min_size=1, max_size=40),
    least=st.integers(1, 10),
    spread=st.integers(0, 30),
    max_step=st.none() | st.integers(1, 8),
    cooldown_periods=st.integers(0, 4),
)
def test_whatever_is_wanted_the_loop_keeps_its_rules(
    wishes: list[tuple[int, bool]], least: int, spread: int, max_step: int | None, cooldown_periods: int
) -> None:
    limits = Limits(least, least + spread)
    changes: list[tuple[float, int, int]] = []
    events: list[Event] = []
    now, there, willing = 0.0, least, True

    class Fickle:
        def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
            nonlocal there
            if not willing:
                raise OSError("not now")
            changes.append((now, there, instances))
            there = instances
            return ChangeOutcome(True)

    wanted = 0
    driver = Scripted(lambda seen: resize(seen, wanted, "as told"))
    loop = ControlLoop(
        Rule(driver, limits, max_step=max_step, cooldown_seconds=5.0 * cooldown_periods), Fickle(), events.append
    )
    for step, wish in enumerate(wishes):
        now, (wanted, willing) = 5.0 * (step + 1), wish
        loop.step(seen(now, there))
    assert all(limits.least <= after <= limits.most and after != before for _, before, after in changes)
    assert all(abs(after - before) <= (max_step or 60) for _, before, after in changes)
    times = [time for time, _, _ in changes]
    assert all(later - earlier >= 5.0 * cooldown_periods for earlier, later in pairwise(times))
    assert [step.step for step in steps(events)] == list(range(len(wishes)))
    assert [step.time_seconds for step in steps(events) if step.result == "acted"] == times
    assert len(changes) - 1 <= len(effects(events)) <= len(changes)
