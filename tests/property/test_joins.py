"""Generated joins against the law: in this process under reconfigurations, and as Spark runs them, with failed attempts."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.check_join import check_join, check_join_on_cells
from tests.kit.check_local import any_reconfigurer, any_settings
from tests.kit.effort import examples
from tests.kit.join_cases import SparkJoinCase, join_cases, spark_join_cases


@settings(max_examples=examples(15))
@given(data=st.data())
def test_pairs_are_the_laws_however_instances_change(data: st.DataObject) -> None:
    check_join(data.draw(join_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))


def test_pairs_on_cells_are_the_laws_at_the_watermarks_of_the_run(tmp_path: Path) -> None:
    @settings(max_examples=examples(6), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=spark_join_cases())
    def check(case: SparkJoinCase) -> None:
        check_join_on_cells(case, tmp_path)

    check()


def test_tuples_that_leave_alone_are_the_laws_where_cells_share_no_keys(tmp_path: Path) -> None:
    @settings(max_examples=examples(15), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=spark_join_cases(keys=["none"], hows=["left", "right", "full", "full", "semi", "anti"]))
    def check(case: SparkJoinCase) -> None:
        check_join_on_cells(case, tmp_path)

    check()


def test_branches_of_one_stream_on_cells_have_one_watermark(tmp_path: Path) -> None:
    """What a filter takes away of one of them, too."""

    @settings(max_examples=examples(4), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=spark_join_cases(sides=["one stream, filtered"], predicates=["none"], after=["aggregate before"]))
    def check(case: SparkJoinCase) -> None:
        check_join_on_cells(case, tmp_path)

    check()
