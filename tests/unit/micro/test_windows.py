"""Windows, keys, watermarks and the order of rows in one process, against answers from the definition."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.kit import micro_graphs as graphs
from tidegate import micro
from tidegate.micro.bags import WindowBags
from tidegate.micro.graph import Row
from tidegate.watermark import END

SHAPES = [(1, 1), (10, 10), (9, 3), (5, 2), (7, 7), (30, 1)]


def in_batches(split: tuple[list[Row], int], skip: int) -> Iterator[list[Row]]:
    rows, length = split
    for first in range(skip, len(rows), length):
        yield rows[first : first + length]


@pytest.mark.parametrize(("size", "every"), SHAPES)
@pytest.mark.parametrize("length", [1, 7, 1000])
def test_a_map_a_filter_and_a_window(size: int, every: int, length: int) -> None:
    rows = graphs.generated(120, 5, size)
    source = micro.source("rows", [(rows, length)], in_batches)
    assert sorted(micro.collect(graphs.sums(source, size, every))) == graphs.expected_sums(rows, size, every)


@pytest.mark.parametrize(("size", "every"), SHAPES)
def test_a_join_of_a_stream_with_itself(size: int, every: int) -> None:
    rows = graphs.generated(60, 3, every)
    source = micro.source("rows", [rows[0::3], rows[1::3], rows[2::3]])
    assert sorted(micro.collect(graphs.self_join(source, size, every))) == graphs.expected_pairs(rows, size, every)


def test_results_leave_in_the_order_of_time_as_windows_expire() -> None:
    """
    rows      0  3  4 | 5 . 8 |           | 20
    windows   [0, 5)    [5, 10)             [20, 25)
    """
    seen: list[Row] = []
    rows = [(t, "a", 1) for t in (0, 3, 4, 5, 8, 20)]
    seen_when: list[tuple[int, int]] = []

    def reading(split: list[Row], skip: int) -> Iterator[list[Row]]:
        for row in split[skip:]:
            seen_when.append((row[0], len(seen)))
            yield [row]

    stage = micro.aggregate(
        "n", micro.source("s", [rows], reading), function=lambda k, s, r: [(s, len(r))], size_us=5, key=graphs.nothing
    )
    assert micro.run(stage, to=seen.extend) == 3
    assert seen == [(4, 0, 3), (9, 5, 2), (24, 20, 1)]
    # When row 8 is asked for, row 5 has been processed: W = 5, and the first window is out.
    assert seen_when == [(0, 0), (3, 0), (4, 0), (5, 0), (8, 1), (20, 1)]


@pytest.mark.parametrize("seed", range(10))
def test_any_interleaving_of_rows_and_watermarks(seed: int) -> None:
    """As long as no row is behind the watermark, when it moves does not matter."""
    dice = random.Random(seed)
    size, every = dice.choice(SHAPES)
    rows = graphs.generated(40, 4, seed)
    stage = graphs.sums(micro.source("rows", [[]]), size, every)
    bags = WindowBags(stage)
    waiting, out = list(rows), []
    dice.shuffle(waiting)
    while waiting:
        for _ in range(dice.randrange(4)):
            if waiting:
                bags.add([waiting.pop()])
        safe = min((row[0] for row in waiting), default=END)
        if dice.random() < 0.5:
            out += bags.advance(max(bags.watermark, min(safe, bags.watermark + dice.randrange(40))))
    out += bags.advance(END)
    assert [row[0] for row in out] == sorted(row[0] for row in out)
    twice = WindowBags(stage)
    twice.add(rows)
    assert sorted(twice.advance(END)) == sorted(out)
    assert not bags.snapshot()[1], "rows that no window needs are dropped"


def test_no_input_gives_nothing() -> None:
    assert micro.collect(graphs.sums(micro.source("rows", []), 5, 5)) == []
    assert micro.collect(graphs.sums(micro.source("rows", [[], []]), 5, 5)) == []


def test_rows_before_1970_and_far_apart() -> None:
    rows = [(-(10**15), "a", 1), (-1, "a", 1), (10**16, "a", 1)]
    found = micro.collect(graphs.sums(micro.source("rows", [rows]), 7, 2))
    assert sorted(found) == graphs.expected_sums(rows, 7, 2)


def test_a_row_out_of_order_stops_the_run_and_is_named() -> None:
    rows = [(5, "a", 1), (7, "a", 1), (6, "a", 1)]
    with pytest.raises(
        tg.DataError, match=r"source 'rows', split 0: row 2 has the time 1970-01-01 00:00:00.000006, after a"
    ):
        micro.collect(graphs.sums(micro.source("rows", [rows]), 5, 5))
    allowed = micro.source("rows", [rows], disorder_us=1)
    assert sorted(micro.collect(graphs.sums(allowed, 5, 5))) == graphs.expected_sums(rows, 5, 5)


def test_disorder_counts_from_the_newest_row_of_all_batches() -> None:
    rows = [(time, "a", 1) for time in (10, 5, 9, 4)]
    with pytest.raises(
        tg.DataError, match=r"row 3 has the time .*000004, after a row of .*000010; rows may be 5 micro"
    ):
        micro.collect(graphs.sums(micro.source("rows", [(rows, 1)], in_batches, disorder_us=5), 5, 5))


@pytest.mark.parametrize("row", [("then", "a", 1), (), (None, 1, 1), 7])
def test_a_row_without_time_is_refused(row: Any) -> None:
    with pytest.raises(tg.DataError, match="source 'rows': a row is a tuple whose first value is its event time"):
        micro.collect(graphs.sums(micro.source("rows", [[row]]), 5, 5))


def test_times_in_another_unit_are_refused() -> None:
    with pytest.raises(tg.DataError, match="Is it in another unit"):
        micro.collect(graphs.sums(micro.source("rows", [[(1_700_000_000_000_000_000, "a", 1)]]), 5, 5))


@pytest.mark.parametrize("distributes", [True, False])
def test_a_failing_function_is_named_with_key_and_window(distributes: bool) -> None:
    def failing(key: Any, start: int, rows: Any) -> Iterator[Row]:
        yield (1,)
        raise ValueError("no luck")

    source = micro.source("rows", [[(3, "a", 1)]])
    stage = micro.aggregate("unlucky", source, function=failing, size_us=1, distributes=distributes)
    expected = (
        r"stage 'unlucky': the function raised ValueError: no luck on key \(3, 'a', 1\) in the window \[1970.*000003, "
    )
    with pytest.raises(tg.DataError, match=expected) as raised:
        micro.collect(stage)
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_failing_key_function_is_named_with_its_row() -> None:
    stage = micro.aggregate(
        "k", micro.source("rows", [[(3, 1)]]), function=graphs.odd, size_us=5, key=lambda row: row[9]
    )
    with pytest.raises(tg.DataError, match=r"stage 'k': the key function raised IndexError.* on the row \(3, 1\)"):
        micro.collect(stage)


def test_mistakes_are_found_when_a_graph_is_built() -> None:
    source = micro.source("rows", [[]])
    with pytest.raises(tg.QueryError, match=r"advance .* is longer than its size"):
        micro.aggregate("a", source, function=graphs.odd, size_us=1, every_us=2)
    with pytest.raises(tg.QueryError, match="two stages are called 'rows'"):
        micro.aggregate("rows", source, function=graphs.odd, size_us=1)
    with pytest.raises(tg.QueryError, match="at least one source"):
        micro.aggregate("a", function=graphs.odd, size_us=1)
    with pytest.raises(tg.QueryError, match="One list of rows is one split"):
        micro.source("rows", [(1, 2)])
    with pytest.raises(tg.QueryError, match="has no key"):
        micro.aggregate("a", source, function=graphs.odd, size_us=1, key=graphs.first_value, distributes=True)
    with pytest.raises(tg.QueryError, match="run takes a stage"):
        micro.collect(source)  # type: ignore[arg-type]
