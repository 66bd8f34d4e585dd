"""Generated queries made of Aggregates on the engine of one operator, in one process, against the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit import micro_graphs as graphs
from tests.kit.cases import Case, any_features, cases
from tests.kit.check_local import arrivals
from tests.kit.effort import examples
from tests.kit.join_cases import JoinCase, join_cases
from tests.kit.lowering import honest_events, lowered_case
from tests.kit.runtimes import OnMicro
from tidegate import micro
from tidegate.errors import DataError
from tidegate.reference import interpret
from tidegate.testing import difference

UNHURRIED = list(HealthCheck)
WITHOUT_LATENESS = any_features().map(lambda features: replace(features, lateness="none"))
OVER_WINDOWS = join_cases(hows=["inner"]).filter(lambda case: case.query.node.window is not None)


def check(dedicated: tg.Stream, lowered: tg.Stream, batches: list[dict[str, list[pa.Table]]]) -> None:
    try:
        law = interpret(dedicated.node, honest_events(dedicated, batches))
    except DataError:  # a sum that does not fit, a predicate that has no value
        with pytest.raises(DataError):
            OnMicro().run(lowered, [each for batch in batches for each in one_by_one(batch)])
        return
    found = OnMicro().run(lowered, [each for batch in batches for each in one_by_one(batch)])
    assert difference(found.rows, law.rows) is None


def one_by_one(batch: dict[str, list[pa.Table]]) -> list[dict[str, pa.Table]]:
    return [{name: table} for name, tables in batch.items() for table in tables]


@settings(max_examples=examples(30), suppress_health_check=UNHURRIED)
@given(case=WITHOUT_LATENESS.flatmap(cases))
def test_windows_are_the_laws(case: Case) -> None:
    check(case.query, lowered_case(case, "multi").query, arrivals(case))


@settings(max_examples=examples(20), suppress_health_check=UNHURRIED)
@given(case=OVER_WINDOWS)
def test_joins_are_the_laws(case: JoinCase) -> None:
    check(case.query, lowered_case(case, "multi").query, case.batches)


SHAPES = st.sampled_from([(1, 1), (5, 5), (9, 3), (7, 2), (40, 10)])
ROWS = st.lists(st.tuples(st.integers(-30, 60), st.sampled_from("abc"), st.integers(0, 9)), max_size=25)


@settings(max_examples=examples(30), suppress_health_check=UNHURRIED)
@given(splits=st.lists(ROWS, max_size=4), shape=SHAPES, join=st.booleans())
def test_graphs_give_what_plain_loops_give(splits: list[Any], shape: tuple[int, int], join: bool) -> None:
    """Splits out of order as far as they declare: one that lags holds the watermark of all."""
    rows = [row for split in splits for row in split]
    source = micro.source("rows", splits, disorder_us=90)
    graph = (graphs.self_join if join else graphs.sums)(source, *shape)
    expected = (graphs.expected_pairs if join else graphs.expected_sums)(rows, *shape)
    assert sorted(micro.collect(graph)) == expected
