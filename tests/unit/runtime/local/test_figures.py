"""Latencies: what was due when, how late results left, and that neither grows with time."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.runtime.local.figures import STEPS, Latencies, Schedule


def test_a_watermark_was_due_with_the_first_batch_that_reached_it() -> None:
    schedule = Schedule()
    for watermark, due in ((10, 1.0), (20, 2.0), (20, 2.5), (30, 3.0)):
        schedule.add(watermark, due)
    assert [schedule.due(watermark) for watermark in (5, 11, 20, 30, 31)] == [1.0, 2.0, 2.0, 3.0, None]


@pytest.mark.parametrize("moments", [4, 5, 6, 101, 1_000])
def test_a_schedule_that_nobody_asks_stays_small_and_never_takes_a_result_for_earlier(moments: int) -> None:
    schedule = Schedule(most=4)
    for moment in range(moments):
        schedule.add(10 * moment, float(moment))
    assert len(schedule._due) == len(schedule._watermarks) <= 4
    due = [schedule.due(10 * moment) for moment in range(moments)]
    assert all(found is not None and found <= moment for moment, found in enumerate(due))
    assert due == sorted(due, key=float)  # type: ignore[arg-type]  # none is None


def test_quantiles_are_weighted_by_results_and_exact_to_a_hundredth() -> None:
    random = np.random.default_rng(1)
    seconds = random.lognormal(-6, 2, 5_000)
    weights = random.integers(1, 50, len(seconds))
    latencies = Latencies()
    for each, weight in zip(seconds.tolist(), weights.tolist(), strict=True):
        latencies.add(each, weight)
    every = np.sort(np.repeat(seconds, weights))
    for share in (0.01, 0.5, 0.99):
        exact = every[int(np.ceil(share * len(every))) - 1]
        assert latencies.quantile(share) == pytest.approx(max(exact, 1e-6), rel=0.011)
    assert latencies.quantile(1.0) == latencies.max_seconds == seconds.max()


def test_any_latency_is_counted_and_none_is_none() -> None:
    latencies = Latencies()
    assert (latencies.quantile(0.5), latencies.max_seconds) == (None, None)
    for seconds in (-1e-9, 0.0, 1e12):
        latencies.add(seconds, 1)
    assert latencies._counts.sum() == 3 and len(latencies._counts) == STEPS
    assert latencies.max_seconds == 1e12
