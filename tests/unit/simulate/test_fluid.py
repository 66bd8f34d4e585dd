"""The fluid simulation against cases computed by hand: overload, draining, pauses, late instances, backpressure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from lab.keys import UniformKeys
from lab.network import ContendedSubquery, Network, NetworkSimulator, Run, Source, one, simulate
from tidegate.control.controller import Decision, Limits, hold, resize
from tidegate.control.events import Event, Stepped
from tidegate.control.observation import DataflowEdge, Observation
from tidegate.control.rules import Rule, Rules
from tidegate.errors import UserError
from tidegate.simulate.loads import ConstantLoad, RampLoad, SineLoad, StepLoad
from tidegate.simulate.model import JoinWindow, Noise, ReconfigurationCost, SimulatedQuery, SubqueryModel, ZipfKeys
from tidegate.simulate.run import SimulationSettings
from tidegate.simulate.run import simulate as simulate_query

LIMITS = Limits(1, 64)


@dataclass(frozen=True)
class Plan:
    """A controller that does at given times what it is told to."""

    steps: dict[float, int]
    mapping: tuple[int, ...] | None = None
    name: str = "plan"

    def start(self, limits: Limits) -> Plan:
        return self

    def decide(self, observation: Observation) -> Decision:
        after = self.steps.get(observation.time_seconds)
        if after is None:
            return hold(observation, "not planned")
        return resize(observation, after, "planned", mapping=self.mapping)


@dataclass
class Seen:
    """Observations, as they are recorded."""

    observations: list[Observation] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Stepped):
            self.observations.append(event.observation)


def seconds(run: Run, time: float) -> int:
    """The row of the tick that ends at a time."""
    return round(time / run.tick_seconds) - 1


def test_constant_overload_grows_the_backlog_linearly() -> None:
    """150 tuples/s for an instance that does 100: 50 more wait each second."""
    run = simulate(one(SubqueryModel("q", 0.01), ConstantLoad(150)), None, SimulationSettings(100))
    assert run.only.backlog == pytest.approx(50 * run.times)
    assert run.only.processed == pytest.approx(100)
    assert run.only.utilisation == pytest.approx(1)


def test_a_backlog_drains_when_it_should() -> None:
    """300/s for 10 s leaves 2,000 for an instance that does 100/s; at 20/s more, that takes 25 s: until 35 s."""
    run = simulate(one(SubqueryModel("q", 0.01), StepLoad(((10, 300), (90, 20)))), None, SimulationSettings(100))
    backlog = run.only.backlog
    assert backlog[seconds(run, 10)] == pytest.approx(2_000)
    assert backlog[seconds(run, 34)] == pytest.approx(80)
    assert backlog[seconds(run, 35)] == pytest.approx(0)
    assert run.only.processed[seconds(run, 36)] == pytest.approx(20)


@pytest.mark.parametrize("pause", [0.5, 3.0, 7.25])
def test_a_pause_costs_what_it_should(pause: float) -> None:
    """60/s go on arriving while nothing is done, and the instances, 200/s then, work that off at 140/s."""
    subquery = SubqueryModel("q", 0.01, cost=ReconfigurationCost(pause_seconds=pause))
    run = simulate(one(subquery, ConstantLoad(60)), Rule(Plan({20: 2}), LIMITS), SimulationSettings(60))
    backlog = run.only.backlog
    whole = int(pause)
    assert backlog[seconds(run, 20)] == 0
    if whole:
        assert backlog[seconds(run, 20 + whole)] == pytest.approx(60 * whole)
    left = 60 * (whole + 1) - 200 * (1 - (pause - whole))
    assert backlog[seconds(run, 21 + whole)] == pytest.approx(max(left, 0))
    until_drained = np.flatnonzero(backlog > 1e-6)
    drained_at = 20 + pause + 60 * pause / 140
    assert run.times[until_drained[-1]] < drained_at <= run.times[until_drained[-1]] + 1 if len(until_drained) else True
    assert run.only.instances[seconds(run, 21)] == 2


def test_late_instances_come_late_and_are_paid_from_their_order_on() -> None:
    subquery = SubqueryModel("q", 0.01, cost=ReconfigurationCost(start_seconds=30))
    run = simulate(one(subquery, ConstantLoad(50)), Rule(Plan({20: 3, 80: 2}), LIMITS), SimulationSettings(100))
    working, paid = run.only.instances, run.only.paid
    assert working[seconds(run, 50)] == 1
    assert working[seconds(run, 51)] == 3
    assert paid[seconds(run, 20)] == 1
    assert working[seconds(run, 81)] == 2, "taking away needs no wait"
    assert float(paid.sum()) == 1 * 20 + 3 * 60 + 2 * 20


def test_what_is_on_order_can_be_called_off() -> None:
    subquery = SubqueryModel("q", 0.01, cost=ReconfigurationCost(start_seconds=30))
    simulator = NetworkSimulator(one(subquery, ConstantLoad(50)), {"q": 2}, SimulationSettings(100))
    assert simulator.reconfigure("q", 3, None).seconds == 30
    assert simulator.reconfigure("q", 3, None).note == "already under way"
    assert simulator.reconfigure("q", 2, None).note == "what is on order is called off"
    simulator.run({})
    assert set(simulator.flows["q"].history.paid.tolist()) == {2}


def test_what_is_on_order_comes_when_it_was_due_whatever_is_ordered_after_it() -> None:
    """Two more ordered at 20 s are there at 50 s; of three more ordered at 30 s, one is called off at 40 s."""
    subquery = SubqueryModel("q", 0.01, cost=ReconfigurationCost(start_seconds=30))
    run = simulate(
        one(subquery, ConstantLoad(50)), Rule(Plan({20: 3, 30: 6, 40: 5, 45: 7}), LIMITS), SimulationSettings(100)
    )
    working, paid = run.only.instances, run.only.paid
    changes = (np.flatnonzero(np.diff(working)) + 1).tolist()
    assert [(at, working[at]) for at in changes] == [(50, 3), (60, 5), (75, 7)]
    changes = (np.flatnonzero(np.diff(paid)) + 1).tolist()
    assert [(at, paid[at]) for at in changes] == [(20, 3), (30, 6), (40, 5), (45, 7)]


def test_fewer_than_there_are_leave_at_once_and_nothing_on_order_comes() -> None:
    subquery = SubqueryModel("q", 0.01, cost=ReconfigurationCost(start_seconds=30))
    run = simulate(
        one(subquery, ConstantLoad(50)), Rule(Plan({20: 6, 30: 8, 40: 2}), LIMITS), SimulationSettings(100, start=3)
    )
    assert set(run.only.instances[:40].tolist()) == {3}
    assert set(run.only.instances[40:].tolist()) == {2}
    assert set(run.only.paid[40:].tolist()) == {2}


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("keys", [None, ZipfKeys(keys=500, exponent=0.8, shuffles_per_minute=3)])
def test_nothing_is_lost_and_nothing_is_made_up(waits: bool, keys: ZipfKeys | None) -> None:
    """Over a network with reconfigurations: arrived = processed + waiting, for every subquery at every tick."""
    cost = ReconfigurationCost(pause_seconds=1.5, start_seconds=7)
    first = SubqueryModel("first", 0.004, keys=keys, cost=cost)
    second = SubqueryModel("second", 0.01, keys=keys, shards=64, cost=replace(cost, pause_seconds=0.4))
    third = ContendedSubquery("third", 0.002, downstream_limit=RampLoad(((0, 400), (200, 100))))
    network = Network(
        (third, second, first),
        (Source("first", SineLoad(600, 500, 90), waits), Source("third", ConstantLoad(50), waits)),
        (
            DataflowEdge("first", "second", 0.5),
            DataflowEdge("first", "third", 0.3),
            DataflowEdge("second", "third", 0.7),
        ),
        noise=Noise(arrivals=1.0),
    )
    run = simulate(network, Rule(Plan({20: 4, 60: 2, 100: 9, 200: 3}), LIMITS), SimulationSettings(300, seed=4))
    taken_in = {name: np.cumsum(history.admitted) for name, history in run.subqueries.items()}
    done = {name: np.cumsum(history.processed) for name, history in run.subqueries.items()}
    made = {"first": np.cumsum(run["first"].offered), "third": 50.0}
    assert taken_in["second"] == pytest.approx(0.5 * done["first"])
    assert taken_in["second"] == pytest.approx(done["second"] + run["second"].backlog)
    if waits:
        assert made["first"] == pytest.approx(done["first"] + run["first"].backlog)
    else:
        assert taken_in["first"] == pytest.approx(done["first"] + run["first"].backlog)
        assert (run["first"].admitted <= run["first"].offered + 1e-9).all()
    assert all(history.backlog.min() >= 0 for history in run.subqueries.values())
    assert run["third"].processed.max() <= 400


def test_a_source_that_slows_down_is_blocked_for_the_share_it_cannot_send() -> None:
    """200/s offered and 100/s handled: half of the time is spent waiting to send, once the buffer of 500 is full."""
    run = simulate(
        one(SubqueryModel("q", 0.01, buffer_tuples=500), ConstantLoad(200), waits=False), None, SimulationSettings(60)
    )
    assert run.only.backlog[seconds(run, 60)] == pytest.approx(500)
    assert run.only.congestion[seconds(run, 4)] == 0
    assert run.only.congestion[seconds(run, 30)] == pytest.approx(0.5)
    assert run.only.admitted[seconds(run, 30)] == pytest.approx(100)


def test_a_source_that_waits_is_blocked_as_long_as_it_has_a_queue() -> None:
    run = simulate(
        one(SubqueryModel("q", 0.01, buffer_tuples=500), StepLoad(((20, 150), (80, 50)))), None, SimulationSettings(100)
    )
    congestion = run.only.congestion
    assert congestion[seconds(run, 10)] == 0, "the buffer takes 10 s to fill"
    assert congestion[seconds(run, 15)] == 1
    assert congestion[seconds(run, 60)] == 0


def test_one_full_buffer_stops_everybody() -> None:
    """All tuples have one key, so four instances are worth one."""
    subquery = SubqueryModel("q", 0.01, keys=UniformKeys(1), shards=16)
    run = simulate(one(subquery, ConstantLoad(300), waits=False), None, SimulationSettings(60, start=4))
    assert run.only.processed[-1] == pytest.approx(100)
    assert run.only.busiest[-1] == pytest.approx(1)
    assert run.only.utilisation[-1] == pytest.approx(0.25)


def test_a_slow_subquery_slows_down_the_one_before_it() -> None:
    network = Network(
        (SubqueryModel("fast", 0.001), SubqueryModel("slow", 0.02)),
        (Source("fast", ConstantLoad(400), waits=False),),
        (DataflowEdge("fast", "slow", 0.5),),
    )
    run = simulate(network, None, SimulationSettings(120))
    assert run["slow"].processed[-1] == pytest.approx(50)
    assert run["fast"].processed[-1] == pytest.approx(100), "two of its tuples make one for the slow one"
    assert run["fast"].admitted[-1] == pytest.approx(100)
    assert run["slow"].congestion[-1] > 0
    assert run["fast"].congestion[-1] == pytest.approx(0.75)


def test_congestion_downstream_is_not_mended_by_instances() -> None:
    subquery = ContendedSubquery("q", 0.01, downstream_limit=ConstantLoad(150))
    run = simulate(
        one(subquery, ConstantLoad(400), waits=False), Rule(Plan({30: 8}), LIMITS), SimulationSettings(90, start=2)
    )
    assert run.only.processed[seconds(run, 30)] == pytest.approx(150)
    assert run.only.processed[-1] == pytest.approx(150)
    assert run.only.congestion[-1] == pytest.approx(1 - 150 / 400)


@pytest.mark.parametrize(
    ("serial_share", "crosstalk", "worth"), [(0.0, 0.0, 8.0), (0.1, 0.0, 8 / 1.7), (0.1, 0.01, 8 / 2.26)]
)
def test_instances_are_worth_what_the_scalability_law_says(serial_share: float, crosstalk: float, worth: float) -> None:
    subquery = ContendedSubquery("q", 0.01, serial_share=serial_share, crosstalk=crosstalk)
    run = simulate(one(subquery, ConstantLoad(5_000)), None, SimulationSettings(20, start=8))
    assert run.only.processed[-1] == pytest.approx(100 * worth)


def test_windows_fill_and_cost_more_the_fuller_they_are() -> None:
    """100/s in a window of 20 s hold 2,000; half of a tuple's comparisons per held tuple: 1,000 of 1 µs each."""
    window = JoinWindow(20, 1e-6)
    seen = Seen()
    network = one(SubqueryModel("join", 0.001, window=window), StepLoad(((50, 100), (50, 40))))
    run = simulate(network, Rule(Plan({}), LIMITS), SimulationSettings(100), record=seen)
    cost = 1 / run.only.service_rate
    assert cost[seconds(run, 10)] == pytest.approx(0.001 + 0.5 * 1_000 * 1e-6)
    assert cost[seconds(run, 20)] == cost[seconds(run, 50)] == pytest.approx(0.001 + 0.5 * 2_000 * 1e-6)
    assert cost[seconds(run, 60)] == pytest.approx(0.001 + 0.5 * (1_000 + 400) * 1e-6), "half new, half old"
    assert cost[seconds(run, 70)] == pytest.approx(0.001 + 0.5 * 800 * 1e-6)
    (at_40,) = [each for each in seen.observations if each.time_seconds == 40]
    assert at_40.window_inputs is not None
    assert [(each.rate, each.held, each.window_seconds) for each in at_40.window_inputs] == [(50, 1_000, 20)] * 2
    assert at_40.comparisons == pytest.approx(50 * 1_000 + 50 * 1_000)


def test_what_a_lagging_join_holds_is_counted_in_event_time() -> None:
    """A pause of 10 s must not make the window forget what is still to be compared."""
    subquery = SubqueryModel("join", 0.0001, window=JoinWindow(20, 1e-9), cost=ReconfigurationCost(pause_seconds=10))
    run = simulate(one(subquery, ConstantLoad(100)), Rule(Plan({50: 2}), LIMITS), SimulationSettings(100))
    cost = 1 / run.only.service_rate
    assert cost[seconds(run, 50)] == pytest.approx(cost[seconds(run, 58)]) == pytest.approx(cost[seconds(run, 90)])


def test_the_same_seed_gives_the_same_run() -> None:
    network = one(
        SubqueryModel("q", 0.01, keys=ZipfKeys(shuffles_per_minute=4)),
        SineLoad(500, 300, 60),
        noise=Noise(0.1, 0.1, 0.1, 0.1, arrivals=1.0),
    )

    def observed(seed: int) -> tuple[list[Observation], Run]:
        seen = Seen()
        return seen.observations, simulate(
            network, Rule(Plan({30: 9}), LIMITS), SimulationSettings(60, seed=seed), record=seen
        )

    first, again, other = observed(1), observed(1), observed(2)
    assert first[0] == again[0] != other[0]
    assert np.array_equal(first[1].only.backlog, again[1].only.backlog)


def test_at_its_capacity_a_subquery_falls_behind_as_the_root_of_time() -> None:
    """Arrivals of variance λ against a service of λ: a reflected walk, whose mean after t is √(2·λ·t/π).

    After 400 s at 100/s that is 160, with a standard deviation of 0.6·√(λ·t) = 120; over 60 runs, 16.
    """
    network = one(SubqueryModel("q", 0.01), ConstantLoad(100), noise=Noise(arrivals=1.0))
    ends = [simulate(network, None, SimulationSettings(400, seed=seed)).only.backlog[-1] for seed in range(60)]
    assert np.mean(ends) == pytest.approx(160, abs=3 * 16)


def test_noise_is_zero_on_average() -> None:
    """2,000 periods with noise of 20 %: their mean is off by less than four times 20 %/√2,000 = 1.8 %."""
    seen = Seen()
    network = one(SubqueryModel("q", 0.001), ConstantLoad(300), noise=Noise(rates=0.2, busy=0.2, latency=0.2))
    simulate(network, Rule(Plan({}), LIMITS), SimulationSettings(10_000, seed=9), record=seen)
    for read, true in (
        (lambda each: each.offered, 300.0),
        (lambda each: each.processed, 300.0),
        (lambda each: each.utilisation, 0.3),
        (lambda each: each.latency_seconds, 1 / 700),
    ):
        values = np.array([read(each) for each in seen.observations])
        assert values.std() == pytest.approx(0.2 * true, rel=0.15)
        assert values.mean() == pytest.approx(true, rel=0.018)


def test_observations_tell_the_truth_without_noise() -> None:
    seen = Seen()
    network = Network(
        (SubqueryModel("a", 0.002, keys=UniformKeys(), shards=32), SubqueryModel("b", 0.01)),
        (Source("a", ConstantLoad(1_000)),),
        (DataflowEdge("a", "b", 0.2),),
    )
    simulate(network, Rule(Plan({}), LIMITS), SimulationSettings(10, start=4), record=seen)
    a, b = seen.observations[-2:]
    assert (a.subquery, a.time_seconds, a.period_seconds, a.instances) == ("a", 10, 5, 4)
    assert a.offered == a.admitted == a.demand == 1_000
    assert a.processed == pytest.approx(1_000)
    assert a.service_rate == pytest.approx(500)
    assert sum(a.shard_loads or ()) == pytest.approx(1_000)
    assert a.mapping == tuple(shard % 4 for shard in range(32))
    assert a.network_arrival_rate == 1_000
    assert b.offered is None
    assert b.demand == pytest.approx(200)
    assert b.utilisation == pytest.approx(0.5)
    assert b.backlog == b.congestion == 0


def test_a_mapping_is_put_into_force_or_refused() -> None:
    subquery = SubqueryModel("q", 0.001, keys=UniformKeys(), shards=4)
    seen = Seen()
    run = simulate(
        one(subquery, ConstantLoad(50)), Rule(Plan({5: 2}, (1, 0, 0, 0)), LIMITS), SimulationSettings(20), record=seen
    )
    assert seen.observations[-1].mapping == (1, 0, 0, 0)
    assert [each.accepted for each in run.decisions] == [True]
    run = simulate(one(subquery, ConstantLoad(50)), Rule(Plan({5: 2}, (2, 0, 0, 0)), LIMITS), SimulationSettings(20))
    assert run.only.instances[-1] == 1
    assert [each.accepted for each in run.decisions] == [False]


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: SubqueryModel("q", 0), "service_seconds must be more than 0"),
        (lambda: SubqueryModel("q", 1, shards=0), "shards must be more than 0"),
        (lambda: JoinWindow(0, 1), "window_seconds"),
        (lambda: ReconfigurationCost(pause_seconds=-1), "pause_seconds must be 0 or more"),
        (lambda: Noise(busy=-1), "busy must be 0 or more"),
        (lambda: Network((), ()), "names of subqueries"),
        (lambda: Network((SubqueryModel("q", 1),), ()), "give one or more"),
        (lambda: Network((SubqueryModel("q", 1),), (Source("r", ConstantLoad(1)),)), "no subquery is called 'r'"),
        (
            lambda: Network((SubqueryModel("q", 1), SubqueryModel("r", 1)), (Source("q", ConstantLoad(1)),)),
            "nothing feeds subquery 'r'",
        ),
        (lambda: replace(one(SubqueryModel("q", 1), ConstantLoad(1)), feeds=(DataflowEdge("q", "q"),)), "is a cycle"),
        (lambda: replace(one(SubqueryModel("q", 1), ConstantLoad(1)), feeds=(DataflowEdge(None, "q"),)), "is a Source"),
        (lambda: SimulationSettings(100, period_seconds=5, tick_seconds=2), "whole number of ticks"),
        (lambda: SimulationSettings(3), "period_seconds"),
        (
            lambda: simulate(
                one(SubqueryModel("q", 1), ConstantLoad(1)),
                Rules(Rule(), (("r", Rule(Plan({}))),)),
                SimulationSettings(10),
            ),
            "no subquery 'r'",
        ),
    ],
)
def test_a_network_that_means_nothing_is_refused(make: Callable[[], object], part: str) -> None:
    with pytest.raises(UserError, match=part):
        make()


def test_a_query_of_one_subquery_is_a_network_of_one() -> None:
    """The command's simulator and that of networks give the same run, here with keys, noise and late instances."""
    subquery = SubqueryModel("q", 0.01, keys=ZipfKeys(500), cost=ReconfigurationCost(1.0, start_seconds=7.0))
    load, noise = SineLoad(500, 300, 60), Noise(0.1, 0.1, 0.1, 0.1, arrivals=1.0)
    rule, settings = Rule(Plan({30: 9, 70: 4}), LIMITS), SimulationSettings(120, seed=5)
    alone = simulate_query(SimulatedQuery(subquery, load, noise=noise), rule, settings)
    network = simulate(one(subquery, load, noise=noise), rule, settings)
    assert np.array_equal(alone.history.instances, network.only.instances)
    assert np.array_equal(alone.history.latency, network.only.latency)


def test_a_summary_counts_changes_lateness_and_cost() -> None:
    """One instance does 100 of 150/s for 20 s; two of them from then on work off what waits, until one is enough."""
    query = SimulatedQuery(SubqueryModel("q", 0.01), StepLoad(((40, 150), (60, 50))))
    run = simulate_query(query, Rule(Plan({20: 2, 80: 1}), LIMITS), SimulationSettings(100))
    found = run.summary(target_seconds=1.0)
    assert (found.changes, found.reversals) == (2, 1)
    assert found.instance_seconds == 1 * 20 + 2 * 60 + 1 * 20
    assert 0.1 < found.late_time == float((run.history.latency > 1.0).mean()) < 0.9
    assert found.late_tuples > 0.1
    assert found.refused == 0
    slowed = simulate_query(replace(query, waits=False), None, SimulationSettings(100)).summary(1.0)
    assert slowed.refused > 0
