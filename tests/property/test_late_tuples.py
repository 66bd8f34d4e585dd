"""Late tuples that runs write, for generated queries, data, reconfigurations and faults, against the law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import any_features, cases
from tests.kit.check_join import check_join
from tests.kit.check_keyed_apply import check_keyed_apply
from tests.kit.check_local import (
    Reconfigurer,
    any_reconfigurer,
    any_settings,
    arrivals,
    check_locally,
    events_of,
)
from tests.kit.effort import examples
from tests.kit.join_cases import join_cases, spark_join_cases
from tests.kit.keyed_apply_cases import keyed_apply_cases
from tests.kit.late_files import check_late_files
from tests.kit.local_runs import run_in_step
from tests.kit.spark_driver import Driver
from tidegate.errors import DataError
from tidegate.late_tuples import LateFolder
from tidegate.query.nodes import Node
from tidegate.query.outputs import untagged
from tidegate.reference import Answer, interpret
from tidegate.runtime.local.settings import Settings
from tidegate.stream import one_query
from tidegate.testing import difference

Check = Callable[[Any, Settings, Reconfigurer], None]


@pytest.mark.parametrize(
    ("drawn", "check"),
    [
        pytest.param(any_features().flatmap(cases), check_locally, id="windows"),
        pytest.param(join_cases(), check_join, id="joins"),
        pytest.param(keyed_apply_cases(), check_keyed_apply, id="apply"),
    ],
)
@settings(max_examples=examples(8))
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
@settings(max_examples=examples(3))
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


def with_late(query: tg.Stream) -> tuple[dict[str, tg.Stream], Node]:
    """A query with its late tuples as another result."""
    results = {"rows": query, "late": query.late()}
    return results, one_query("test", results).node


def check_late(results: dict[str, tg.Stream], tables: list[pa.Table], law: Answer) -> None:
    parts = [untagged(table, "late") for table in tables]
    told = difference(pa.concat_tables([results["late"].schema.empty_table(), *parts]), law["late"])
    assert told is None, f"late tuples differ (left: the run, right: the law)\n{told}"
    assert law["late"].num_rows == law.late


@settings(max_examples=examples(6))
@given(data=st.data())
def test_late_tuples_as_a_result_are_the_laws_however_instances_change(data: st.DataObject) -> None:
    case, reconfigure = data.draw(any_features().flatmap(cases)), data.draw(any_reconfigurer())
    results, query = with_late(case.query)
    try:
        run = run_in_step(query, arrivals(case), data.draw(any_settings()), reconfigure)
        law = interpret(query, events_of(tg.Stream(query), arrivals(case)))
    except DataError:
        return  # a sum that does not fit, or a predicate that fails: other tests compare those
    assert run.job.late == law.late
    check_late(results, run.tables, law)


@settings(max_examples=examples(3))
@given(data=st.data())
def test_late_tuples_as_a_result_are_the_laws_whatever_happens_to_batches(data: st.DataObject) -> None:
    case = data.draw(any_features().flatmap(cases))
    results, query = with_late(case.query)
    driver = Driver(query, case.cells, instances=case.instances)
    try:
        outcome = driver.run(case.batches, case.no_data_after)
        law = interpret(query, outcome.events)
    except DataError:
        return  # as above
    assert outcome.late == law.late
    check_late(results, outcome.tables, law)
