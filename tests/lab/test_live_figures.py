"""The live figures: what is sent is on time and counted, and a picture comes of it. Nothing here is about how fast."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from figures import live, live_gedik, live_stretch
from figures.draw import Picture, save
from tidegate.control.controllers.thresholds import Thresholds
from tidegate.simulate.loads import ConstantLoad, StepLoad


def test_a_load_becomes_due_by_the_clock() -> None:
    sent: list[pa.RecordBatch] = []
    load = StepLoad(((1.0, 300.0), (1.0, 50.0)), repeats=False)
    made = list(live.due(load, 2.0, lambda random, rows: {"k": pa.array(random.integers(0, 9, rows))}, sent))
    times = np.concatenate([batch["ts"].cast(pa.int64()).to_numpy() for _, batch in made])
    assert [len(times[times < 1e6]), len(times[times >= 1e6])] == [300, 50]
    assert (np.diff(times) > 0).all()
    assert all(batch["ts"].cast(pa.int64()).to_numpy().max() <= 1e6 * at for at, batch in made), "not before its time"
    assert [batch for _, batch in made] == sent


def test_a_live_run_of_saso_counts_each_tuple_once_and_is_drawn(tmp_path: Path) -> None:
    run, exact = live_gedik.adapt(ConstantLoad(3_000.0), seconds=1.5)
    assert exact
    assert len(run.times) == len(run.offered) == len(run.instances)
    assert np.nanmax(run.offered) > 0
    assert save(Picture("live", live.live_panels(run)), tmp_path / "live.png").stat().st_size > 10_000


def test_what_a_wrong_count_is_called() -> None:
    row = {"ts": pa.array([150_000]).cast(live.TIME), "k": pa.array([7])}
    count = {"window_start": pa.array([100_000]).cast(live.TIME), "k": pa.array([7])}
    sent = [pa.record_batch(row), pa.record_batch(row)]
    assert live_gedik.each_once(sent, [pa.table({**count, "n": [2]})])
    assert not live_gedik.each_once(sent, [pa.table({**count, "n": [1]})])
    assert not live_gedik.each_once(sent, [pa.table({**count, "n": [2]})] * 2)


def test_a_live_join_finds_the_pairs_that_a_fixed_number_of_threads_finds() -> None:
    played = live_stretch.play(live_stretch.scalejoin(0.3), ConstantLoad(8_000.0), 1.0, Thresholds(balancer=None))
    assert played.same
    assert played.pairs > 0
    assert 1 <= played.run.instances.min() <= played.run.instances.max() <= live.cores()


def test_the_highest_rate_is_that_at_which_full_windows_take_all_comparisons() -> None:
    rate, window = live_stretch.highest_rate(1e9, 3.0), 3.0
    assert np.isclose(2 * (rate / 2) * (rate / 2 * window), 1e9)


def test_the_phases_of_q5_last_as_long_as_the_run_and_stay_below_the_highest_rate() -> None:
    load = live_stretch.q5_load(1_000.0)
    assert sum(seconds for seconds, _ in load.levels) >= live_stretch.Q5_SECONDS
    assert all(2.0 <= seconds <= 7.0 for seconds, _ in load.levels)
    assert all(1_000 / 16 <= rate <= 1_000.0 for _, rate in load.levels)
