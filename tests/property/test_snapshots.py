"""Generated queries whose runs in this process end at any operation on their files, and go on, against the law."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.as_of_cases import as_of_cases
from tests.kit.cases import any_features, cases
from tests.kit.check_durable import any_attempts, check_durable
from tests.kit.check_local import arrivals
from tests.kit.count_window_cases import count_window_cases
from tests.kit.dedup_cases import dedup_cases
from tests.kit.effort import examples
from tests.kit.join_cases import join_cases
from tests.kit.keyed_apply_cases import keyed_apply_cases
from tests.kit.running_cases import running_cases
from tests.kit.session_cases import session_cases
from tests.kit.store_cases import store_cases


@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_windows_go_on_where_they_were(data: st.DataObject) -> None:
    case = data.draw(any_features().flatmap(cases))
    check_durable(case.query, arrivals(case), data.draw(any_attempts()), case.features)


@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_joins_go_on_where_they_were(data: st.DataObject) -> None:
    case = data.draw(join_cases())
    check_durable(case.query, case.batches, data.draw(any_attempts()), case.features)


@pytest.mark.parametrize(
    "kind", [keyed_apply_cases, running_cases, dedup_cases, session_cases, count_window_cases, store_cases, as_of_cases]
)
def test_what_takes_settled_tuples_goes_on_where_it_was(kind: Any) -> None:
    @settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(kind())
        check_durable(case.query, case.batches, data.draw(any_attempts()), case.told)

    check()
