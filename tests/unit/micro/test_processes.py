"""Several processes by key: the same rows as one, whatever the skew; and failures come back with their subject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import tidegate as tg
from tests.kit import micro_graphs as graphs
from tidegate import micro
from tidegate.micro.pipeline import stable_hash


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_give_what_one_gives(processes: int) -> None:
    """Five splits, one of them empty; key k0 has most of the rows."""
    parts = [graphs.generated(count, 12, seed) for seed, count in enumerate((900, 500, 0, 40, 700))]
    rows = [row for part in parts for row in part]
    source = micro.source("rows", parts)
    assert sorted(micro.collect(graphs.sums(source, 20, 5), processes=processes)) == graphs.expected_sums(rows, 20, 5)


def test_a_join_over_two_processes() -> None:
    parts = [graphs.generated(60, 3, seed) for seed in (1, 2)]
    found = micro.collect(graphs.self_join(micro.source("rows", parts), 10, 5), processes=2)
    assert found == sorted(found, key=lambda row: row[0])
    assert sorted(found) == graphs.expected_pairs(parts[0] + parts[1], 10, 5)


def test_one_key_and_no_rows_at_all() -> None:
    alone = [(time, "a", time) for time in range(300)]
    assert sorted(micro.collect(graphs.sums(micro.source("rows", [alone]), 7, 7), processes=2)) == graphs.expected_sums(
        alone, 7, 7
    )
    assert micro.collect(graphs.sums(micro.source("rows", []), 7, 7), processes=2) == []


def failing(key: Any, start: int, rows: Sequence[micro.Row]) -> list[micro.Row]:
    if key == "k1":
        raise ValueError("no luck")
    return []


def by_list(row: micro.Row) -> Any:
    return frozenset(row)


def test_a_failure_in_another_process_names_stage_key_and_window() -> None:
    source = micro.source("rows", [graphs.generated(100, 4, 1), graphs.generated(100, 4, 2)])
    stage = micro.aggregate("unlucky", source, function=failing, size_us=10, key=graphs.first_value)
    with pytest.raises(
        tg.DataError, match="stage 'unlucky': the function raised ValueError: no luck on key 'k1' in"
    ) as raised:
        micro.collect(stage, processes=2)
    assert "in process" in raised.value.__notes__[0] and "ValueError" in raised.value.__notes__[0]


def test_a_key_that_no_process_can_own_is_named() -> None:
    source = micro.source("rows", [graphs.generated(10, 4, 1)])
    stage = micro.aggregate("odd", source, function=graphs.odd, size_us=10, key=by_list)
    with pytest.raises(
        tg.DataError, match="stage 'odd': a key is a number, text, bytes, None or a tuple of them; got froz"
    ):
        micro.collect(stage, processes=2)


def test_a_function_that_cannot_be_sent_is_refused() -> None:
    stage = micro.aggregate("here", micro.source("rows", [[]]), function=lambda key, at, rows: [], size_us=1)
    with pytest.raises(tg.QueryError, match=r"'here': .*lambda.* cannot be sent to another process"):
        micro.collect(stage, processes=2)


def test_equal_keys_have_one_owner() -> None:
    assert stable_hash((1, "é", None)) == stable_hash((True, "é", None)) == stable_hash((1.0, "é", None))
    assert stable_hash(float("nan")) == stable_hash(float("inf") - float("inf"))
    assert len({stable_hash(key) % 7 for key in [("a", n) for n in range(50)]}) == 7
