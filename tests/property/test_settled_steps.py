"""Generated steps that take settled tuples, in this process and as Spark drives them, against the law: joins over the last
tuples, as-of joins, count windows, sessions and dedups.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.as_of_cases import as_of_cases
from tests.kit.check_keyed_apply import check_keyed_apply
from tests.kit.check_keyed_apply_cells import any_driver, check_on_driver
from tests.kit.check_local import any_reconfigurer, any_settings
from tests.kit.count_join_cases import count_join_cases
from tests.kit.count_window_cases import count_window_cases
from tests.kit.dedup_cases import dedup_cases
from tests.kit.effort import examples
from tests.kit.keyed_apply_cases import KeyedApplyCase
from tests.kit.session_cases import session_cases
from tidegate.operators import as_of_slots, keyed_rows_cell, logged_slots, session_cell, shared_sessions

Cases = Callable[[], st.SearchStrategy[KeyedApplyCase]]


def compacting(kinds: dict[Cases, ModuleType], limit: str) -> pytest.MarkDecorator:
    """Each kind of cases as it is, and with state that is merged as soon as there are two pieces of it."""
    given_ = [(cases, module, most) for cases, module in kinds.items() for most in (getattr(module, limit), 1)]
    return pytest.mark.parametrize(("cases", "module", "most"), given_)


@compacting(
    {
        count_window_cases: logged_slots,
        count_join_cases: logged_slots,
        session_cases: shared_sessions,
        dedup_cases: logged_slots,
    },
    "MOST_RUNS",
)
def test_the_output_is_the_laws_however_instances_change(
    monkeypatch: pytest.MonkeyPatch, cases: Cases, module: ModuleType, most: int
) -> None:
    monkeypatch.setattr(module, "MOST_RUNS", most)

    @settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_keyed_apply(data.draw(cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))

    check()


@pytest.mark.parametrize("least", [as_of_slots.LEAST_ROWS, 1])
def test_what_as_of_joins_match_is_the_laws_however_instances_change(
    monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(as_of_slots, "LEAST_ROWS", least)

    @settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_keyed_apply(data.draw(as_of_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))

    check()


@compacting(
    {
        as_of_cases: keyed_rows_cell,
        count_window_cases: keyed_rows_cell,
        count_join_cases: keyed_rows_cell,
        session_cases: session_cell,
        dedup_cases: keyed_rows_cell,
    },
    "MOST_CHUNKS",
)
def test_the_output_is_the_laws_whatever_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: Cases, module: ModuleType, most: int
) -> None:
    monkeypatch.setattr(module, "MOST_CHUNKS", most)

    @settings(max_examples=examples(8), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(cases())
        check_on_driver(case, *data.draw(any_driver(case, tmp_path)))

    check()
