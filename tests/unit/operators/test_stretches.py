"""Loops over stretches of states, against the plain way to do it; and states that several aggregates share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.operators.aggregates.shared_states import lifted_states, state_of
from tidegate.operators.keyed_loops import places_of_hashes
from tidegate.operators.keyed_states import logic_of
from tidegate.operators.stretches import extreme_in_stretches, sum_stretches

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("price", pa.int64()), ("who", pa.string())])


def stretches(draw: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Stretches of one state or more; neither starts nor stops fall, and some are equal."""
    starts = np.sort(draw.integers(0, size, 3 * size))
    stops = np.maximum.accumulate(np.minimum(starts + draw.integers(1, 9, len(starts)), size))
    return starts, stops


@pytest.mark.parametrize("seed", range(20))
def test_each_stretch_is_added_up(seed: int) -> None:
    draw = np.random.default_rng(seed)
    values = draw.integers(-(2**40), 2**40, 1 + 5 * seed)
    starts, stops = stretches(draw, len(values))
    plain = [int(values[start:stop].sum()) for start, stop in zip(starts, stops, strict=True)]
    assert sum_stretches(values, starts, stops).tolist() == plain
    assert sum_stretches(values / 8, starts, stops).tolist() == [each / 8 for each in plain]


def test_what_lies_far_from_a_stretch_does_not_blur_it() -> None:
    """A difference of running sums would be 0 behind a number that is so large."""
    values = np.array([1e300, 1.5, 2.5, -1e300, 0.25])
    assert sum_stretches(values, np.array([0, 1, 1, 4]), np.array([1, 2, 3, 5])).tolist() == [1e300, 1.5, 4.0, 0.25]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("seed", range(20))
def test_a_state_that_leads_is_found_in_each_stretch(seed: int, sign: int) -> None:
    draw = np.random.default_rng(seed)
    codes, valid = draw.integers(0, 9, 1 + 5 * seed), draw.random(1 + 5 * seed) < 0.5
    starts, stops = stretches(draw, len(codes))
    found = extreme_in_stretches(codes, valid, starts, stops, sign)
    for place, start, stop in zip(found.tolist(), starts.tolist(), stops.tolist(), strict=True):
        held = [int(codes[at]) for at in range(start, stop) if valid[at]]
        if not held:
            assert place == -1
        else:
            assert start <= place < stop
            assert valid[place]
            assert codes[place] == (min(held) if sign > 0 else max(held))


@pytest.mark.parametrize("touched", [1, 3, 50])
def test_all_rows_of_touched_keys_are_found(touched: int) -> None:
    draw = np.random.default_rng(touched)
    hashes = draw.integers(0, 2**64, 400, np.uint64)
    wanted = draw.choice(hashes, touched)
    found = places_of_hashes(hashes, wanted)
    assert np.isin(np.flatnonzero(np.isin(hashes, wanted)), found).all()
    assert len(found) < 200


def test_first_values_share_a_state_and_last_ones_another() -> None:
    first, other, last, mean, total, count = (
        logic_of(each, SCHEMA, "ts")
        for each in (tg.first("price"), tg.first("who"), tg.last("who"), tg.mean("price"), tg.sum("price"), tg.count())
    )
    assert state_of(first) == state_of(other) != state_of(last)
    assert state_of(mean) == state_of(total) != state_of(count)
    rows = pa.table([pa.array([3, 1, 2]).cast(pa.timestamp("us")), [30, 10, 20], ["c", "a", "b"]], schema=SCHEMA)
    logics = [first, total, other, mean]
    states = lifted_states(logics, rows, None, np.zeros(3, np.int64), 1)
    assert states[0] is states[4]
    values, at = [], 0
    for logic in logics:
        values.append(logic.finish(states[at : at + len(logic.fields)]).to_pylist())
        at += len(logic.fields)
    assert values == [[10], [60], ["a"], [20.0]]
