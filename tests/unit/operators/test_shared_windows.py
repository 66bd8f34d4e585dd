"""The panes that instances share: what is merged when, who is worth sharing with, what is forgotten."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tidegate.operators.cells import SHARDS
from tidegate.operators.shared_windows import FAN_IN, MERGE_EVERY, SharedWindows
from tidegate.operators.window_state import WindowState
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import WindowAggregate

TIME = pa.timestamp("us", tz="UTC")


def shared(size: int, every: int, **options: int) -> SharedWindows:
    stream = tg.stream({"ts": TIME, "k": pa.int64()}, time="ts")
    node = stream.key_by("k").window(f"{size}us", every=f"{every}us").aggregate(n=tg.count()).node
    assert isinstance(node, WindowAggregate)
    state = SharedWindows(WindowState(Panes(node)), **options)
    state.attach(0, -1, -1_000)
    return state


def pass_segment(state: SharedWindows, number: int, time: int, before: int, after: int, keys: int = 4) -> pa.Table:
    """One instance lifts and passes a segment with one tuple of each key; what expired."""
    rows = pa.table({"ts": pa.array([time] * keys, pa.int64()).cast(TIME), "k": pa.array(range(keys), pa.int64())})
    state.lift(number, rows, before)
    made = list(state.expired(number, before, after, None))
    state.acknowledge(0, number, after)
    state.compact()
    return pa.concat_tables([state.windows.panes.node.schema.empty_table(), *made])


def test_a_slice_is_merged_once_no_more_is_due_for_it_if_several_windows_read_it() -> None:
    # time      0 0 0 0 | 10 10 10 10    windows of 30 every 10: each slice is read by three
    # W         0 … 0     10 … 10        the first slice is complete from the fifth segment on
    state = shared(30, 10, merge_settled=True)
    for number in range(4):
        pass_segment(state, number, 0, 0, 0)
    assert [run.settled for run in state._runs] == [False] * 4
    for number in range(4, 4 + MERGE_EVERY):
        pass_segment(state, number, 10, 0 if number == 4 else 10, 10)
    assert [(run.low, run.settled, len(run.slices)) for run in state._runs if run.low == 0] == [(0, True, 4)]
    assert state.rows == 4 + 4 * MERGE_EVERY
    made = pass_segment(state, 9, 40, 10, 40)
    assert made.filter(pc.equal(made.column("window_end").cast(pa.int64()), 30)).column("n").to_pylist() == [8] * 4


def test_a_slice_that_two_windows_read_is_merged_only_when_there_are_many_runs() -> None:
    state = shared(20, 10)
    for number in range(FAN_IN - 1):
        pass_segment(state, number, 0, 0, 10 if number == FAN_IN - 2 else 0)
    assert len(state._runs) == FAN_IN - 1
    for number in range(FAN_IN - 1, FAN_IN + MERGE_EVERY):
        pass_segment(state, number, 0, 0, 10)
    assert len(state._runs) < FAN_IN


@pytest.mark.parametrize(("keys", "worth"), [(4, False), (5, True)])
def test_windows_are_worth_splitting_when_they_hold_enough_panes(keys: int, worth: bool) -> None:
    state = shared(10, 10, split_panes=5)
    rows = pa.table({"ts": pa.array([0] * keys, pa.int64()).cast(TIME), "k": pa.array(range(keys), pa.int64())})
    state.lift(0, rows, -1_000)
    assert state.worth_splitting(0, -1_000, 10) == worth
    assert not state.worth_splitting(0, -1_000, 9), "nothing expires"


def test_the_owners_of_shards_make_every_result_once() -> None:
    state = shared(10, 10)
    rows = pa.table({"ts": pa.array([0] * 500, pa.int64()).cast(TIME), "k": pa.array(range(500), pa.int64())})
    state.lift(0, rows, -1_000)
    owner = np.arange(SHARDS) % 3
    parts = [table for each in range(3) for table in state.expired(0, -1_000, 10, owner == each)]
    assert len(parts) == 3
    assert sorted(key for part in parts for key in part.column("k").to_pylist()) == list(range(500))


def test_what_no_open_window_needs_is_forgotten() -> None:
    state = shared(10, 10)
    pass_segment(state, 0, 0, -1_000, 0)
    assert state.rows == 4 and state.bytes > 0
    pass_segment(state, 1, 25, 0, 30)
    assert state.rows == 0
