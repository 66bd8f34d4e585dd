"""Every field of a plan is read by a runtime, except the reasons, which are for people: `explain` prints them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.spark_driver import Batch, Driver
from tidegate.compile import plan as plans
from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Combine, Exchange, Feed, PlacedStep, Plan, Region, Slices, Subquery
from tidegate.query.names import unique_names

VALUES = (Plan, Subquery, Feed, PlacedStep, Region, Slices, Combine, Exchange)
# For people alone, or for the passes that come before.
NOT_EXECUTED = {"Plan.query", "Plan.runtime", *(f"{value.__name__}.why" for value in VALUES)}
EXECUTED = {f"{value.__name__}.{field.name}" for value in VALUES for field in dataclasses.fields(value)} - NOT_EXECUTED
# What a subquery says of its place and of hot keys its operator says too: they are for `explain`.
EXECUTED -= {"Subquery.place", "Subquery.hot_keys"}
# Where tuples come to workers, all steps run there; where none has to, Spark runs them, and `test_native_steps` does that.
EXECUTED -= {"PlacedStep.place"}

TUPLES = pa.table(
    {
        "ts": pa.array(
            [datetime(2026, 1, 1, 0, minute, tzinfo=UTC) for minute in range(9)], pa.timestamp("us", tz="UTC")
        ),
        "k": [1, 2, 3] * 3,
    }
)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The fields that code of a runtime has read since."""
    seen: set[str] = set()
    for value in VALUES:
        for field in dataclasses.fields(value):
            monkeypatch.setattr(value, field.name, _recorded(getattr(value, field.name), value, field.name, seen))
    yield seen


def _recorded(slot: Any, value: type, name: str, seen: set[str]) -> property:
    def get(self: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_code.co_filename == plans.__file__ and frame.f_back is not None:
            frame = frame.f_back
        if Path(frame.f_code.co_filename).parts[-3:-1][0] == "runtime":
            seen.add(f"{value.__name__}.{name}")
        return slot.__get__(self)

    return property(get, slot.__set__)


def calls() -> tg.Stream:
    return tg.stream(TUPLES, time="ts", name="calls")


def query() -> tg.Stream:
    counts = calls().filter(nw.col("k") > 1).key_by("k").window("4 minutes", every="1 minute").aggregate(n=tg.count())
    return counts.map_batches(lambda batch: batch, schema=counts.schema)


def test_every_field_is_read_by_a_runtime(read: set[str]) -> None:
    tables: list[pa.Table] = []
    tg.run(query(), on="local", to=tables.append, progress=False)
    assert sum(table.num_rows for table in tables)
    stream = calls()
    for each in (query(), stream.join(stream.filter(nw.col("k") > 1), within="1 minute")):
        Driver(unique_names(each.node), cells=2).run([Batch({"calls": [TUPLES]})])
    assert EXECUTED - read == set()


def test_what_explain_prints_is_that_plan() -> None:
    shown, plan = query().explain(runtime="local"), compile_query(query().node, "local")
    for subquery in plan.subqueries:
        assert subquery.why.split(";")[0].split(",")[0] in shown
    assert all(step.node.name in shown for feed in plan.feeds for step in feed.steps)
