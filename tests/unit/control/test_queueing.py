"""The queueing model: greedy against exhaustive search, and the controller that goes by it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.effort import examples
from tidegate.control.controller import Action, ChangeOutcome, Limits
from tidegate.control.controllers.queueing import Queueing, allocate, mean_seconds
from tidegate.control.erlang import least_stable, mean_sojourn
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation, Station, with_demand
from tidegate.control.rules import Rule
from tidegate.errors import UserError

LIMITS = Limits(1, 64)


def station(name: str, arrival_rate: float, service_rate: float, instances: int = 1) -> Station:
    return Station(name, instances, arrival_rate, service_rate)


def observed(subquery: str, instances: int, network: Sequence[Station], arrival_rate: float) -> Observation:
    return Observation(
        subquery, 10.0, 5.0, instances, network=tuple(network), network_arrival_rate=arrival_rate, demand=arrival_rate
    )


def alone(instances: int, arrival_rate: float, service_rate: float = 100.0) -> Observation:
    return observed("q", instances, [station("q", arrival_rate, service_rate, instances)], arrival_rate)


STATIONS = st.lists(st.builds(station, st.just("q"), st.floats(0.5, 50), st.floats(5, 20)), min_size=1, max_size=3)


@given(STATIONS, st.floats(1.01, 3), st.integers(0, 6))
@settings(max_examples=examples(40), deadline=None)
def test_greedy_is_as_good_as_trying_everything(stations: list[Station], slack: float, spare: int) -> None:
    least = [least_stable(each.arrival_rate, each.service_rate) for each in stations]
    cores, arriving = sum(least) + spare, stations[0].arrival_rate
    target = slack * math.fsum(each.arrival_rate / each.service_rate for each in stations) / arriving
    found = allocate(stations, arriving, target, cores)

    ranges = [range(low, low + spare + 1) for low in least]
    tried = {each: mean_seconds(stations, arriving, each) for each in product(*ranges) if sum(each) <= cores}
    enough = [each for each, seconds in tried.items() if seconds <= target]
    size = min(map(sum, enough)) if enough else cores
    assert sum(found.instances) == size
    assert found.seconds == pytest.approx(min(s for each, s in tried.items() if sum(each) == size), rel=1e-9)
    assert found.seconds == pytest.approx(mean_seconds(stations, arriving, found.instances), rel=1e-9)


def test_the_mean_time_is_the_weighted_sum_over_stations() -> None:
    # Two single queues: 1/(10 − 5) for every tuple, 1/(10 − 8) for 8/5 of them.
    network = [station("a", 5.0, 10.0), station("b", 8.0, 10.0)]
    assert mean_seconds(network, 5.0, (1, 1)) == pytest.approx(1 / 5 + 8 / 5 * 1 / 2)


def test_a_target_that_the_minimum_meets_adds_nothing() -> None:
    assert allocate([station("a", 25.0, 10.0)], 25.0, 100.0, 50).instances == (3,)


def test_where_nothing_is_stable_the_overload_is_shared() -> None:
    found = allocate([station("a", 60.0, 10.0), station("b", 20.0, 10.0)], 60.0, 1.0, 4)
    assert found.instances == (3, 1)
    assert found.seconds == math.inf


def test_a_large_network_is_allocated_exactly() -> None:
    rng = np.random.default_rng(3)
    stations = [station(str(n), float(rate), 10.0) for n, rate in enumerate(rng.uniform(1, 5_000, 200))]
    arriving = 1_000.0
    floor = math.fsum(each.arrival_rate / each.service_rate for each in stations) / arriving
    found = allocate(stations, arriving, 1.001 * floor, 10**6)
    assert found.seconds <= 1.001 * floor
    assert found.seconds == pytest.approx(mean_seconds(stations, arriving, found.instances), rel=1e-9)
    for place in range(0, 200, 20):  # no instance can be spared
        fewer = list(found.instances)
        fewer[place] -= 1
        assert mean_seconds(stations, arriving, fewer) > found.seconds


def test_a_network_needs_an_arrival_rate() -> None:
    with pytest.raises(UserError, match="arrival rate must be above 0, got 0"):
        allocate([station("a", 1.0, 10.0)], 0.0, 1.0, 4)


@given(st.floats(1, 5_000), st.integers(1, 64))
def test_it_settles_in_one_step_and_meets_the_target(arrival_rate: float, instances: int) -> None:
    deciding = Queueing(0.015).start(LIMITS)
    first = deciding.decide(alone(instances, arrival_rate))
    second = deciding.decide(alone(first.instances, arrival_rate))
    assert second.action is Action.HOLD
    assert first.expected.latency_seconds is not None
    assert first.expected.latency_seconds <= 0.015


@given(st.floats(100, 5_000), st.lists(st.floats(0.955, 1.045), min_size=2, max_size=60), st.integers(1, 64))
def test_noise_within_the_margin_never_turns_it_round(load: float, noise: list[float], instances: int) -> None:
    # Any two periods differ by at most 1.045/0.955 < 1.1, which is the margin.
    deciding, actions = Queueing(0.015, margin=0.1).start(LIMITS), set()
    for each in noise:
        decision = deciding.decide(alone(instances, load * each))
        actions.add(decision.action)
        instances = decision.instances
    assert not {Action.PROVISION, Action.DECOMMISSION} <= actions


def test_without_a_margin_noise_turns_it_round() -> None:
    deciding, instances, actions = Queueing(0.015, margin=0.0).start(LIMITS), 5, []
    for load in (1_000.0, 1_090.0, 1_000.0, 1_090.0):
        decision = deciding.decide(alone(instances, load))
        actions.append(decision.action)
        instances = decision.instances
    assert actions[1:] == [Action.PROVISION, Action.DECOMMISSION, Action.PROVISION]


def test_it_goes_down_when_the_margin_holds_and_says_so_when_not() -> None:
    deciding = Queueing(0.02, margin=0.1).start(LIMITS)
    # Eleven are enough for 950/s and not for a tenth more, for which it takes twelve.
    assert mean_sojourn(10, 950.0, 100.0) > 0.02 >= mean_sojourn(11, 950.0, 100.0)
    assert mean_sojourn(11, 1_045.0, 100.0) > 0.02 >= mean_sojourn(12, 1_045.0, 100.0)
    kept = deciding.decide(alone(12, 950.0))
    assert kept.action is Action.HOLD
    assert [each.instances for each in kept.rejected] == [11]
    gone = deciding.decide(alone(13, 950.0))
    assert (gone.action, gone.instances) == (Action.DECOMMISSION, 12)
    more = deciding.decide(alone(10, 950.0))
    assert (more.action, more.instances) == (Action.PROVISION, 11)


def test_the_slowest_part_of_the_network_gets_the_instances() -> None:
    network = [station("fast", 1_000.0, 1_000.0, 2), station("slow", 1_000.0, 50.0, 21)]
    deciding = Queueing(0.025).start(LIMITS)
    fast = deciding.decide(observed("fast", 2, network, 1_000.0))
    slow = deciding.decide(observed("slow", 21, network, 1_000.0))
    assert slow.action is Action.PROVISION
    assert mean_seconds(network, 1_000.0, (fast.instances, slow.instances)) <= 0.025


def test_all_subqueries_of_a_noisy_network_come_to_rest() -> None:
    rng = np.random.default_rng(7)
    rates = {"a": (1_000.0, 300.0), "b": (1_700.0, 450.0), "c": (600.0, 90.0)}
    instances = dict.fromkeys(rates, 1)
    deciding = {name: Queueing(0.05).start(LIMITS) for name in rates}
    last_change = 0
    for period in range(400):
        noise = dict(zip(rates, rng.uniform(0.97, 1.03, len(rates)), strict=True))
        faster = dict(zip(rates, rng.uniform(0.98, 1.02, len(rates)), strict=True))
        network = [station(n, lam * noise[n], mu * faster[n], instances[n]) for n, (lam, mu) in rates.items()]
        for name in rates:
            decision = deciding[name].decide(observed(name, instances[name], network, 1_000.0 * noise["a"]))
            last_change = period if decision.changes else last_change
            instances[name] = decision.instances
    assert last_change < 100
    assert (
        mean_seconds([station(n, lam, mu) for n, (lam, mu) in rates.items()], 1_000.0, list(instances.values())) < 0.05
    )


def test_a_target_below_the_service_time_does_not_take_everything() -> None:
    decision = Queueing(0.001).start(LIMITS).decide(alone(1, 300.0))
    assert decision.instances < LIMITS.most
    assert decision.expected.latency_seconds == pytest.approx(0.01, rel=0.05)


@given(st.floats(0, 1e5), st.integers(1, 100), st.integers(1, 20), st.integers(0, 20))
def test_it_stays_within_the_limits(arrival_rate: float, instances: int, least: int, more: int) -> None:
    decision = Queueing(0.02).start(Limits(least, least + more)).decide(alone(instances, arrival_rate))
    assert least <= decision.instances <= least + more


def test_cores_bound_the_whole_query() -> None:
    network = [station("a", 500.0, 100.0), station("b", 500.0, 100.0)]
    settings_ = Queueing(0.0201, cores=14)
    found = [settings_.start(LIMITS).decide(observed(name, 1, network, 500.0)).instances for name in ("a", "b")]
    assert sum(found) == 14
    with pytest.raises(UserError, match="1 cores for 2 subqueries"):
        replace(settings_, cores=1).start(LIMITS).decide(observed("a", 1, network, 500.0))


def test_without_input_the_fewest_will_do() -> None:
    idle = replace(alone(5, 10.0), network=(station("other", 1.0, 10.0),), network_arrival_rate=1.0, demand=0.0)
    assert Queueing(0.02).start(LIMITS).decide(idle).instances == 1
    assert Queueing(0.02).start(LIMITS).decide(replace(alone(5, 10.0), network_arrival_rate=0.0)).instances == 1


def test_a_query_that_falls_idle_shrinks_in_a_loop_once_what_waits_is_done() -> None:
    asked = []

    class Noted:
        def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
            asked.append(instances)
            return ChangeOutcome(True)

    loop = ControlLoop(Rule(Queueing(0.02), Limits(2, 64)), Noted())
    for time, waiting in ((5.0, 300.0), (10.0, 0.0)):
        idle = Observation("q", time, 5.0, 9, offered=0.0, processed=0.0, busy=(0.0,) * 9, backlog=waiting)
        loop.step(*with_demand((idle,), ()))
        assert asked == ([] if waiting else [2])


def test_what_waits_keeps_the_instances_of_a_subquery_that_gets_nothing_in_a_busy_query() -> None:
    network = (station("q", 0.0, 100.0, 5), station("other", 50.0, 100.0))
    draining = replace(observed("q", 5, network, 50.0), demand=0.0, backlog=40.0)
    assert Queueing(0.02).start(LIMITS).decide(draining).action is Action.HOLD
    assert Queueing(0.02).start(LIMITS).decide(replace(draining, backlog=0.0)).instances == 1


@pytest.mark.parametrize("name", ["network", "network_arrival_rate"])
def test_it_holds_and_names_what_is_missing(name: str) -> None:
    decision = Queueing(0.02).start(LIMITS).decide(replace(alone(5, 1e4), **{name: None}))
    assert (decision.action, decision.instances, decision.missing) == (Action.HOLD, 5, (name,))
    assert name in decision.why


def test_it_holds_where_the_network_is_of_others() -> None:
    stranger = replace(alone(5, 1e4), subquery="stranger")
    decision = Queueing(0.02).start(LIMITS).decide(stranger)
    assert (decision.action, decision.missing) == (Action.HOLD, ("network",))


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [({"target_seconds": 0.0}, "target_seconds"), ({"cores": 0}, "cores"), ({"margin": -0.1}, "margin")],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float], rule: str) -> None:
    with pytest.raises(UserError, match=f"queueing: {rule} must be"):
        Queueing(**{"target_seconds": 1.0, **wrong})  # type: ignore[arg-type]
