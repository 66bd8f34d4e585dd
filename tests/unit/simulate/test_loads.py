"""Loads at known times, keys and shards, traces from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lab.keys import NormalKeys, Shift, UniformKeys
from tidegate.errors import DataError, UserError
from tidegate.simulate.fluid import evened
from tidegate.simulate.loads import (
    GEDIK_SINE,
    GEDIK_STEP,
    NAMED,
    STREAMCLOUD_RAMP,
    ConstantLoad,
    DayLoad,
    FlashCrowd,
    Load,
    RampLoad,
    SineLoad,
    SpikeLoad,
    StepLoad,
    SumOfLoads,
    TraceLoad,
    load_named,
    phases,
    rates_of,
    read_trace,
)
from tidegate.simulate.model import ZipfKeys, shard_of_keys, shard_shares


def at(load: Load, *times: float) -> list[float]:
    return load.rate(np.array(times)).tolist()


@pytest.mark.parametrize(
    ("load", "values"),
    [
        (ConstantLoad(7), {0: 7, 1e6: 7}),
        (
            GEDIK_STEP,
            {0: 5_000, 249: 5_000, 250: 10_000, 349: 10_000, 350: 2_000, 499: 2_000, 500: 5_000, 1_250: 10_000},
        ),
        (StepLoad(((10, 1), (10, 2)), repeats=False), {0: 1, 15: 2, 500: 2}),
        (GEDIK_SINE, {0: 5_000, 125: 7_500, 250: 5_000, 375: 2_500, 500: 5_000}),
        (RampLoad(((10, 0), (20, 100))), {0: 0, 10: 0, 15: 50, 20: 100, 99: 100}),
        (STREAMCLOUD_RAMP, {500: 64_506, 900: 100_869}),
        (SpikeLoad(10, 50, 100, 5), {0: 10, 99: 10, 100: 50, 104: 50, 105: 10, 203: 50}),
        (FlashCrowd(100, 900, 50, 10, 20), {0: 100, 50: 100, 55: 500, 60: 900, 80: 500, 100: 300}),
        (TraceLoad((0, 10, 30), (5, 0, 8)), {0: 5, 9.9: 5, 10: 0, 29: 0, 30: 8, 1_000: 8}),
        (TraceLoad((5,), (3,)), {4: 0, 5: 3}),
        (SumOfLoads((ConstantLoad(3), RampLoad(((0, 0), (10, 10))))), {0: 3, 5: 8, 10: 13}),
        (SumOfLoads((ConstantLoad(3),), factor=2), {0: 6}),
    ],
)
def test_a_load_at_known_times(load: Load, values: dict[float, float]) -> None:
    assert at(load, *values) == pytest.approx(list(values.values()))


def test_a_day_reaches_its_bounds_and_repeats() -> None:
    day = DayLoad(low=100, high=900)
    minutes = np.arange(0.0, 86_400.0, 60.0)
    rates = day.rate(minutes)
    assert rates.min() == pytest.approx(100)
    assert rates.max() == pytest.approx(900)
    assert day.rate(minutes + 86_400) == pytest.approx(rates)
    assert rates[4 * 60] < 0.3 * rates[20 * 60], "people sleep at four and do not at eight in the evening"


def test_phases_follow_their_seed_and_their_bounds() -> None:
    made = phases(3)
    assert made == phases(3) != phases(4)
    assert made.seconds >= 1200
    for seconds, rate in made.levels:
        assert 100 <= seconds <= 300
        assert 500 <= rate <= 8_000


@pytest.mark.parametrize("name", NAMED)
def test_a_named_load_is_never_negative(name: str) -> None:
    rates = load_named(name).rate(np.arange(0.0, 90_000.0, 7.0))
    assert rates.min() >= 0
    assert rates.max() > 0


@pytest.mark.parametrize(
    ("build", "part"),
    [
        (lambda: TraceLoad((1, 1), (2, 2)), "times must rise"),
        (lambda: TraceLoad((1,), ()), "as many of each"),
        (lambda: load_named("tide"), "'gedik-step'"),
        (lambda: ZipfKeys(exponent=-1), "0 or more"),
        (lambda: NormalKeys((Shift(5),)), "first must be at 0"),
        (lambda: UniformKeys(0), "1 or more"),
    ],
)
def test_a_load_that_means_nothing_is_refused(build: Callable[[], object], part: str) -> None:
    with pytest.raises(UserError, match=part):
        build()


@pytest.mark.parametrize(
    "load",
    [
        ConstantLoad(-1),
        ConstantLoad(float("inf")),
        SineLoad(5, 6, 10),
        RampLoad(((0, 1), (5, -2))),
        FlashCrowd(-9, 3, 0, 1, 1),
        TraceLoad((1,), (float("nan"),)),
        SumOfLoads((ConstantLoad(1),), -1),
    ],
)
def test_a_rate_that_is_no_rate_is_refused(load: Load) -> None:
    with pytest.raises(UserError, match="0 or more and finite"):
        rates_of(load, np.arange(0.0, 100.0))


def test_shard_shares_are_those_of_their_keys() -> None:
    keys = ZipfKeys(keys=50, exponent=1.0)
    shares = shard_shares(keys, 7, 0)
    expected = [
        sum(keys.shares(0)[key] for key in range(50) if shard_of_keys(50, 7)[key] == shard) for shard in range(7)
    ]
    assert shares == pytest.approx(expected)
    assert shares.sum() == pytest.approx(1)


def test_zipf_shares_fall_with_rank() -> None:
    shares = np.sort(ZipfKeys(keys=4, exponent=0.5).shares(0))[::-1]
    assert shares / shares[0] == pytest.approx([1, 2**-0.5, 3**-0.5, 0.5])


def test_shuffles_come_so_many_times_a_minute_and_keep_the_frequencies() -> None:
    keys = ZipfKeys(shuffles_per_minute=2)
    assert [keys.era(seconds) for seconds in (0, 29, 30, 59, 60)] == [0, 0, 1, 1, 2]
    first, second = keys.shares(0), keys.shares(1)
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first), np.sort(second))
    assert np.array_equal(second, ZipfKeys(shuffles_per_minute=2).shares(1))


def test_normal_keys_shift() -> None:
    keys = NormalKeys((Shift(0), Shift(100, 2_000, 50), Shift(200, 8_000, 25)))
    assert [keys.era(seconds) for seconds in (0, 99, 100, 250)] == [0, 0, 1, 2]
    assert keys.shares(0) == pytest.approx(1 / 10_000)
    places = np.arange(10_000)
    for era, mean, deviation in ((1, 2_000, 50), (2, 8_000, 25)):
        shares = keys.shares(era)
        assert (shares * places).sum() == pytest.approx(mean)
        assert np.sqrt((shares * (places - mean) ** 2).sum()) == pytest.approx(deviation, rel=1e-3)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 5), (5, 4), (3, 16), (16, 3), (7, 7)])
def test_a_mapping_evened_is_even_and_moves_no_more_than_it_must(before: int, after: int) -> None:
    mapping = np.arange(100) % before
    made = np.array(evened(mapping, after))
    counts = np.bincount(made, minlength=after)
    assert counts.max() - counts.min() <= 1
    old = np.bincount(mapping, minlength=max(before, after))[:after]
    assert np.count_nonzero(made != mapping) == 100 - np.minimum(old, counts).sum()


def test_a_trace_is_read_from_csv_and_parquet(tmp_path: Path) -> None:
    csv, file = tmp_path / "load.csv", tmp_path / "load.parquet"
    csv.write_text("rate,seconds\n30,1010\n10,1000\n")
    parquet.write_table(pa.table({"seconds": [1000, 1010], "rate": [10.0, 30.0]}), file)
    assert read_trace(csv) == read_trace(file) == TraceLoad((0.0, 10.0), (10.0, 30.0))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("time,rate\n1,2\n", '"seconds" does not exist'),
        ("seconds,rate\n", "at least one row"),
        ("seconds,rate\n1,fast\n", "must have numbers"),
        ("seconds,rate\n1,2\n2,\n", "missing"),
        ("seconds,rate\n1,2\n1,3\n", "times must rise"),
        ("seconds,rate\n1,-2\n", "0 or more"),
        ("seconds,rate\n1,2,3\n", "Expected 2 columns"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=part):
        read_trace(path)


@pytest.mark.parametrize(("name", "part"), [("none.csv", "no such file"), ("load.txt", r"\.csv or \.parquet")])
def test_a_trace_that_is_not_there_is_refused(tmp_path: Path, name: str, part: str) -> None:
    with pytest.raises(UserError, match=part):
        read_trace(tmp_path / name)
