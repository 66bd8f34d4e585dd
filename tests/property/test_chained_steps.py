"""A second stateful step behind a generated one, driven as Spark drives it, gives the reference's answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import Case, any_features, cases
from tests.kit.check import check_case
from tests.kit.check_flow import check_flow_on_driver
from tests.kit.effort import examples
from tests.kit.spark_driver import Batch, Driver
from tidegate.reference import interpret
from tidegate.testing import difference


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """A generated query whose results are counted per key, or over all keys, in windows of their own."""
    case = draw(any_features().flatmap(cases))
    assume("revision" not in case.query.schema.names)
    keys = [draw(st.sampled_from(case.keys))] if case.keys else []
    size, every = draw(st.sampled_from([("1 us", "1 us"), ("7 ms", "7 ms"), ("7 ms", "2 ms"), ("1 second", "300 ms")]))
    keyed = case.query.key_by(*keys) if keys else case.query
    again = keyed.window(size, every=every).aggregate(rows=tg.count(), last=tg.last("window_end"))
    return replace(case, query=again, keys=keys)


def test_what_a_step_makes_reaches_the_next_before_the_watermark(tmp_path: Path) -> None:
    @settings(max_examples=examples(10), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(chains())
    def check(case: Case) -> None:
        check_case(case, tmp_path)

    check()


def test_ways_that_part_and_meet_again_or_leave_by_themselves() -> None:
    @settings(max_examples=examples(12), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        check_flow_on_driver(data)

    check()


@pytest.mark.parametrize("disorder", [0, "2 seconds"])
def test_pairs_that_reach_an_apply_before_any_watermark_wait_for_it_and_are_settled_at_the_end(disorder: Any) -> None:
    # batch 0   no watermark is known yet, and a join within a time emits its pairs at once
    # the end   comes as a watermark beyond every tuple, whatever the disorder
    tuples = pa.table(
        {"ts": pa.array([0, 1_000_000, 2_000_000, 3_000_000], pa.timestamp("us", tz="UTC")), "k": [1, 1, 2, 2]}
    )
    stream = tg.stream(tuples.schema, time="ts", disorder=disorder, name="calls")
    pairs = stream.join(stream, on="k", within="1 second")
    counted = (
        pairs.key_by("k")
        .window("10 seconds")
        .apply(
            update=lambda window, arriving: tg.updated({"pairs": window.state["pairs"] + 1}),
            output=lambda window: {"k": window.key, "pairs": window.state["pairs"]},
            state={"pairs": pa.int64()},
            initial={"pairs": 0},
            returns={"k": pa.int64(), "pairs": pa.int64()},
        )
    )
    batches = [Batch({"calls": [tuples.slice(0, 2)]}), Batch({"calls": [tuples.slice(2)]})]
    outcome = Driver(counted.node, cells=2).run(batches)
    law = interpret(counted.node, outcome.events)
    assert law.rows.column("pairs").to_pylist() == [4, 4]
    told = difference(pa.concat_tables([counted.schema.empty_table(), *outcome.tables]), law.rows)
    assert told is None, told
    assert outcome.late == law.late == 0
