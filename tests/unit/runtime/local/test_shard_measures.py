"""What is measured of shards and joins while a query runs: loads, memory, the most frequent key, pairs tried."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.observed import OPTIONAL, present
from tidegate.control.observation import Observation
from tidegate.operators.cells import SHARDS
from tidegate.operators.joins.find_pairs import Reach
from tidegate.operators.keys import key_hashes, shards_of
from tidegate.query.keys import Columns
from tidegate.runtime.local.observe import LocalObserver
from tidegate.runtime.local.observed import OBSERVED
from tidegate.runtime.local.shard_meter import ShardMeter
from tidegate.runtime.local.split_choice import FIRST_STEPS, SplitChoice
from tidegate.sources.in_memory import Paced

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = {"ts": TIME, "k": pa.int64()}


def shards(*keys: Any) -> list[int]:
    """The shards of some keys."""
    return list(map(int, shards_of(key_hashes([pa.array(keys)]), SHARDS)))


class Counting:
    """A clock that moves on by one second at each reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def keyed(*keys: Any) -> pa.Table:
    return pa.table({"k": pa.array(keys)})


def test_known_shards_are_counted_one_by_one() -> None:
    meter = ShardMeter(on=True)
    keys = pa.array([7, 7, 8])
    found = shards_of(key_hashes([keys]), SHARDS)
    meter.count([keys], found, 0.0)
    meter.count([keys], found, 0.0)
    assert meter.counts is not None
    seven, eight = shards(7, 8)
    assert (meter.counts[seven], meter.counts[eight], meter.counts.sum()) == (4, 2, 6)
    hot = meter.hot_key(seven)
    assert hot is not None
    assert (hot.key, hot.share) == ("7", pytest.approx(4 / 6))
    assert str(hot) == "key 7, 67% of all tuples"


def test_a_meter_that_is_off_counts_nothing() -> None:
    meter = ShardMeter()
    meter.sample(Columns(("k",)), keyed(1, 2), 1.0)
    assert meter.counts is None


def test_samples_stand_for_all_tuples_since_the_one_before_and_take_a_hundredth_of_the_work() -> None:
    meter, keys = ShardMeter(on=True, clock=Counting()), Columns(("k",))
    a, b = shards("a", "b")
    meter.sample(keys, keyed("a", "a", "a", "b"), 0.0)  # the first one is free: it may compile
    meter.sample(keys, keyed("b", "b", "b", "b"), 0.0)  # takes a second by this clock, which work of 100 s pays
    assert meter.counts is not None
    assert (meter.counts[a], meter.counts[b]) == (3 + 1.5, 1 + 2.5), "3 of the 8 that were looked at"
    meter.sample(keys, keyed(*"aaaaaaaa"), 99.0)  # not looked at: taken to be as the others
    assert (meter.counts[a], meter.counts[b]) == (4.5 + 3, 3.5 + 5)
    meter.sample(keys, keyed(*"aaaaaaaa"), 100.0)  # and now it is known better, for both: 11 of 16
    assert (meter.counts[a], meter.counts[b]) == (4.5 + 11, 3.5 + 5)


def test_composite_keys_are_named_as_tuples() -> None:
    meter = ShardMeter(on=True)
    meter.sample(Columns(("k", "n")), pa.table({"k": ["x", "x"], "n": [1, 1]}), 0.0)
    assert meter.counts is not None
    hot = meter.hot_key(int(np.argmax(meter.counts)))
    assert hot is not None
    assert hot.key == "('x', 1)"


def test_segments_are_shared_while_functions_wait_and_that_is_looked_at_again_ever_less_often() -> None:
    choice = SplitChoice(split_keys=1_000)
    assert not choice.split(100), "nothing is known yet"
    choice.seen(100, 0.1, 0.01)
    assert [choice.split(100) for _ in range(FIRST_STEPS)] == [True] * FIRST_STEPS
    assert not choice.split(100), "one instance is to find out anew"
    assert choice.shared, "which does not make a difference to who owns what"
    choice.seen(100, 0.1, 0.01)
    assert sum(choice.split(100) for _ in range(2 * FIRST_STEPS + 1)) == 2 * FIRST_STEPS
    choice.seen(100, 0.1, 0.09)
    assert not choice.split(100), "functions that compute need the interpreter"
    assert choice.split(1_000), "much is shared in any case"


def test_little_waiting_is_not_worth_waking_others() -> None:
    choice = SplitChoice()
    choice.seen(1_000, 0.01, 0.001)
    assert choice.split(1_000)
    assert not choice.split(10), "90 µs"


@pytest.mark.parametrize(
    ("owned", "expected"), [([(0, 9)], 3 + 2), ([(0, 2), (4, 5)], 1 + 1), ([(0, 2), (3, 5), (5, 6)], 2 + 2)]
)
def test_pairs_to_try_are_those_within_the_stretches_that_are_owned(
    owned: list[tuple[int, int]], expected: int
) -> None:
    """
    stored   0  1  2  3  4  5
    first       [-------)
    second               [----)
    """
    starts, stops = map(np.array, zip(*owned, strict=True))
    reach = Reach(np.array([1, 4]), np.array([4, 6]), starts, stops)
    assert reach.pairs == expected


def load(rows: int, seconds: float, key: Any) -> Iterator[tuple[float, pa.RecordBatch]]:
    """So many tuples each 20 ms; `key` makes the keys of tuples by their number."""
    for number in range(round(seconds / 0.02)):
        times = number * 20_000 + np.arange(rows) * 20_000 // rows
        yield (
            (number + 1) * 0.02,
            pa.record_batch([pa.array(times).cast(TIME), pa.array(key(number * rows + np.arange(rows)))], ["ts", "k"]),
        )


def observations(query: tg.Stream, instances: int = 2) -> dict[str, list[Observation]]:
    """What is seen of a query by looking at it every 0.1 s until it ends."""
    job = tg.start(query, to=lambda _: None, instances=instances, segment_rows=200)
    observer = LocalObserver(job.running)
    seen: dict[str, list[Observation]] = {}
    while not job.wait(0.1):
        for each in observer.poll().observations:
            seen.setdefault(each.subquery, []).append(each)
    return seen


def skewed(numbers: Any) -> Any:
    """Four of five tuples have the key 5."""
    return np.where(numbers % 5 < 4, 5, numbers % 101)


def test_the_declared_fields_are_those_of_live_observations() -> None:
    assert set(OBSERVED) <= set(OPTIONAL)
    source = tg.stream(Paced(load(40, 1.2, skewed)), time="ts", schema=SCHEMA, name="load")
    counts = source.key_by("k").window("100ms").aggregate(n=tg.count())
    other = tg.stream(Paced(load(10, 1.2, skewed)), time="ts", schema=SCHEMA, name="other")
    pairs = other.join(other, within="50ms", where=lambda left, right: left.k == right.k)
    seen = [*observations(counts).values(), *observations(pairs).values()]
    assert set().union(*(present(each) for part in seen for each in part)) == set(OBSERVED)


def test_loads_memory_and_the_hot_key_of_an_aggregate() -> None:
    source = tg.stream(Paced(load(100, 1.2, skewed)), time="ts", schema=SCHEMA, name="load")
    (seen,) = observations(source.key_by("k").window("10 seconds").aggregate(n=tg.count())).values()
    known = [each for each in seen if each.shard_loads]
    assert known
    (five,) = shards(5)
    got = np.sum([np.array(each.shard_loads) * each.period_seconds for each in known], axis=0)
    assert got[five] / got.sum() == pytest.approx(0.8, abs=0.1)
    assert {(each.hot_key.shard, each.hot_key.key) for each in known if each.hot_key} == {(five, "5")}
    assert all(each.pooled for each in known)
    held = [sum(each.shard_state_bytes) for each in known if each.shard_state_bytes is not None]
    assert max(held) > 101 * 8, "a pane for each key"


def test_a_join_tells_what_it_holds_and_tries() -> None:
    """2,000/s of event time a side, within 50 ms: a tuple meets some 100 before it on the other side, on each side."""
    left, right = (tg.stream(Paced(load(40, 1.5, lambda n: n)), time="ts", schema=SCHEMA, name=n) for n in "lr")
    (seen,) = observations(left.join(right, within="50ms", where=lambda one, other: one.k + other.k > 0)).values()
    known = [(each, each.window_inputs) for each in seen if each.window_inputs]
    arrived = [sum(inputs[side].rate * each.period_seconds for each, inputs in known) for side in (0, 1)]
    assert arrived[0] == pytest.approx(arrived[1], abs=400), "both sides come alike"
    assert 0 < sum(arrived) <= 2 * 3_000
    tried = sum((each.comparisons or 0.0) * each.period_seconds for each, _ in known)
    assert 40 <= tried / sum(arrived) <= 1_000, "blocks of segments are tried as a whole"
    assert any(window.held > 0 for _, inputs in known for window in inputs)
    assert all(each.shard_loads is None and each.pooled for each, _ in known)


def waits(window: Any, arriving: Any) -> Any:
    time.sleep(0.001)
    return tg.updated({"n": (window.state["n"] or 0) + 1}, rows={"n": (window.state["n"] or 0) + 1})


def test_functions_that_wait_are_shared_out_by_shards_and_every_tuple_is_counted() -> None:
    source = tg.stream(Paced(load(10, 1.5, skewed)), time="ts", schema=SCHEMA, name="load")
    query = source.key_by("k").unbounded().apply(update=waits, state={"n": pa.int64()}, returns={"n": pa.int64()})
    (seen,) = observations(query).values()
    known = [each for each in seen if each.shard_loads and each.time_seconds > 0.5]
    assert any(not each.pooled for each in known)
    (five,) = shards(5)
    got = np.sum([np.array(each.shard_loads) * each.period_seconds for each in known], axis=0)
    assert got[five] / got.sum() == pytest.approx(0.8, abs=0.03)
    assert all(sum(each.shard_state_bytes or ()) > 0 for each in known)
