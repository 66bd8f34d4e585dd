"""DS2: one step to the right number on constant load, and the options of its published and deployed versions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.control.controller import Action, Deciding, Decision, Limits
from tidegate.control.controllers.ds2 import Ds2
from tidegate.control.observation import Observation
from tidegate.errors import UserError

LIMITS = Limits(1, 64)
RATE = 1_000.0


def observed(instances: int, demand: float, rate: float = RATE, backlog: float | None = None) -> Observation:
    """A subquery whose instances complete `rate` each: busy as far as the demand goes, all the time beyond it."""
    processed = min(demand, instances * rate)
    busy = processed / (instances * rate)
    return Observation(
        "q", 10.0, 10.0, instances, offered=demand, admitted=processed, processed=processed, demand=demand,
        busy=(busy,) * instances, backlog=backlog,
    )  # fmt: skip


def follow(deciding: Deciding, instances: int, demands: list[float]) -> list[Decision]:
    """Decisions over periods in which whatever is decided is in force in the next."""
    decisions = []
    for demand in demands:
        decisions.append(deciding.decide(observed(instances, demand)))
        instances = decisions[-1].instances
    return decisions


@given(st.integers(1, 64), st.floats(1, 60_000))
def test_one_step_is_enough_on_constant_load(instances: int, demand: float) -> None:
    decisions = follow(Ds2(ignored_decrease=0).start(LIMITS), instances, [demand] * 5)
    assert decisions[0].instances == math.ceil(demand / RATE * (1 - 1e-9))
    assert [each.action for each in decisions[1:]] == [Action.HOLD] * 4


@given(st.integers(1, 64), st.floats(1, 60_000))
def test_the_published_manager_ignores_a_decrease_of_one(instances: int, demand: float) -> None:
    wanted = math.ceil(demand / RATE * (1 - 1e-9))
    decision = Ds2().start(LIMITS).decide(observed(instances, demand))
    assert decision.instances == (instances if wanted == instances - 1 else wanted)
    assert [each.instances for each in decision.rejected] == ([wanted] if wanted == instances - 1 else [])


@given(st.integers(2, 60), st.lists(st.floats(-0.4, 0.4), min_size=5, max_size=40))
def test_noise_around_a_whole_number_does_not_make_it_oscillate(level: int, noise: list[float]) -> None:
    decisions = follow(Ds2().start(LIMITS), level, [(level + each) * RATE for each in noise])
    assert sum(each.changes for each in decisions) <= 1


def test_waiting_does_not_make_an_instance_look_slow() -> None:
    half_idle = replace(observed(4, 8_000.0), processed=2_000.0, busy=(0.5, 0.5, 0.5, 0.5))
    assert Ds2().start(LIMITS).decide(half_idle).instances == 8


def test_whole_quotients_are_not_rounded_up_by_their_last_digit() -> None:
    seven_times = replace(observed(7, 0.7), processed=0.1 * 7, demand=0.7000000000000001, busy=(1.0,) * 7)
    assert Ds2().start(LIMITS).decide(seven_times).instances == 7


@given(st.just(0.0) | st.floats(1e-6, 1e6), st.integers(1, 100), st.integers(1, 20), st.integers(0, 20))
def test_it_stays_within_the_limits(demand: float, instances: int, least: int, more: int) -> None:
    decision = Ds2().start(Limits(least, least + more)).decide(observed(instances, demand))
    assert least <= decision.instances <= least + more


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 1e5)), min_size=1, max_size=20))
def test_the_same_observations_get_the_same_decisions(periods: list[tuple[int, float]]) -> None:
    settings = Ds2(warm_up_periods=1)
    first, second = settings.start(LIMITS), settings.start(LIMITS)
    observations = [observed(instances, demand) for instances, demand in periods]
    assert [first.decide(each) for each in observations] == [second.decide(each) for each in observations]


@pytest.mark.parametrize("name", ["demand", "processed", "busy"])
def test_it_holds_and_names_what_is_missing(name: str) -> None:
    decision = Ds2().start(LIMITS).decide(replace(observed(2, 9_000.0), **{name: None}))
    assert (decision.action, decision.instances, decision.missing) == (Action.HOLD, 2, (name,))
    assert name in decision.why


def test_options_need_what_they_look_at() -> None:
    blind = replace(observed(2, 9_000.0), offered=None, admitted=None, backlog=None)
    assert Ds2().start(LIMITS).decide(blind).instances == 9
    assert Ds2(catch_up_seconds=60).start(LIMITS).decide(blind).missing == ("backlog",)


def test_without_work_done_there_is_no_rate_to_go_by() -> None:
    stalled = replace(observed(4, 9_000.0), processed=0.0, busy=(0.0,) * 4)
    assert Ds2().start(LIMITS).decide(stalled).action is Action.HOLD
    assert Ds2().start(LIMITS).decide(replace(stalled, demand=0.0)).instances == 1


def test_utilisation_leaves_headroom() -> None:
    decision = Ds2(utilisation=0.7).start(LIMITS).decide(observed(2, 7_000.0))
    assert decision.instances == 10
    assert decision.expected.utilisation == pytest.approx(0.7)


def test_warming_up_is_at_the_start_and_after_every_change() -> None:
    decisions = follow(Ds2(warm_up_periods=2).start(LIMITS), 2, [6_000.0] * 3 + [9_000.0] * 3)
    assert [each.instances for each in decisions] == [2, 2, 6, 6, 6, 9]
    assert "warming up" in decisions[3].why


def test_a_change_that_somebody_else_made_is_waited_for_too() -> None:
    deciding = Ds2(warm_up_periods=1).start(LIMITS)
    found = [deciding.decide(observed(instances, 9_000.0)).instances for instances in (9, 9, 4, 4)]
    assert found == [9, 9, 4, 9]


def test_the_boundary_holds_what_is_close_to_the_target() -> None:
    settings = Ds2(utilisation=0.7, boundary=0.1, ignored_decrease=0)
    assert settings.start(LIMITS).decide(observed(10, 7_800.0)).action is Action.HOLD
    assert settings.start(LIMITS).decide(observed(10, 8_100.0)).instances == 12
    assert settings.start(LIMITS).decide(observed(10, 5_500.0)).instances == 8


def test_a_backlog_is_worked_off_in_the_time_given() -> None:
    waiting = observed(5, 5_000.0, backlog=120_000.0)
    assert Ds2().start(LIMITS).decide(waiting).action is Action.HOLD
    assert Ds2(catch_up_seconds=60).start(LIMITS).decide(waiting).instances == 7


@given(st.floats(0.1, 1), st.floats(1, 60_000))
def test_the_expected_busy_share_is_at_most_the_target(utilisation: float, demand: float) -> None:
    assume(demand / RATE / utilisation < LIMITS.most)
    decision = Ds2(utilisation=utilisation, ignored_decrease=0).start(LIMITS).decide(observed(3, demand))
    assert decision.expected.utilisation is not None
    assert decision.expected.utilisation <= utilisation * (1 + 1e-6)
    assert decision.expected.processed == pytest.approx(demand)


@pytest.mark.parametrize(
    "wrong",
    [
        {"utilisation": 0.0},
        {"warm_up_periods": -1},
        {"ignored_decrease": -1},
        {"boundary": 1.0},
        {"catch_up_seconds": 0.0},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(UserError, match=f"ds2: {name} must be"):
        Ds2(**wrong)  # type: ignore[arg-type]
