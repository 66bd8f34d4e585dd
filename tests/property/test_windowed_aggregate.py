"""The stateful stage, driven as Spark drives it, gives the reference's answer in generated cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.kit.cases import Case, cases
from tests.kit.check import check_case
from tests.kit.coverage import Coverage, covering_features
from tests.kit.effort import examples

CASES_PER_COMBINATION = 1


def test_the_run_gives_the_answer_of_the_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coverage = Coverage()
    for features in covering_features():

        @settings(
            max_examples=examples(CASES_PER_COMBINATION),
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases(features))
        def check(case: Case) -> None:
            coverage.add(case.features)
            check_case(case, tmp_path)

        check()
    with capsys.disabled():
        print(f"\n{coverage.table()}")
    assert not coverage.missing()
