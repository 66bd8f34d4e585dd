"""A few seconds under load with instances that change all the time: nothing is lost, nothing is doubled."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.soak import SCHEMA, Checked, soak


def test_nothing_is_lost_or_doubled_while_instances_change() -> None:
    done = soak(seconds=3.0, rate=200_000, seed=7)
    assert done.wrong == []
    assert done.tuples > 0 and done.changes > 0 and done.results > 0


def results(tuples: int, lost: int = 0, doubled: int = 0) -> pa.Table:
    """The results of tuples that all lie in the first ten seconds, with some windows' rows changed."""
    made = []
    for start in range(-50_000_000, 10_000_000, 10_000_000):
        rows = [{"window_start": start, "key": index * 7 % 1_000, "n": 1, "mean": index % 8} for index in range(tuples)]
        made += rows
    made = made[lost:] + made[:doubled]
    kinds = [("window_start", pa.int64()), ("key", pa.int64()), ("n", pa.int64()), ("mean", pa.float64())]
    table = pa.Table.from_pylist(made, schema=pa.schema(kinds))
    return table.set_column(0, "window_start", table.column(0).cast(SCHEMA.field("ts").type))


@pytest.mark.parametrize(("lost", "doubled", "right"), [(0, 0, True), (1, 0, False), (0, 1, False), (100, 0, False)])
def test_the_check_of_a_soak_can_fail(lost: int, doubled: int, right: bool) -> None:
    checked = Checked()
    checked(results(100, lost, doubled))
    checked.end(100)
    assert (checked.wrong == []) == right
