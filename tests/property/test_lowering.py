"""Generated queries made of Aggregates: they mean the same, and every runtime gives what they mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.cases import Case, any_features, cases
from tests.kit.check import check_case
from tests.kit.check_join import check_join, check_join_on_cells
from tests.kit.check_local import any_reconfigurer, any_settings, arrivals, check_locally
from tests.kit.effort import examples
from tests.kit.join_cases import JoinCase, SparkJoinCase, join_cases, spark_join_cases
from tests.kit.lowering import honest_events, in_order, lowered_case
from tidegate.errors import DataError
from tidegate.reference import interpret
from tidegate.testing import difference

EITHER = st.sampled_from(["multi", "single"])
WITHOUT_LATENESS = any_features().map(lambda features: replace(features, lateness="none"))
OVER_WINDOWS = join_cases(hows=["inner"]).filter(lambda case: case.query.node.window is not None)
SPARK_OVER_WINDOWS = spark_join_cases(hows=["inner"]).filter(lambda case: case.query.node.window is not None)
UNHURRIED = list(HealthCheck)


@settings(max_examples=examples(20), suppress_health_check=UNHURRIED)
@given(case=WITHOUT_LATENESS.flatmap(cases), operators=EITHER)
def test_maps_from_aggregates_mean_the_same(case: Case, operators: str) -> None:
    events = honest_events(case.query, arrivals(case))
    try:
        dedicated = interpret(case.query.node, events)
    except DataError:
        return  # a sum that does not fit
    other = interpret(lowered_case(case, operators).query.node, events)
    assert (dedicated.late, other.late) == (0, 0)
    assert difference(other.rows, dedicated.rows) is None


@settings(max_examples=examples(12), suppress_health_check=UNHURRIED)
@given(case=OVER_WINDOWS, operators=EITHER)
def test_joins_from_aggregates_mean_the_same(case: JoinCase, operators: str) -> None:
    events = honest_events(case.query, case.batches)
    try:
        dedicated = interpret(case.query.node, events)
    except DataError:
        return  # a predicate that has no value
    other = interpret(lowered_case(case, operators).query.node, events)
    assert (dedicated.late, other.late) == (0, 0)
    assert difference(other.rows, dedicated.rows) is None


@settings(max_examples=examples(12), suppress_health_check=UNHURRIED)
@given(data=st.data(), operators=EITHER)
def test_in_process_the_output_is_the_laws_however_instances_change(data: st.DataObject, operators: str) -> None:
    case = lowered_case(data.draw(WITHOUT_LATENESS.flatmap(cases)), operators)
    check_locally(case, data.draw(any_settings()), data.draw(any_reconfigurer()))


@settings(max_examples=examples(8), suppress_health_check=UNHURRIED)
@given(data=st.data(), operators=EITHER)
def test_in_process_pairs_are_the_laws_however_instances_change(data: st.DataObject, operators: str) -> None:
    case = in_order(lowered_case(data.draw(OVER_WINDOWS), operators))
    check_join(case, data.draw(any_settings()), data.draw(any_reconfigurer()))


def test_on_cells_the_output_is_the_laws_at_the_watermarks_of_the_run(tmp_path: Path) -> None:
    @settings(max_examples=examples(6), derandomize=True, database=None, suppress_health_check=UNHURRIED)
    @given(case=WITHOUT_LATENESS.flatmap(cases))
    def check(case: Case) -> None:
        check_case(lowered_case(case, "multi"), tmp_path)

    check()


def test_on_cells_pairs_are_the_laws_at_the_watermarks_of_the_run(tmp_path: Path) -> None:
    @settings(max_examples=examples(3), derandomize=True, database=None, suppress_health_check=UNHURRIED)
    @given(case=SPARK_OVER_WINDOWS)
    def check(case: SparkJoinCase) -> None:
        check_join_on_cells(lowered_case(case, "multi"), tmp_path)

    check()
