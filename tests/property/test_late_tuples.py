"""Late tuples that runs write, for generated queries, data, reconfigurations and faults, against the law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.cases import any_features, cases
from tests.kit.check_join import check_join
from tests.kit.check_keyed_apply import check_keyed_apply
from tests.kit.check_local import Reconfigurer, any_reconfigurer, any_settings, check_locally
from tests.kit.effort import examples
from tests.kit.join_cases import join_cases, spark_join_cases
from tests.kit.keyed_apply_cases import keyed_apply_cases
from tests.kit.late_files import check_late_files
from tests.kit.spark_driver import Driver
from tidegate.errors import DataError
from tidegate.late_tuples import LateFolder
from tidegate.reference import interpret
from tidegate.runtime.local.settings import Settings

Check = Callable[[Any, Settings, Reconfigurer], None]


@pytest.mark.parametrize(
    ("drawn", "check"),
    [
        pytest.param(any_features().flatmap(cases), check_locally, id="windows"),
        pytest.param(join_cases(), check_join, id="joins"),
        pytest.param(keyed_apply_cases(), check_keyed_apply, id="apply"),
    ],
)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_late_tuples_are_the_laws_however_instances_change(
    drawn: st.SearchStrategy[Any], check: Check, data: st.DataObject
) -> None:
    case, reconfigure = data.draw(drawn), data.draw(any_reconfigurer())
    with TemporaryDirectory() as folder:
        check(case, replace(data.draw(any_settings()), late_to=LateFolder(Path(folder))), reconfigure)


@pytest.mark.parametrize(
    "drawn",
    [
        pytest.param(any_features().flatmap(cases), id="windows"),
        pytest.param(spark_join_cases(), id="joins"),
    ],
)
@settings(max_examples=examples(5))
@given(data=st.data())
def test_late_tuples_are_the_laws_whatever_happens_to_batches(
    drawn: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    case = data.draw(drawn)
    with TemporaryDirectory() as folder:
        driver = Driver(case.query.node, case.cells, instances=case.instances, late_to=folder)
        try:
            outcome = driver.run(case.batches, case.no_data_after)
            law = interpret(case.query.node, outcome.events)
        except DataError:
            return  # a sum that does not fit, or a predicate that fails: other tests compare those
        check_late_files(outcome.late, driver.plan, Path(folder), law)
