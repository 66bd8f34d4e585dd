"""Steady's rules one by one: limits elsewhere, trends, what waits, orders under way, and what is kept at the same work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidegate.control.controller import Action, Limits
from tidegate.control.controllers.steady import Steady, WorkAhead
from tidegate.control.controllers.steady_limit import SLACK, LimitDetector
from tidegate.control.controllers.steady_trend import LONGEST, SHORT, Trend, TrendEstimate
from tidegate.control.observation import Observation

RATE = 500.0


def seen(step: int, instances: int, demand: float, **more: Any) -> Observation:
    """Instances that complete 500 a second each and get `demand`, with nothing waiting unless said otherwise."""
    processed = min(demand, RATE * instances)
    busy = (processed / (RATE * instances),) * instances
    given = {"processed": processed, "busy": busy, "demand": demand, "backlog": 0.0, "congestion": 0.0} | more
    return Observation("q", 5.0 * step, 5.0, instances, **given)


def stalled(step: int, processed: float, **more: Any) -> Observation:
    """Four instances that stand idle while the backlog grows."""
    busy = (processed / (4 * RATE),) * 4
    return seen(step, 4, 2_000.0, processed=processed, busy=busy, backlog=8_000.0 * step, **more)


def test_a_limit_is_found_after_two_periods_and_what_another_needs_to_add_instances() -> None:
    """The first period has none before it to compare with. With a lead of 10 s, two more have to be idle."""
    at_once, patient = LimitDetector(), LimitDetector()
    found = [at_once.see(stalled(step, 500.0), 1_000.0, 0.0) is not None for step in range(1, 6)]
    later = [patient.see(stalled(step, 500.0), 1_000.0, 10.0) is not None for step in range(1, 6)]
    assert found == [False, False, True, True, True]
    assert later == [False, False, False, False, True]


@pytest.mark.parametrize(
    "more",
    [
        {"backlog": 900.0},
        {"busy": (1.0, 0.1, 0.1, 0.1)},
        {"busy": (0.9,) * 4},
        {"processed": 0.0},
    ],
    ids=["not late", "one is hot", "none is idle", "nothing gets through"],
)
def test_no_limit_is_suspected_where_instances_could_help(more: dict[str, Any]) -> None:
    watch = LimitDetector()
    for step in range(1, 8):
        assert watch.see(replace(stalled(step, 500.0), **more), 1_000.0, 0.0) is None
        assert not watch.suspected


def test_a_backlog_that_shrinks_or_another_number_of_instances_is_no_limit() -> None:
    watch = LimitDetector()
    for step in range(1, 8):
        assert watch.see(replace(stalled(step, 500.0), backlog=90_000.0 - 9_000.0 * step), 1_000.0, 0.0) is None
    watch.see(stalled(8, 500.0), 1_000.0, 0.0)
    assert watch.see(seen(9, 5, 2_000.0, processed=500.0, busy=(0.2,) * 5, backlog=9e4), 1_000.0, 0.0) is None
    assert not watch.suspected


def test_the_ceiling_is_the_highest_limit_found_until_more_gets_through() -> None:
    """800 a second pass, later 500; the limit in force is the lower one, what was shown to be the most is the higher."""
    watch = LimitDetector()
    for step in range(1, 5):
        limit = watch.see(stalled(step, 800.0), 1_000.0, 0.0)
    assert watch.ceiling == pytest.approx(800.0)
    for step in range(5, 20):
        limit = watch.see(stalled(step, 500.0), 1_000.0, 0.0)
    assert limit is not None
    assert limit.rate < 800.0
    assert limit.slack == SLACK
    assert watch.ceiling == pytest.approx(800.0)
    assert watch.see(seen(20, 4, 2_000.0, processed=870.0), 1_000.0, 0.0) is None
    assert watch.ceiling == pytest.approx(800.0)
    watch.see(seen(21, 4, 2_000.0, processed=900.0), 1_000.0, 0.0)
    assert watch.ceiling is None


def test_within_a_limit_is_what_gets_through_and_what_waits_after_what_is_due() -> None:
    work = WorkAhead(700.0, 0.002, 200.0)
    assert work.within(1_000.0) == work
    assert work.within(800.0) == WorkAhead(700.0, 0.002, 100.0)
    assert work.within(600.0) == WorkAhead(600.0, 0.002, 0.0)


def test_the_work_ahead_rises_with_a_slope_and_does_not_count_on_a_fall() -> None:
    """10 a second more each second, damped over 60 s: after 60 s 379 more."""
    rising, falling = TrendEstimate(1_000.0, 10.0, 0.0, 12), TrendEstimate(1_000.0, -10.0, 0.0, 12)
    assert 1_090.0 < rising.highest(0.0, 10.0) < 1_100.0
    assert rising.highest(0.0, 10.0, 60.0) == pytest.approx(1_379.3, abs=0.1)
    assert falling.highest(0.0, 10.0, 60.0) == 1_000.0
    assert falling.highest(-10.0, 0.0, 10.0, 60.0) == 1_100.0


def test_what_waits_longer_than_half_the_target_is_late_and_worked_off() -> None:
    """375 of 1,500 a second may wait; 2,000 beyond that are 40 a second for 50 s."""
    steady = Steady(drain_seconds=50.0)
    late = steady.start(Limits(1, 64)).decide(seen(1, 2, 1_500.0, backlog=2_375.0))
    assert "and 40/s to work off 2375 that wait" in late.why
    assert "to work off" not in steady.start(Limits(1, 64)).decide(seen(1, 2, 1_500.0, backlog=375.0)).why


@pytest.mark.parametrize(
    ("more", "goes"),
    [
        ({"backlog": 0.0, "congestion": 0.003}, False),
        ({"backlog": 100.0, "congestion": None}, False),
        ({"backlog": 3_000.0, "congestion": None}, True),
        ({"backlog": None, "congestion": 0.4}, True),
        ({"backlog": None, "congestion": None}, True),
    ],
    ids=["blocked by noise", "a queue as always", "late", "blocked", "not known"],
)
def test_one_high_measurement_is_followed_only_where_lateness_bears_it_out(more: dict[str, Any], goes: bool) -> None:
    run = Steady().start(Limits(1, 64))
    for step in range(1, 30):
        assert not run.decide(seen(step, 10, 4_700.0)).changes
    assert run.decide(seen(30, 10, 6_500.0, **more)).changes == goes


def level(trend: Trend, periods: int, value: float, start: int = 0, slope: float = 0.0) -> TrendEstimate:
    """After so many observations that are off by 2 % by turns."""
    for step in range(start, start + periods):
        trend.see(5.0 * step, (value + slope * 5.0 * (step - start)) * (1.02 if step % 2 else 0.98))
    found = trend.estimate()
    assert found is not None
    return found


def test_the_longer_a_load_lies_on_a_line_the_more_is_taken_together() -> None:
    trend = Trend()
    assert level(trend, SHORT, 1_000.0).count == SHORT
    long = level(trend, 2 * LONGEST, 1_000.0, SHORT)
    assert long.count == LONGEST
    assert long.error < 0.01
    assert long.value == pytest.approx(1_000.0, rel=0.003)


def test_where_a_load_bends_what_is_older_is_left_out_before_it_is_a_change() -> None:
    trend = Trend()
    level(trend, LONGEST, 1_000.0)
    counts = [level(trend, 1, 1_000.0 * 1.004**step, LONGEST + step).count for step in range(1, 25)]
    assert min(counts) <= SHORT + 1
    assert min(counts) > 3


def test_what_is_not_believed_of_a_slope_is_an_error() -> None:
    """4 per mille in 55 s is within noise of 2 %: the value stays the mean, and where the line ends is not excluded."""
    flat, tilted = Trend(), Trend()
    level(flat, SHORT, 1_000.0)
    for step in range(SHORT):
        tilted.see(5.0 * step, (1_000.0 + 0.4 * 5.0 * step) * (1.02 if step % 2 else 0.98))
    sure, doubtful = flat.estimate(), tilted.estimate()
    assert sure is not None
    assert doubtful is not None
    assert sure.slope == doubtful.slope == 0
    assert doubtful.error > sure.error


def test_a_rise_that_makes_nothing_wait_is_followed_when_it_is_sure_and_at_once_when_tuples_wait() -> None:
    """Ten instances take 5,000 a second. 5,100 may be noise of 2 % until something waits."""
    run = Steady().start(Limits(1, 64))
    noisy = [4_700.0 * (1.02 if step % 2 else 0.98) for step in range(20)]
    for step, demand in enumerate(noisy, 1):
        assert not run.decide(seen(step, 10, demand)).changes
    assert not run.decide(seen(21, 10, 5_100.0)).changes
    assert not run.decide(seen(22, 10, 5_100.0)).changes
    steps = [run.decide(seen(step, 10, 5_100.0, backlog=2_000.0 * (step - 22))) for step in range(23, 27)]
    assert any(each.action is Action.PROVISION for each in steps)


def test_an_order_that_has_come_in_part_is_still_under_way_and_the_rest_is_not_asked_for_twice() -> None:
    """Of fourteen that were asked for eight are there, then eleven; a number that lies elsewhere ends the waiting."""
    run = Steady().start(Limits(1, 64))
    asked = run.decide(seen(1, 5, 6_000.0, backlog=17_500.0))
    assert asked.action is Action.PROVISION
    for step, there in ((2, 5), (3, 8), (4, 11)):
        decision = run.decide(seen(step, there, 6_000.0, backlog=17_500.0))
        assert not decision.changes
        assert f"the change to {asked.instances} instances is under way" in decision.why
    lost = run.decide(seen(5, 4, 6_000.0, backlog=17_500.0))
    assert lost.action is Action.PROVISION


def test_an_order_that_never_comes_is_asked_for_again() -> None:
    run = Steady().start(Limits(1, 64))
    assert run.decide(seen(1, 5, 6_000.0, backlog=17_500.0)).changes
    again = [step for step in range(2, 40) if run.decide(seen(step, 5, 6_000.0, backlog=17_500.0)).changes]
    assert again[0] == 26  # the first period that ends more than 120 s after


def test_an_instance_added_at_a_peak_stays_until_the_work_has_left_it() -> None:
    """5,050 a second need an eleventh instance. At 4,900 ten would do, for as long as one likes; at 4,600 it goes."""
    run, instances = Steady().start(Limits(1, 64)), 10
    for step in range(1, 30):
        assert not run.decide(seen(step, 10, 4_800.0)).changes
    for step in range(30, 50):
        instances = run.decide(seen(step, instances, 5_080.0, backlog=2_000.0 if instances == 10 else 0.0)).instances
    assert instances == 11
    assert all(run.decide(seen(step, 11, 4_900.0)).instances == 11 for step in range(50, 2_000))
    assert any(run.decide(seen(step, 11, 4_600.0)).instances == 10 for step in range(2_000, 2_100))
