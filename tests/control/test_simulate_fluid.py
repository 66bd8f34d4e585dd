"""The fluid simulation against cases computed by hand: overload, draining, pauses, late instances, backpressure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tidegate.control.controller import Limits
from tidegate.control.decision import Decision, hold, resize
from tidegate.control.demand import Feed
from tidegate.control.events import Event, Observed
from tidegate.control.observation import OBSERVED, Observation
from tidegate.control.rules import Rule, Rules
from tidegate.errors import UserError
from tidegate.simulate.fluid import Fluid
from tidegate.simulate.history import Run
from tidegate.simulate.keys import UniformKeys, ZipfKeys
from tidegate.simulate.loads import Constant, Ramp, Sine, Step
from tidegate.simulate.network import (
    JoinWindow,
    Network,
    Noise,
    ReconfigurationCost,
    Source,
    Stops,
    Subquery,
    one,
)
from tidegate.simulate.run import Settings, World, simulate

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
            return hold(observation.subquery, observation.instances, "not planned")
        return resize(observation.subquery, observation.instances, after, "planned", mapping=self.mapping)


@dataclass
class Seen:
    """Observations, as they are recorded."""

    observations: list[Observation] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Observed):
            self.observations.append(event.observation)


def seconds(run: Run, time: float) -> int:
    """The row of the tick that ends at a time."""
    return round(time / run.tick_seconds) - 1


def test_constant_overload_grows_the_backlog_linearly() -> None:
    """150 tuples/s for an instance that does 100: 50 more wait each second."""
    run = simulate(one(Subquery("q", 0.01), Constant(150)), None, Settings(100))
    assert run.only.backlog == pytest.approx(50 * run.times)
    assert run.only.processed == pytest.approx(100)
    assert run.only.utilisation == pytest.approx(1)


def test_a_backlog_drains_when_it_should() -> None:
    """300/s for 10 s leaves 2,000 for an instance that does 100/s; at 20/s more, that takes 25 s: until 35 s."""
    run = simulate(one(Subquery("q", 0.01), Step(((10, 300), (90, 20)))), None, Settings(100))
    backlog = run.only.backlog
    assert backlog[seconds(run, 10)] == pytest.approx(2_000)
    assert backlog[seconds(run, 34)] == pytest.approx(80)
    assert backlog[seconds(run, 35)] == pytest.approx(0)
    assert run.only.processed[seconds(run, 36)] == pytest.approx(20)


@pytest.mark.parametrize("pause", [0.5, 3.0, 7.25])
def test_a_pause_costs_what_it_should(pause: float) -> None:
    """60/s go on arriving while nothing is done, and the instances, 200/s then, work that off at 140/s."""
    subquery = Subquery("q", 0.01, cost=ReconfigurationCost(pause_seconds=pause))
    run = simulate(one(subquery, Constant(60)), Rule(Plan({20: 2}), LIMITS), Settings(60))
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


def test_bytes_moved_take_their_time() -> None:
    """From 2 to 4 instances, 4 of 8 shards move, 1,000 bytes each at 1 ms a byte: 4 s in which nothing is done."""
    cost = ReconfigurationCost(seconds_per_byte=0.001)
    subquery = Subquery("q", 0.01, keys=UniformKeys(1_000), shards=8, state_bytes=1_000, cost=cost, buffer_tuples=1e6)
    run = simulate(one(subquery, Constant(100)), Rule(Plan({10: 4}), LIMITS), Settings(40, start=2))
    assert run.state_bytes_moved == {"q": 4_000}
    stopped = run.times[run.only.processed == 0]
    assert stopped.tolist() == [11, 12, 13, 14]


def test_moved_shards_alone_can_stop() -> None:
    """Half of the shards move and stand still for 3 s; the others, about half of the tuples, go on."""
    cost = ReconfigurationCost(pause_seconds=3, stops=Stops.SHARDS)
    subquery = Subquery("q", 0.001, keys=UniformKeys(100_000), shards=8, cost=cost, buffer_tuples=1e6)
    run = simulate(one(subquery, Constant(100)), Rule(Plan({10: 4}), LIMITS), Settings(40, start=2))
    assert run.only.processed[seconds(run, 10)] == pytest.approx(100)
    assert run.only.processed[seconds(run, 11)] == pytest.approx(50, rel=0.05)
    assert run.only.backlog[seconds(run, 13)] == pytest.approx(150, rel=0.05)
    assert run.only.backlog[seconds(run, 14)] == 0


def test_late_instances_come_late_and_are_paid_from_their_order_on() -> None:
    subquery = Subquery("q", 0.01, cost=ReconfigurationCost(start_seconds=30))
    run = simulate(one(subquery, Constant(50)), Rule(Plan({20: 3, 80: 2}), LIMITS), Settings(100))
    working, paid = run.only.instances, run.only.paid
    assert working[seconds(run, 50)] == 1
    assert working[seconds(run, 51)] == 3
    assert paid[seconds(run, 20)] == 1
    assert working[seconds(run, 81)] == 2, "taking away needs no wait"
    assert float(paid.sum()) == 1 * 20 + 3 * 60 + 2 * 20


def test_what_is_on_order_can_be_called_off() -> None:
    subquery = Subquery("q", 0.01, cost=ReconfigurationCost(start_seconds=30))
    fluid = Fluid(one(subquery, Constant(50)), {"q": 2}, ticks=100, tick_seconds=1.0, seed=0)
    world = World(fluid)
    assert world.reconfigure("q", 3, None).seconds == 30
    assert world.reconfigure("q", 3, None).note == "already under way"
    assert world.reconfigure("q", 2, None).note == "what is on order is called off"
    for index in range(100):
        fluid.tick(index)
    assert set(fluid.history["q"].paid.tolist()) == {2}


def test_what_is_on_order_comes_when_it_was_due_whatever_is_ordered_after_it() -> None:
    """Two more ordered at 20 s are there at 50 s; of three more ordered at 30 s, one is called off at 40 s."""
    subquery = Subquery("q", 0.01, cost=ReconfigurationCost(start_seconds=30))
    run = simulate(one(subquery, Constant(50)), Rule(Plan({20: 3, 30: 6, 40: 5, 45: 7}), LIMITS), Settings(100))
    working, paid = run.only.instances, run.only.paid
    changes = (np.flatnonzero(np.diff(working)) + 1).tolist()
    assert [(at, working[at]) for at in changes] == [(50, 3), (60, 5), (75, 7)]
    changes = (np.flatnonzero(np.diff(paid)) + 1).tolist()
    assert [(at, paid[at]) for at in changes] == [(20, 3), (30, 6), (40, 5), (45, 7)]


def test_fewer_than_there_are_leave_at_once_and_nothing_on_order_comes() -> None:
    subquery = Subquery("q", 0.01, cost=ReconfigurationCost(start_seconds=30))
    run = simulate(one(subquery, Constant(50)), Rule(Plan({20: 6, 30: 8, 40: 2}), LIMITS), Settings(100, start=3))
    assert set(run.only.instances[:40].tolist()) == {3}
    assert set(run.only.instances[40:].tolist()) == {2}
    assert set(run.only.paid[40:].tolist()) == {2}


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("keys", [None, ZipfKeys(keys=500, exponent=0.8, shuffles_per_minute=3)])
def test_nothing_is_lost_and_nothing_is_made_up(waits: bool, keys: ZipfKeys | None) -> None:
    """Over a network with reconfigurations: arrived = processed + waiting, for every subquery at every tick."""
    cost = ReconfigurationCost(pause_seconds=1.5, start_seconds=7)
    first = Subquery("first", 0.004, keys=keys, cost=cost)
    second = Subquery("second", 0.01, keys=keys, shards=64, cost=replace(cost, stops=Stops.SHARDS))
    third = Subquery("third", 0.002, downstream_limit=Ramp(((0, 400), (200, 100))))
    network = Network(
        (third, second, first),
        (Source("first", Sine(600, 500, 90), waits), Source("third", Constant(50), waits)),
        (Feed("first", "second", 0.5), Feed("first", "third", 0.3), Feed("second", "third", 0.7)),
        noise=Noise(arrivals=1.0),
    )
    run = simulate(network, Rule(Plan({20: 4, 60: 2, 100: 9, 200: 3}), LIMITS), Settings(300, seed=4))
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
    run = simulate(one(Subquery("q", 0.01, buffer_tuples=500), Constant(200), waits=False), None, Settings(60))
    assert run.only.backlog[seconds(run, 60)] == pytest.approx(500)
    assert run.only.congestion[seconds(run, 4)] == 0
    assert run.only.congestion[seconds(run, 30)] == pytest.approx(0.5)
    assert run.only.admitted[seconds(run, 30)] == pytest.approx(100)


def test_a_source_that_waits_is_blocked_as_long_as_it_has_a_queue() -> None:
    run = simulate(one(Subquery("q", 0.01, buffer_tuples=500), Step(((20, 150), (80, 50)))), None, Settings(100))
    congestion = run.only.congestion
    assert congestion[seconds(run, 10)] == 0, "the buffer takes 10 s to fill"
    assert congestion[seconds(run, 15)] == 1
    assert congestion[seconds(run, 60)] == 0


def test_one_full_buffer_stops_everybody() -> None:
    """All tuples have one key, so four instances are worth one."""
    subquery = Subquery("q", 0.01, keys=UniformKeys(1), shards=16)
    run = simulate(one(subquery, Constant(300), waits=False), None, Settings(60, start=4))
    assert run.only.processed[-1] == pytest.approx(100)
    assert run.only.busiest[-1] == pytest.approx(1)
    assert run.only.utilisation[-1] == pytest.approx(0.25)


def test_a_slow_subquery_slows_down_the_one_before_it() -> None:
    network = Network(
        (Subquery("fast", 0.001), Subquery("slow", 0.02)),
        (Source("fast", Constant(400), waits=False),),
        (Feed("fast", "slow", 0.5),),
    )
    run = simulate(network, None, Settings(120))
    assert run["slow"].processed[-1] == pytest.approx(50)
    assert run["fast"].processed[-1] == pytest.approx(100), "two of its tuples make one for the slow one"
    assert run["fast"].admitted[-1] == pytest.approx(100)
    assert run["slow"].congestion[-1] > 0
    assert run["fast"].congestion[-1] == pytest.approx(0.75)


def test_congestion_downstream_is_not_mended_by_instances() -> None:
    subquery = Subquery("q", 0.01, downstream_limit=Constant(150))
    run = simulate(one(subquery, Constant(400), waits=False), Rule(Plan({30: 8}), LIMITS), Settings(90, start=2))
    assert run.only.processed[seconds(run, 30)] == pytest.approx(150)
    assert run.only.processed[-1] == pytest.approx(150)
    assert run.only.congestion[-1] == pytest.approx(1 - 150 / 400)


@pytest.mark.parametrize(
    ("serial_share", "crosstalk", "worth"), [(0.0, 0.0, 8.0), (0.1, 0.0, 8 / 1.7), (0.1, 0.01, 8 / 2.26)]
)
def test_instances_are_worth_what_the_scalability_law_says(serial_share: float, crosstalk: float, worth: float) -> None:
    subquery = Subquery("q", 0.01, serial_share=serial_share, crosstalk=crosstalk)
    run = simulate(one(subquery, Constant(5_000)), None, Settings(20, start=8))
    assert run.only.processed[-1] == pytest.approx(100 * worth)


def test_windows_fill_and_cost_more_the_fuller_they_are() -> None:
    """100/s in a window of 20 s hold 2,000; half of a tuple's comparisons per held tuple: 1,000 of 1 µs each."""
    window = JoinWindow(20, 1e-6)
    seen = Seen()
    network = one(Subquery("join", 0.001, window=window), Step(((50, 100), (50, 40))))
    run = simulate(network, Rule(Plan({}), LIMITS), Settings(100), record=seen)
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
    subquery = Subquery("join", 0.0001, window=JoinWindow(20, 1e-9), cost=ReconfigurationCost(pause_seconds=10))
    run = simulate(one(subquery, Constant(100)), Rule(Plan({50: 2}), LIMITS), Settings(100))
    cost = 1 / run.only.service_rate
    assert cost[seconds(run, 50)] == pytest.approx(cost[seconds(run, 58)]) == pytest.approx(cost[seconds(run, 90)])


def test_the_same_seed_gives_the_same_run() -> None:
    network = one(
        Subquery("q", 0.01, keys=ZipfKeys(shuffles_per_minute=4)),
        Sine(500, 300, 60),
        noise=Noise(0.1, 0.1, 0.1, 0.1, arrivals=1.0),
    )

    def observed(seed: int) -> tuple[list[Observation], Run]:
        seen = Seen()
        return seen.observations, simulate(network, Rule(Plan({30: 9}), LIMITS), Settings(60, seed=seed), record=seen)

    first, again, other = observed(1), observed(1), observed(2)
    assert first[0] == again[0] != other[0]
    assert np.array_equal(first[1].only.backlog, again[1].only.backlog)


def test_at_its_capacity_a_subquery_falls_behind_as_the_root_of_time() -> None:
    """Arrivals of variance λ against a service of λ: a reflected walk, whose mean after t is √(2·λ·t/π).

    After 400 s at 100/s that is 160, with a standard deviation of 0.6·√(λ·t) = 120; over 60 runs, 16.
    """
    network = one(Subquery("q", 0.01), Constant(100), noise=Noise(arrivals=1.0))
    ends = [simulate(network, None, Settings(400, seed=seed)).only.backlog[-1] for seed in range(60)]
    assert np.mean(ends) == pytest.approx(160, abs=3 * 16)


def test_noise_is_zero_on_average() -> None:
    """2,000 periods with noise of 20 %: their mean is off by less than four times 20 %/√2,000 = 1.8 %."""
    seen = Seen()
    network = one(Subquery("q", 0.001), Constant(300), noise=Noise(rates=0.2, busy=0.2, latency=0.2))
    simulate(network, Rule(Plan({}), LIMITS), Settings(10_000, seed=9), record=seen)
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
        (Subquery("a", 0.002, keys=UniformKeys(), shards=32, state_bytes=7), Subquery("b", 0.01)),
        (Source("a", Constant(1_000)),),
        (Feed("a", "b", 0.2),),
    )
    simulate(network, Rule(Plan({}), LIMITS), Settings(10, start=4), record=seen)
    a, b = seen.observations[-2:]
    assert (a.subquery, a.time_seconds, a.period_seconds, a.instances) == ("a", 10, 5, 4)
    assert a.offered == a.admitted == a.demand == 1_000
    assert a.processed == pytest.approx(1_000)
    assert a.service_rate == pytest.approx(500)
    assert sum(a.shard_loads or ()) == pytest.approx(1_000)
    assert a.shard_state_bytes == (7,) * 32
    assert a.mapping == tuple(shard % 4 for shard in range(32))
    assert a.network_arrival_rate == 1_000
    assert b.offered is None
    assert b.demand == pytest.approx(200)
    assert b.utilisation == pytest.approx(0.5)
    assert b.backlog == b.congestion == 0


@pytest.mark.parametrize("name", OBSERVED)
def test_what_is_withheld_is_not_observed(name: str) -> None:
    seen = Seen()
    network = replace(one(Subquery("q", 0.01, keys=UniformKeys()), Constant(50)), withheld=frozenset({name}))
    simulate(network, Rule(Plan({}), LIMITS), Settings(20), record=seen)
    assert [getattr(each, name) for each in seen.observations] == [None] * 4


def test_who_withholds_rates_withholds_what_follows_from_them() -> None:
    seen = Seen()
    network = replace(one(Subquery("q", 0.01), Constant(50)), withheld=frozenset({"offered"}))
    simulate(network, Rule(Plan({}), LIMITS), Settings(20), record=seen)
    assert seen.observations[-1].demand is None


def test_a_mapping_is_put_into_force_or_refused() -> None:
    subquery = Subquery("q", 0.001, keys=UniformKeys(), shards=4)
    seen = Seen()
    run = simulate(one(subquery, Constant(50)), Rule(Plan({5: 2}, (1, 0, 0, 0)), LIMITS), Settings(20), record=seen)
    assert seen.observations[-1].mapping == (1, 0, 0, 0)
    assert [each.accepted for each in run.decisions] == [True]
    run = simulate(one(subquery, Constant(50)), Rule(Plan({5: 2}, (2, 0, 0, 0)), LIMITS), Settings(20))
    assert run.only.instances[-1] == 1
    assert [each.accepted for each in run.decisions] == [False]


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: Subquery("q", 0), "service_seconds must be more than 0"),
        (lambda: Subquery("q", 1, shards=0), "shards must be 1 or more"),
        (lambda: JoinWindow(0, 1), "window_seconds"),
        (lambda: ReconfigurationCost(pause_seconds=-1), "pause_seconds must be 0 or more"),
        (lambda: Noise(busy=-1), "busy must be 0 or more"),
        (lambda: Network((), ()), "names of subqueries"),
        (lambda: Network((Subquery("q", 1),), ()), "give one or more"),
        (lambda: Network((Subquery("q", 1),), (Source("r", Constant(1)),)), "no subquery is called 'r'"),
        (
            lambda: Network((Subquery("q", 1), Subquery("r", 1)), (Source("q", Constant(1)),)),
            "nothing feeds subquery 'r'",
        ),
        (lambda: replace(one(Subquery("q", 1), Constant(1)), feeds=(Feed("q", "q"),)), "is a cycle"),
        (lambda: replace(one(Subquery("q", 1), Constant(1)), feeds=(Feed(None, "q"),)), "is a Source"),
        (lambda: replace(one(Subquery("q", 1), Constant(1)), withheld=frozenset({"mood"})), "cannot withhold 'mood'"),
        (lambda: Settings(100, period_seconds=5, tick_seconds=2), "whole number of ticks"),
        (lambda: Settings(3), "period_seconds"),
        (
            lambda: simulate(one(Subquery("q", 1), Constant(1)), Rules.by_name({"r": Rule(Plan({}))}), Settings(10)),
            "no subquery 'r'",
        ),
    ],
)
def test_a_network_that_means_nothing_is_refused(make: Callable[[], object], part: str) -> None:
    with pytest.raises(UserError, match=part):
        make()
