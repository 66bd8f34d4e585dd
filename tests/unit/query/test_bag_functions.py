"""What functions of bags give, worked out by hand."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import DataError
from tidegate.query.bag_functions import (
    EMBEDDED,
    INDEX,
    ITEMS,
    NUMBER,
    Aggregated,
    AtIndex,
    Embed,
    ForEach,
    PairUp,
    Unfold,
)
from tidegate.query.bags import BagRows, Bags

TS = pa.timestamp("us")
COLUMNS = {"ts": TS, "k": pa.string(), "n": pa.int64()}
ITEM = pa.list_view(pa.struct([("n", pa.int64())]))


def bags_of(*bags: tuple[int, Any, list[tuple[Any, ...]]], size: int = 1) -> Bags:
    """Bags of one input, each with its window's start, its key and its tuples."""
    entries = [entry for _, _, tuples in bags for entry in tuples]
    table = pa.table(
        [pa.array([entry[at] for entry in entries], kind) for at, kind in enumerate(COLUMNS.values())],
        schema=pa.schema(COLUMNS),
    )
    starts = np.array([start for start, _, _ in bags], np.int64)
    of = np.repeat(np.arange(len(bags)), [len(tuples) for _, _, tuples in bags])
    keys = pa.table({"k": pa.array([key for _, key, _ in bags], pa.string())})
    return Bags(keys, starts, starts + size, (table,), (np.arange(len(entries)),), (of,))


def embedded(*tuples: tuple[int, list[int], int, int], bags: list[int] | None = None) -> Bags:
    """Tuples that embed numbers: their time, what they embed, the index and the number; each a bag of its own."""
    of = np.array(range(len(tuples)) if bags is None else bags, np.int64)
    table = pa.table(
        {
            "ts": pa.array([time for time, *_ in tuples], TS),
            ITEMS: pa.array([[{"n": n} for n in items] for _, items, _, _ in tuples], ITEM),
            INDEX: pa.array([index for *_, index, _ in tuples], pa.int64()),
            NUMBER: pa.array([number for *_, number in tuples], pa.int64()),
        }
    )
    first = np.flatnonzero(np.diff(of, prepend=-1))
    starts = np.array([tuples[at][0] for at in first.tolist()], np.int64)
    return Bags(pa.table({}), starts, starts + 1, (table,), (np.arange(len(tuples)),), (of,))


def unfolded(found: BagRows) -> list[tuple[int, list[int], int, int]]:
    """The bag of each row, what it embeds, its index and its number."""
    rows = found.rows.to_pylist()
    return [
        (int(of), [item["n"] for item in row[ITEMS]], row[INDEX], row[NUMBER])
        for of, row in zip(found.of, rows, strict=True)
    ]


def stream() -> tg.Stream:
    return tg.stream(COLUMNS, time="ts", name="s")


def test_a_filter_of_every_tuple_keeps_bags_apart_by_time() -> None:
    function = ForEach((stream().filter(nw.col("n") > 1).node,))  # type: ignore[arg-type]
    found = function(bags_of((5, "a", [(5, "a", 1), (5, "a", 2)]), (7, "b", [(7, "b", 3)]), (9, "b", [(9, "b", 0)])))
    assert found.rows.to_pylist() == [{"k": "a", "n": 2}, {"k": "b", "n": 3}]
    assert found.of.tolist() == [0, 1]


def test_a_map_that_changes_the_time_is_named() -> None:
    def later(batch: pa.RecordBatch) -> pa.RecordBatch:
        moved = pa.array([time.value + 1 for time in batch.column("ts")], pa.int64()).cast(TS)
        return batch.set_column(0, "ts", moved)

    function = ForEach((stream().map_batches(later, name="later").node,))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="step 'later': the function gave a row the event time 6"):
        function(bags_of((5, "a", [(5, "a", 1)])))


def test_all_rows_of_a_bag_are_embedded_in_one_and_none_in_none() -> None:
    twice = stream().map_batches(lambda batch: pa.Table.from_batches([batch, batch])).node
    function = Embed(ForEach((twice,)))  # type: ignore[arg-type]
    # Two bags of one time: what is embedded must not be mixed up.
    found = function(bags_of((5, "a", [(5, "a", 1)]), (5, "b", [(5, "b", 2), (5, "b", 2)]), (6, "a", [(6, "a", 3)])))
    assert found.of.tolist() == [0, 1, 2]
    assert [[item["n"] for item in items] for items in found.rows[ITEMS].to_pylist()] == [[1, 1], [2, 2, 2, 2], [3, 3]]
    assert found.rows[INDEX].to_pylist() == [EMBEDDED] * 3
    assert found.rows[NUMBER].to_pylist() == [0, 1, 0]
    nothing = Embed(ForEach((stream().filter(nw.col("n") > 9).node,)))  # type: ignore[arg-type]
    assert len(nothing(bags_of((5, "a", [(5, "a", 1)]))).of) == 0
    assert len(nothing(bags_of()).of) == 0


def test_a_loop_goes_from_the_first_element_to_the_last() -> None:
    assert unfolded(Unfold()(embedded((5, [7, 8], EMBEDDED, 0)))) == [(0, [7, 8], 0, 0)]
    assert unfolded(Unfold()(embedded((5, [7, 8], 0, 0)))) == [(0, [7, 8], 1, 0)]
    assert unfolded(Unfold()(embedded((5, [7, 8], 1, 0)))) == []


def test_one_element_loops_once_and_no_element_never() -> None:
    assert unfolded(Unfold()(embedded((5, [7], EMBEDDED, 0)))) == [(0, [7], 0, 0)]
    assert unfolded(Unfold()(embedded((5, [7], 0, 0)))) == []
    assert unfolded(Unfold()(embedded((5, [], EMBEDDED, 0)))) == []


def test_equal_tuples_are_a_bag_and_not_a_set() -> None:
    same = embedded((5, [7, 7], EMBEDDED, 0), (5, [7, 7], EMBEDDED, 0), bags=[0, 0])
    assert unfolded(Unfold()(same)) == [(0, [7, 7, 7, 7], 0, 0)]


def test_fresh_and_looping_tuples_are_told_apart() -> None:
    mixed = embedded(
        (5, [1, 2], EMBEDDED, 0), (5, [3, 4], 0, 1), (6, [], EMBEDDED, 0), (7, [5], 0, 0), (8, [6], EMBEDDED, 2)
    )
    assert sorted(unfolded(Unfold()(mixed))) == [(0, [1, 2], 0, 0), (1, [3, 4], 1, 1), (4, [6], 0, 2)]


def test_what_is_pointed_at_is_picked() -> None:
    found = AtIndex()(embedded((5, [7, 8], 1, 0), (5, [9], 0, 1)))
    assert found.rows.to_pylist() == [{"n": 8}, {"n": 9}]
    assert found.of.tolist() == [0, 1]


def test_pairs_of_a_bag_with_a_null_key_are_none() -> None:
    left, right = stream(), tg.stream(COLUMNS, time="ts", name="other")
    join = left.join(right, on="k", window="1 second", where=lambda l, r: l.n < r.n).node
    one, other = (
        bags_of((0, "a", [(1, "a", 1), (2, "a", 5)]), (0, None, [(3, None, 1)]), size=1_000_000),
        bags_of((0, "a", [(4, "a", 3)]), (0, None, [(5, None, 2)]), size=1_000_000),
    )
    both = Bags(one.keys, one.starts, one.ends, one.tuples + other.tuples, one.rows + other.rows, one.bags + other.bags)
    found = PairUp(join)(both)  # type: ignore[arg-type]
    assert [(row["n"], row["n_right"]) for row in found.rows.to_pylist()] == [(1, 3)]
    assert found.of.tolist() == [0]


def test_the_declared_aggregates_of_bags() -> None:
    node = stream().key_by("k").window("1 second").aggregate(n=tg.sum("n"), last=tg.last("n")).node
    found = Aggregated(node)(  # type: ignore[arg-type]
        bags_of((0, "a", [(3, "a", 1), (2, "a", 4)]), (1_000_000, "b", [(1_000_005, "b", 9)]), size=1_000_000)
    )
    assert [(row["k"], row["n"], row["last"]) for row in found.rows.to_pylist()] == [("a", 5, 1), ("b", 9, 9)]
    assert found.of.tolist() == [0, 1]
