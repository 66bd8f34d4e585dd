"""The search for the highest sustainable rate, and what a load offers."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pyarrow as pa
import pytest

import tidegate as tg
from benchmarks.inputs import START_US
from benchmarks.loads import STEP_US, Load, Pool
from benchmarks.sustain import PRECISION, Probe, growth, highest, next_rate, probe


@pytest.mark.parametrize("limit", [30.0, 100.0, 777.0])
def test_the_search_ends_just_below_the_limit(limit: float) -> None:
    tried: list[tuple[float, bool]] = []
    while (rate := next_rate(tried, start=100.0)) is not None:
        tried.append((rate, rate <= limit))
    found = highest(tried)
    assert found is not None and found <= limit <= found * (1 + PRECISION)


def test_a_search_that_never_fails_or_never_holds_ends() -> None:
    for sustained in (True, False):
        tried: list[tuple[float, bool]] = []
        while (rate := next_rate(tried, start=1.0)) is not None:
            tried.append((rate, sustained))
        assert (highest(tried) is not None) is sustained


def test_a_rate_above_one_that_failed_does_not_count() -> None:
    assert highest([(100.0, False), (120.0, True), (80.0, True)]) == 80.0


def test_a_probe_is_judged_by_backlog_and_latency() -> None:
    steady = Probe(1_000.0, 1_000.0, 0.0, 10.0, 1.0, 5.0, 9.0, limit_ms=5.0)
    assert steady.sustained and not replace(steady, limit_ms=4.9).sustained
    assert not replace(steady, backlog_growth=0.1).sustained
    assert not replace(steady, p50_ms=None, p99_ms=None, max_ms=None).sustained


def test_growth_is_the_slope_of_the_backlog() -> None:
    assert growth([(10.0, 0.0), (11.0, 50.0), (12.0, 100.0)]) == pytest.approx(50.0)
    assert growth([(0.0, 7.0), (1.0, 7.0)]) == pytest.approx(0.0)


def test_a_load_offers_its_rate_in_order_of_time_beyond_the_end_of_its_pool() -> None:
    rows = pa.record_batch(
        {"ts": pa.array([0] * 7, pa.timestamp("us", tz="UTC")), "key": list(range(7)), "value": [0.5] * 7}
    )
    load = Load(Pool((rows,), lambda stream: stream), tuples_per_second=2_500.0, ticks_per_second=1_000)
    due, batches = zip(*islice(load.origins()[0], 8), strict=True)
    assert sorted(due) == list(due) and due[0] == 0.0
    offered = pa.Table.from_batches(batches)
    assert offered["ts"].cast(pa.int64()).to_pylist() == [START_US + at * STEP_US for at in range(offered.num_rows)]
    assert offered["key"].to_pylist() == [at % 7 for at in range(offered.num_rows)]
    assert load.began is not None and load.due(load.began + 2.0) == 5_000


def test_two_inputs_take_turns_in_time_and_share_the_rate() -> None:
    rows = [pa.record_batch({"ts": pa.array([0], pa.timestamp("us")), side: [1]}) for side in ("x", "a")]
    load = Load(Pool(tuple(rows), lambda left, right: left), tuples_per_second=4_000.0, ticks_per_second=1_000)
    left, right = (pa.Table.from_batches(batch for _, batch in islice(each, 6)) for each in load.origins())
    assert left.column_names == ["ts", "x"] and right.column_names == ["ts", "a"]
    times = sorted(left["ts"].cast(pa.int64()).to_pylist() + right["ts"].cast(pa.int64()).to_pylist())
    assert times == [START_US + at * STEP_US for at in range(12)]
    assert [due for due, _ in islice(load.origins()[1], 6)] == [0.0, 0.0, 0.001, 0.001, 0.002, 0.002]


def test_a_probe_reads_its_load_and_measures_its_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.sustain.LEAST_WARM_UP_SECONDS", 0.5)
    rows = pa.record_batch({"ts": pa.array([0] * 100, pa.timestamp("us", tz="UTC")), "key": list(range(100))})
    pool = Pool((rows,), lambda stream: stream.key_by("key").window("1 ms").aggregate(n=tg.count()))
    found = probe(pool, 1_000.0, 100, 1, span_seconds=1.0, limit_ms=60_000.0)
    assert found.read_per_second > 0
    assert found.p99_ms is not None
