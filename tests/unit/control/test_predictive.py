"""The predictive controller: it acts on what its windows will hold and on what waits, and holds when neither changes."""

from __future__ import annotations

import doctest
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.kit.effort import examples
from tidegate.control.controller import Action, Decision, Limits
from tidegate.control.controllers import predictive as predictive_work
from tidegate.control.controllers.predictive import Filling, Predictive, comparisons_ahead, filling
from tidegate.control.observation import Observation, WindowInput
from tidegate.errors import UserError

ONE_TO_32, DEFAULT = Limits(1, 32), Predictive()


def join(
    instances: int,
    *inputs: tuple[float, float],
    capacity: float,
    window_seconds: float = 60.0,
    backlog: float | None = 0.0,
) -> Observation:
    """A join of inputs (tuples/s, tuples held) whose instances compare `capacity` pairs per second each."""
    windows = tuple(WindowInput(rate, held, window_seconds) for rate, held in inputs)
    work = sum(rate * held for (rate, _), (_, held) in zip(inputs, reversed(inputs), strict=True))
    busy = min(1.0, work / (instances * capacity))
    return Observation(
        "join",
        *(5.0, 5.0, instances),
        window_inputs=windows,
        comparisons=busy * instances * capacity,
        busy=(busy,) * instances,
        backlog=backlog,
    )


def plain(instances: int, offered: float, *, capacity: float, backlog: float | None = 0.0) -> Observation:
    """A subquery without windowed inputs whose instances complete `capacity` tuples per second each."""
    busy = min(1.0, offered / (instances * capacity))
    processed = busy * instances * capacity
    return Observation(
        "plain", 5.0, 5.0, instances, offered=offered, processed=processed, busy=(busy,) * instances, backlog=backlog
    )


def decide(observation: Observation, settings: Predictive = DEFAULT, limits: Limits = ONE_TO_32) -> Decision:
    return settings.start(limits).decide(observation)


def even(rate: float, held: float, window_seconds: float) -> Filling:
    """A window of which nothing is known but what it holds now."""
    return filling(WindowInput(rate, held, window_seconds), None, 0.0)


class TestModel:
    def test_comparisons_are_each_rate_times_the_other_window(self) -> None:
        # r_L·|W_R| + r_R·|W_L| = 10·300 + 20·500; of 30 tuples per second
        assert comparisons_ahead((even(10, 500, 60), even(20, 300, 60)), 0.0) == (13_000, 13_000 / 30)

    @pytest.mark.parametrize(
        ("ahead_seconds", "held"),
        # 600 tuples of even age, 20 arrive per second: 10 leave and 20 come each second until the window is renewed.
        [(0, 600), (15, 750), (30, 900), (60, 1200), (90, 1200)],
    )
    def test_window_of_which_nothing_is_known_loses_its_tuples_evenly(self, ahead_seconds: float, held: float) -> None:
        assert even(20, 600, 60).held_ahead(ahead_seconds) == held

    @pytest.mark.parametrize(("ahead_seconds", "held"), [(0, 600), (15, 900), (30, 1200), (90, 1200)])
    def test_window_that_fills_for_the_first_time_loses_nothing(self, ahead_seconds: float, held: float) -> None:
        # It held 500 five seconds before, and 20 arrived per second: none has left.
        first = filling(WindowInput(20, 600, 60), WindowInput(20, 500, 60), 5.0)
        assert first.held_ahead(ahead_seconds) == held

    @pytest.mark.parametrize(("ahead_seconds", "held"), [(0, 1500), (10, 1400), (30, 1200), (90, 1200)])
    def test_window_that_drains_falls_as_it_did(self, ahead_seconds: float, held: float) -> None:
        # It held 1,550 five seconds before; 20 arrive per second, so 30 leave.
        falling = filling(WindowInput(20, 1500, 60), WindowInput(20, 1550, 60), 5.0)
        assert falling.leaving_rate == 30
        assert falling.held_ahead(ahead_seconds) == held

    def test_growth_away_from_the_full_window_is_not_continued(self) -> None:
        # Below the 1,200 it will hold, yet it shrank: a burst has left. Even age: 20 − 600/60 a second.
        assert filling(WindowInput(20, 600, 60), WindowInput(20, 700, 60), 5.0).held_ahead(6) == 660

    def test_full_window_at_a_constant_rate_stays_as_it_is(self) -> None:
        assert even(20, 1200, 60).held_ahead(17) == 1200

    def test_examples_in_the_documentation(self) -> None:
        assert doctest.testmod(predictive_work).failed == 0


class TestPrediction:
    def test_acts_on_filling_windows_before_the_utilisation_rises(self) -> None:
        #  held   9,000 ┤        ╭──   both inputs at 150 t/s, windows of 60 s, ten seconds after the start
        #         1,500 ┤ ╭──────╯     now       2 · 150 · 1,500 = 450,000/s: 56 % of 4 × 200,000
        #             0 └─┴──────┴──   in 10 s   2 · 150 · (1,500 · 50/60 + 150 · 10) = 825,000/s: 103 %
        filling = join(4, (150, 1500), (150, 1500), capacity=200_000)
        assert filling.utilisation == pytest.approx(0.5625)
        decision = decide(filling)
        # 825,000 / 200,000 = 4.125 busy instances; 4.125 / 0.75 = 5.5
        assert (decision.action, decision.instances) == (Action.PROVISION, 6)
        assert decision.expected.utilisation == pytest.approx(4.125 / 6)
        assert decision.expected.processed == pytest.approx(300)
        assert [other.instances for other in decision.rejected] == [5]

    def test_without_a_horizon_it_would_have_removed_instances(self) -> None:
        # 2.25 busy instances; 2.25 / 0.75 = 3
        filling = join(4, (150, 1500), (150, 1500), capacity=200_000)
        assert decide(filling, Predictive(horizon_seconds=0)).instances == 3

    def test_horizon_of_a_window_goes_at_once_to_what_full_windows_need(self) -> None:
        # 2 · 150 · 9,000 = 2,700,000/s: 13.5 busy instances; 13.5 / 0.75 = 18
        filling = join(4, (150, 1500), (150, 1500), capacity=200_000)
        assert decide(filling, Predictive(horizon_seconds=60)).instances == 18
        assert decide(filling, Predictive(horizon_seconds=600)).instances == 18

    def test_falling_rate_removes_no_instance_that_is_needed_now(self) -> None:
        # Full windows of 9,000 at 150 t/s, now 100 t/s arrive: 2 · 100 · 9,000 = 1,800,000/s, later 1,200,000/s.
        emptying = join(18, (100, 9000), (100, 9000), capacity=200_000)
        assert decide(emptying, Predictive(horizon_seconds=60)).instances == 12

    def test_the_worst_moment_may_lie_between_now_and_the_horizon(self) -> None:
        # L, 10 t/s over 10 s, is empty and fills; R, 20 t/s over 60 s, holds 1,400 and drains to 1,200.
        #    0 s: 10·1,400 + 20·0 = 14,000    10 s: 10·1,366⅔ + 20·100 = 15,666⅔    60 s: 10·1,200 + 20·100 = 14,000
        seen = join(2, (10, 0), (20, 1400), capacity=7000)
        windows = (WindowInput(10, 0, 10), WindowInput(20, 1400, 60))
        decision = decide(replace(seen, window_inputs=windows), Predictive(horizon_seconds=60))
        assert decision.instances == 3
        assert decision.expected.utilisation == pytest.approx(15_666.67 / 7000 / 3, rel=1e-5)

    def test_the_second_observation_knows_what_leaves_the_windows(self) -> None:
        # 1,500 held, 750 five seconds before, 150 t/s: nothing leaves, so 3,000 in 10 s, where even age gives 2,750.
        # 2 · 150 · 3,000 = 900,000/s: 4.5 busy instances of 200,000; 4.5 / 0.75 = 6; even age: 4.125, 5.5, 6 as well.
        run = DEFAULT.start(ONE_TO_32)
        run.decide(join(4, (150, 750), (150, 750), capacity=200_000))
        second = replace(join(4, (150, 1500), (150, 1500), capacity=200_000), time_seconds=10.0)
        assert run.decide(second).expected.utilisation == pytest.approx(4.5 / 6)


class TestPendingWork:
    def test_backlog_of_a_join_is_worth_a_window_for_each_tuple(self) -> None:
        # Full windows: 2 · 100 · 6,000 = 1,200,000/s, 75 % of one instance. 200 tuples in 10 s: 20 · 6,000 more, 82.5 %.
        assert decide(join(1, (100, 6000), (100, 6000), capacity=1.6e6)).instances == 1
        pending = decide(join(1, (100, 6000), (100, 6000), capacity=1.6e6, backlog=200))
        assert pending.instances == 2
        assert pending.expected.processed == pytest.approx(220)

    def test_backlog_counts_when_nothing_arrives_any_more(self) -> None:
        run = DEFAULT.start(ONE_TO_32)
        run.decide(join(1, (100, 6000), (100, 6000), capacity=1.6e6))
        # 4,000 tuples in 10 s, each against 6,000: 2,400,000/s, 1.5 busy instances; 1.5 / 0.75 = 2
        assert run.decide(join(1, (0, 6000), (0, 6000), capacity=1.6e6, backlog=4000)).instances == 2

    def test_backlog_of_any_other_subquery_is_drained_on_top_of_what_is_offered(self) -> None:
        assert decide(plain(1, 700, capacity=1000)).instances == 1
        # 2,000 tuples in 10 s: 900/s, 90 % of one instance; in 20 s: 800/s, 80 %, which is still within the range
        assert decide(plain(1, 700, capacity=1000, backlog=2000)).instances == 2
        assert decide(plain(1, 700, capacity=1000, backlog=2000), Predictive(drain_seconds=20)).instances == 1

    def test_unknown_backlog_is_left_out_and_said_so(self) -> None:
        for unknown in (None, math.nan):
            decision = decide(plain(1, 700, capacity=1000, backlog=unknown))
            assert decision.action is Action.HOLD
            assert "backlog not known" in decision.why

    def test_offered_rate_beyond_what_is_processed_counts_in_full(self) -> None:
        # One instance completes 1,000 of 6,000 offered: 6 busy instances; 6 / 0.75 = 8.
        decision = decide(plain(1, 6000, capacity=1000))
        assert (decision.instances, decision.expected.utilisation) == (8, 0.75)


class TestThresholds:
    @pytest.mark.parametrize(
        ("offered", "instances"),
        # Ten instances of 1,000; the paper's range is 70 % to 80 %, the target between them 75 %.
        [(8001, 11), (8000, 10), (7500, 10), (7000, 10), (6999, 10), (6750, 9), (3000, 4), (0.1, 1)],
    )
    def test_acts_outside_the_range_and_aims_at_the_target(self, offered: float, instances: int) -> None:
        assert decide(plain(10, offered, capacity=1000)).instances == instances

    def test_says_why_it_holds(self) -> None:
        assert "within 70% to 80%" in decide(plain(10, 7500, capacity=1000)).why
        assert "fewer would be used to more than 75%" in decide(plain(10, 6999, capacity=1000)).why
        assert "the most instances allowed" in decide(plain(4, 7500, capacity=1000), limits=Limits(1, 4)).why
        assert "the fewest instances allowed" in decide(plain(4, 75, capacity=1000), limits=Limits(4, 8)).why

    def test_remembers_the_cost_when_there_is_no_work(self) -> None:
        run = DEFAULT.start(ONE_TO_32)
        stuck = replace(plain(4, 0, capacity=1000), backlog=15_000.0)
        assert "cost is unknown" in run.decide(stuck).why
        run.decide(plain(4, 3000, capacity=1000))
        assert run.decide(stuck).instances == 2

    def test_an_idle_subquery_needs_no_cost_to_shrink(self) -> None:
        assert decide(plain(4, 0, capacity=1000)).instances == 1

    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ({"lower": 0.0}, "lower"),
            ({"lower": 0.76}, "target_utilisation"),
            ({"target_utilisation": 0.9}, "target_utilisation"),
            ({"upper": 1.1}, "upper"),
            ({"horizon_seconds": -1.0}, "horizon_seconds"),
            ({"horizon_seconds": math.nan}, "horizon_seconds"),
            ({"drain_seconds": 0.0}, "drain_seconds"),
        ],
    )
    def test_settings_that_mean_nothing_are_refused(self, settings: dict[str, float], named: str) -> None:
        with pytest.raises(UserError, match=rf"predictive: .*{named}\b"):
            Predictive(**settings)


class TestMissing:
    @pytest.mark.parametrize("name", ["comparisons", "busy"])
    def test_of_a_join(self, name: str) -> None:
        decision = decide(replace(join(4, (150, 1500), (150, 1500), capacity=2e5), **{name: None}))  # type: ignore[arg-type]
        assert (decision.action, decision.instances, decision.missing) == (Action.HOLD, 4, (name,))

    @pytest.mark.parametrize("name", ["offered", "processed", "busy"])
    def test_of_any_other_subquery(self, name: str) -> None:
        decision = decide(replace(plain(4, 9000, capacity=1000), **{name: None}))  # type: ignore[arg-type]
        assert (decision.action, decision.instances, decision.missing) == (Action.HOLD, 4, (name,))

    def test_window_that_holds_no_number(self) -> None:
        decision = decide(join(4, (150, 1500), (150, 1500), capacity=2e5))
        broken = (WindowInput(150, math.nan, 60), WindowInput(150, 1500, 60))
        assert decision.changes
        decision = decide(replace(join(4, (150, 1500), (150, 1500), capacity=2e5), window_inputs=broken))
        assert (decision.action, decision.missing) == (Action.HOLD, ("window_inputs",))


@dataclass(frozen=True)
class Run:
    instances: tuple[int, ...]
    utilisation: tuple[float, ...]
    backlog: tuple[float, ...]


def drive(settings: Predictive, rate: Callable[[int], float], periods: int, *, capacity: float, most: int = 72) -> Run:
    """A join of two streams of the same rate with windows of one minute (STRETCH, Q5), observed every five seconds.

    What a window holds is counted second by second; what the instances cannot do waits.
    """
    run, instances, waiting = settings.start(Limits(1, most)), 1, 0.0
    arrived: list[float] = []
    rows: list[tuple[int, float, float]] = []
    for number in range(periods):
        now = rate(number * 5)
        arrived += [now] * 5
        held = sum(arrived[-60:])
        per_second = 2 * now * held + waiting / 5 * held
        done = min(per_second, instances * capacity)
        waiting = (per_second - done) * 5 / held
        busy = done / (instances * capacity)
        rows.append((instances, busy, waiting))
        inputs = (WindowInput(now, held, 60.0), WindowInput(now, held, 60.0))
        observation = Observation(
            *("join", (number + 1) * 5.0, 5.0, instances),
            window_inputs=inputs,
            comparisons=done,
            busy=(busy,) * instances,
            backlog=waiting,
        )
        instances = run.decide(observation).instances
    return Run(*zip(*rows, strict=True))  # type: ignore[arg-type]


def changes(instances: tuple[int, ...]) -> list[int]:
    return [after - before for before, after in itertools.pairwise(instances) if after != before]


def test_prediction_keeps_ahead_of_windows_that_fill_after_a_rise() -> None:
    # 1,000 t/s for 100 s, then 2,000: the work doubles at once and doubles again while the windows are renewed.
    def rise(second: int) -> float:
        return 1000.0 if second < 100 else 2000.0

    # Full windows: 2 · 2,000 · 120,000 = 480,000,000/s; 48 busy instances; 48 / 0.75 = 64.
    ahead, behind = (drive(Predictive(horizon_seconds=horizon), rise, 60, capacity=1e7) for horizon in (10.0, 0.0))
    filling = slice(22, 34)
    assert max(ahead.utilisation[filling]) <= 0.8, "never above the upper threshold while the windows fill"
    assert max(behind.utilisation[filling]) > 0.8
    assert sum(ahead.backlog[filling]) == 0
    assert ahead.instances[-10:] == (64,) * 10


def test_constant_load_is_held_once_its_windows_are_full() -> None:
    run = drive(DEFAULT, lambda _: 1000.0, 80, capacity=1e7)
    # 2 · 1,000 · 60,000 = 120,000,000/s: 12 busy instances; 12 / 0.75 = 16, used to 75 %.
    assert run.instances[20:] == (16,) * 60
    assert run.utilisation[-1] == pytest.approx(0.75)


inputs_drawn = st.tuples(st.floats(1, 10_000), st.floats(1, 10_000))
limits_drawn = st.integers(1, 12).flatmap(lambda least: st.builds(Limits, st.just(least), st.integers(least, 64)))
predictives = st.builds(Predictive, horizon_seconds=st.floats(0, 120), drain_seconds=st.floats(1, 60))


@settings(deadline=None)
@given(predictives, inputs_drawn, st.floats(1, 300), st.floats(1e3, 1e12), limits_drawn, st.data())
def test_settles_on_constant_load_with_one_decision(
    predictive: Predictive,
    rates: tuple[float, float],
    window_seconds: float,
    capacity: float,
    limits: Limits,
    data: st.DataObject,
) -> None:
    instances = data.draw(st.integers(limits.least, limits.most))
    full = tuple((rate, rate * window_seconds) for rate in rates)
    # At exactly a threshold, the last digit of a float decides.
    needed = sum(rate * other for (rate, _), (_, other) in zip(full, reversed(full), strict=True)) / capacity
    assume(all(abs(needed / instances / limit - 1) > 1e-6 for limit in (0.7, 0.75, 0.8)))
    run, seen = predictive.start(limits), [instances]
    for _ in range(5):
        observation = join(seen[-1], *full, capacity=capacity, window_seconds=window_seconds)
        seen.append(run.decide(observation).instances)
    assert len(set(seen[1:])) == 1
    assert all(limits.least <= instances <= limits.most for instances in seen)
    assert needed / seen[-1] <= 0.8 + 1e-6 or seen[-1] == limits.most


@settings(deadline=None, max_examples=examples(20))
@given(st.floats(0, 120), st.floats(10, 5000), st.floats(1e5, 1e9))
def test_filling_windows_are_followed_without_ever_turning_back(horizon: float, rate: float, capacity: float) -> None:
    run = drive(Predictive(horizon_seconds=horizon), lambda _: rate, 40, capacity=capacity, most=10_000)
    # From the second period on: in the first one the single instance may have left a backlog to be drained.
    assume(max(run.backlog) == 0)
    assert all(change > 0 for change in changes(run.instances))
    assert run.utilisation[-1] <= 0.8 + 1e-9


known_or_not = st.one_of(st.none(), st.just(math.nan), st.just(0.0), st.floats(1e-6, 1e6))
windows = st.lists(st.builds(WindowInput, st.floats(0, 1e4), st.floats(0, 1e6), st.floats(1, 300)), max_size=3)


@settings(deadline=None)
@given(predictives, st.data())
def test_any_observations_same_decisions_within_limits_and_no_action_on_missing_ones(
    predictive: Predictive, data: st.DataObject
) -> None:
    limits = data.draw(limits_drawn)
    one, other = predictive.start(limits), predictive.start(limits)
    for _ in range(data.draw(st.integers(1, 15))):
        instances = data.draw(st.integers(limits.least, limits.most))
        busy = data.draw(st.one_of(st.none(), st.floats(0, 1)))
        inputs = data.draw(st.one_of(st.none(), windows))
        observation = Observation(
            *("any", 5.0, 5.0, instances),
            offered=data.draw(known_or_not),
            processed=data.draw(known_or_not),
            comparisons=data.draw(known_or_not),
            backlog=data.draw(known_or_not),
            busy=None if busy is None else (busy,) * instances,
            window_inputs=None if inputs is None else tuple(inputs),
        )
        decision = one.decide(observation)
        assert decision == other.decide(replace(observation))
        assert limits.least <= decision.instances <= limits.most
        joins = inputs is not None and len(inputs) > 1
        missing = observation.missing(("comparisons", "busy") if joins else ("offered", "processed", "busy"))
        assert decision.missing == missing
        assert not (missing and decision.changes)


def test_a_join_that_finds_partners_by_key_is_sized_by_what_it_costs() -> None:
    """Of 2·100·6,000 pairs a second one in a thousand is tried, by one of four instances half of the time.

    What doubled rates will cost, once windows are full, is four times as much: 2 instances' worth, 3 at a target of 75 %.
    """
    seen = join(4, (100, 6_000), (100, 6_000), capacity=1_200.0 / 0.5)
    by_key = replace(seen, comparisons=1_200.0, busy=(0.125,) * 4)
    run = Predictive(horizon_seconds=60.0).start(ONE_TO_32)
    assert run.decide(by_key).instances == 1, "half an instance"
    windows = tuple(WindowInput(200.0, 6_000.0, 60.0) for _ in range(2))
    doubled = replace(by_key, time_seconds=10.0, window_inputs=windows, comparisons=2_400.0, busy=(0.25,) * 4)
    assert run.decide(doubled).instances == 3


def test_windows_that_hold_next_to_nothing_say_nothing_of_the_cost() -> None:
    windows = (WindowInput(1.0, 0.0, 1.0), WindowInput(1.0, 2e-311, 1.0))
    seen = Observation("any", 5.0, 5.0, 1, busy=(0.5,), window_inputs=windows, comparisons=1.0)
    assert Predictive(horizon_seconds=1.0, drain_seconds=1.0).start(Limits(1, 4)).decide(seen).instances in range(1, 5)
