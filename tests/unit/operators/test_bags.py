"""Aggregates of bags at the edges: times far apart, many keys, numbers that are too large for a loop."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.lowering import lowered
from tests.kit.spark_driver import Batch, Driver
from tidegate.errors import DataError
from tidegate.operators.bags.bag_cell import MOST_CHUNKS
from tidegate.operators.bags.emit_bags import emitter_of, rows_of
from tidegate.operators.bags.held_bags import HeldBags
from tidegate.query.bags import BagRows, Bags
from tidegate.query.nodes import BagAggregate
from tidegate.testing import answer, difference
from tidegate.watermark import END, START

TIME = pa.timestamp("us")
FAR = 220_000_000_000_000_000


def emitted(query: tg.Stream, *tables: pa.Table) -> pa.Table:
    """What one Aggregate gives when all expires at once."""
    node = query.node
    assert isinstance(node, BagAggregate)
    held = HeldBags(node)
    for side, table in enumerate(tables):
        held.hold(0, side, table)
    expiring = held.expire(0, START, END)
    assert expiring is not None
    assert held.rows == 0
    return pa.concat_tables(emitter_of(node)(held, expiring, held.keyed(expiring, False), None))


def table(times: list[int], keys: list[int], numbers: list[int]) -> pa.Table:
    return pa.table({"ts": pa.array(times, TIME), "k": pa.array(keys, pa.int64()), "n": pa.array(numbers, pa.int64())})


def stream(given: pa.Table) -> tg.Stream:
    return tg.stream(given, time="ts", name="s", ahead=None)


def joined(given: pa.Table, **options: Any) -> tg.Stream:
    """A stream with itself."""
    return (one := stream(given)).join(one, on="k", **options)


def test_pairs_whose_times_lie_thousands_of_years_apart() -> None:
    times = [-FAR // 4, -FAR // 4, 0, 1, FAR, FAR]
    given = table(times, [2**62, 2**62, -(2**62), 7, 7, 7], [1, 2, 3, 4, 5, 6])
    query = joined(given, window="2 microseconds", every="1 microsecond")
    made = emitted(lowered(query, "multi"), given, given)
    assert difference(made, answer(query).rows) is None
    assert made.num_rows == 2 * (4 + 1 + 1 + 4)
    looped: list[pa.Table] = []
    tg.run(query, on="local", to=looped.append, operators="single", progress=False)
    assert difference(pa.concat_tables(looped), made) is None


def test_a_map_of_times_that_lie_thousands_of_years_apart() -> None:
    given = table([-FAR // 4, 0, FAR, FAR], [1, 2, 3, 3], [1, 2, 3, 3])
    query = stream(given).map_batches(lambda batch: pa.Table.from_batches([batch, batch]))
    for operators in ("multi", "single"):
        made: list[pa.Table] = []
        tg.run(query, on="local", to=made.append, operators=operators, progress=False)
        assert difference(pa.concat_tables(made), answer(query).rows) is None


def test_numbers_that_are_too_large_for_a_loop_are_compared_all_the_same() -> None:
    given = table([1, 2, 3], [1, 1, 1], [2**62, 2**62 - 1, -(2**62)])
    query = joined(given, window="1 second", where=lambda l, r: l.n + r.n > 2**62)
    made = emitted(lowered(query, "multi"), given, given)
    assert sorted(zip(made["n"].to_pylist(), made["n_right"].to_pylist(), strict=True)) == [
        (2**62 - 1, 2**62 - 1),
        (2**62 - 1, 2**62),
        (2**62, 2**62 - 1),
        (2**62, 2**62),
    ]


def test_a_bag_of_many_rows_loops_through_all_of_them() -> None:
    """Every row of a bag is a round; a loop that copied what is left to unfold would take minutes."""
    given = table([0] * 400 + [2_000_000] * 3, [1] * 400 + [2] * 3, list(range(403)))
    query = joined(given, window="1 second")
    made: list[pa.Table] = []
    tg.run(query, on="local", to=made.append, operators="single", progress=False)
    pairs = (
        pa.concat_tables(made)
        .select(["n", "n_right", "window_start"])
        .sort_by([("n", "ascending"), ("n_right", "ascending")])
    )
    expected = [(n, m) for part in (range(400), range(400, 403)) for n in part for m in part]
    assert list(zip(pairs["n"].to_pylist(), pairs["n_right"].to_pylist(), strict=True)) == expected


def test_more_than_one_row_of_a_single_aggregate_is_an_error() -> None:
    given = table([1], [1], [1])
    node = lowered(stream(given).filter(nw.col("n") > 0), "single").node
    bags = Bags(pa.table({}), np.array([1]), np.array([2]), (given,), (np.array([0]),), (np.array([0]),))
    twice = BagRows(given.select(["k", "n"]).take([0, 0]), np.array([0, 0]))
    with pytest.raises(DataError, match="a window gave 2 rows, and may give one"):
        list(rows_of(node, bags, lambda _: twice))  # type: ignore[arg-type]


def test_windows_expire_once_and_tuples_stay_as_long_as_one_is_open() -> None:
    given = table([0, 1_500_000, 2_500_000], [1, 1, 1], [1, 2, 3])
    query = lowered(joined(given, window="2 seconds", every="1 second"), "multi")
    held = HeldBags(query.node)  # type: ignore[arg-type]
    for side in (0, 1):
        held.hold(0, side, given)
    emit = emitter_of(query.node)  # type: ignore[arg-type]
    found = []
    for before, after in ((START, 1_000_000), (1_000_000, 2_000_000), (2_000_000, 2_500_000), (2_500_000, END)):
        expiring = held.expire(0, before, after) if held.expires(before, after) else None
        rows = [] if expiring is None else list(emit(held, expiring, held.keyed(expiring, False), None))
        found.append((sum(each.num_rows for each in rows), held.rows))
    # Windows from -1 s, 0 s, 1 s and 2 s hold the numbers 1, 1 2, 2 3 and 3.
    assert found == [(1, 6), (4, 4), (0, 4), (5, 0)]


def test_a_cell_keeps_few_chunks_and_what_windows_still_need() -> None:
    given = table([200_000 * at for at in range(60)], [at % 3 for at in range(60)], list(range(60)))
    query = joined(given, window="4 seconds", every="1 second", where=lambda l, r: l.n < r.n)
    driver = Driver(lowered(query, "multi").node, cells=2, instances=2)
    most = 0
    for at in range(0, 60, 2):
        driver.batch(Batch({"s": [given.slice(at, 2)]}, restart=at % 20 == 10))
        most = max(most, len(driver.held()))
    driver.batch(Batch({}, ends=True))
    made = pa.concat_tables(driver.outcome.tables)
    assert difference(made.cast(query.schema), answer(query).rows) is None
    # Two cells with two sides each: as many as are merged, and one more.
    assert most <= 4 * (MOST_CHUNKS + 1)
    assert not driver.held()
