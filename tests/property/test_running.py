"""Generated queries with running state, in this process and driven as Spark drives them, against the law."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.cases import tables
from tests.kit.check_keyed_apply import check_keyed_apply
from tests.kit.check_keyed_apply_cells import any_driver, check_on_driver
from tests.kit.check_local import any_reconfigurer, any_settings
from tests.kit.effort import examples
from tests.kit.keyed_apply_cases import renamed
from tests.kit.local_runs import run_freely
from tests.kit.running_cases import running_cases, running_queries
from tidegate.operators import running_rows
from tidegate.query.nodes import sources
from tidegate.reference import events_of, interpret
from tidegate.testing import difference


@pytest.mark.parametrize("most_unused", [running_rows.MOST_UNUSED, 0])
def test_the_output_is_the_laws_however_instances_change(monkeypatch: pytest.MonkeyPatch, most_unused: int) -> None:
    monkeypatch.setattr(running_rows, "MOST_UNUSED", most_unused)

    @settings(max_examples=examples(8), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_keyed_apply(data.draw(running_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))

    check()


def test_the_output_is_the_laws_whatever_the_batches(tmp_path: Path) -> None:
    @settings(max_examples=examples(12), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(running_cases())
        check_on_driver(case, *data.draw(any_driver(case, tmp_path)))

    check()


@settings(max_examples=examples(12))
@given(data=st.data())
def test_the_last_period_does_not_depend_on_how_far_the_watermark_had_come(data: st.DataObject) -> None:
    """Sources end when they like, with tuples that a filter drops at their ends."""
    query, told = data.draw(running_queries(0))
    given_: dict[str, pa.Table] = {}
    for source in sources(query.node):
        table = data.draw(tables(data.draw(st.sampled_from([0, 1, 4, 9])), 1_700_000_000_000_000)).sort_by("ts")
        given_[source.name] = renamed(table) if source.name == "s1" else table
    run = run_freely(query.node, {name: [table] for name, table in given_.items()}, data.draw(any_settings()))
    made = pa.concat_tables([query.schema.empty_table(), *run.tables])
    law = interpret(query.node, events_of(query.node, given_, data.draw(st.sampled_from([1, 3, 1_000]))))
    assert (different := difference(made, law.rows)) is None, f"{told}\n{different}"
