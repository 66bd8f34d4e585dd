"""Generated queries with as-of joins, in this process and driven as Spark drives them, against the law."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.as_of_cases import as_of_cases
from tests.kit.check_keyed_apply import check_keyed_apply
from tests.kit.check_keyed_apply_cells import any_driver, check_on_driver
from tests.kit.check_local import any_reconfigurer, any_settings
from tests.kit.effort import examples
from tidegate.operators import keyed_rows_cell, logged_slots


@pytest.mark.parametrize("most_runs", [logged_slots.MOST_RUNS, 1])
def test_the_output_is_the_laws_however_instances_change(monkeypatch: pytest.MonkeyPatch, most_runs: int) -> None:
    monkeypatch.setattr(logged_slots, "MOST_RUNS", most_runs)

    @settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_keyed_apply(data.draw(as_of_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))

    check()


@pytest.mark.parametrize("most_chunks", [keyed_rows_cell.MOST_CHUNKS, 1])
def test_the_output_is_the_laws_whatever_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_chunks: int
) -> None:
    monkeypatch.setattr(keyed_rows_cell, "MOST_CHUNKS", most_chunks)

    @settings(max_examples=examples(15), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(as_of_cases())
        check_on_driver(case, *data.draw(any_driver(case, tmp_path)))

    check()
