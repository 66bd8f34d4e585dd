"""Generated queries whose keys are split, as Spark runs them, against the law: with cells that change, faults and moves."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings

from tests.kit.cases import Case, cases, split_features
from tests.kit.check import check_case
from tests.kit.check_join import check_join_on_cells
from tests.kit.effort import examples
from tests.kit.join_cases import SparkJoinCase, spark_join_cases


def test_aggregates_whose_keys_are_split_give_the_answer_of_the_law(tmp_path: Path) -> None:
    @settings(max_examples=examples(12), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=split_features().flatmap(cases))
    def check(case: Case) -> None:
        check_case(case, tmp_path, hot_keys=True)

    check()


def test_joins_whose_keys_are_split_give_the_answer_of_the_law(tmp_path: Path) -> None:
    @settings(max_examples=examples(5), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=spark_join_cases(hows=["inner"]))
    def check(case: SparkJoinCase) -> None:
        check_join_on_cells(case, tmp_path, hot_keys=True)

    check()
