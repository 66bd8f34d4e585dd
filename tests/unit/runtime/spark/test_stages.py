"""The stages of a plan: what is one task, between which there are exchanges, and what each is told to report."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest
from pyspark import cloudpickle

import tidegate as tg
from tests.kit.spark_driver import Batch, Driver, inputs_of
from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Plan
from tidegate.query.names import unique_names
from tidegate.query.nodes import Source
from tidegate.runtime.spark.cell_batch import StateRoot
from tidegate.runtime.spark.inputs import FrameRows, NamedFiles
from tidegate.runtime.spark.sources import FileNames
from tidegate.runtime.spark.stages import (
    ExchangedStage,
    FeedBranch,
    OneStage,
    PulseBranch,
    RunOptions,
    fingerprints,
    shipped,
    stages_of,
)
from tidegate.sources.files import Files
from tidegate.watermark import END

MOMENT = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema([("ts", MOMENT), ("k", pa.int64())])
OPTIONS = RunOptions(StateRoot("/state", (), "build", 100), "/control", instances=3)


def calls(name: str = "calls", **options: Any) -> tg.Stream:
    return tg.stream(COLUMNS, time="ts", name=name, **options)


def counted(stream: tg.Stream, name: str = "counts", size: str = "1 minute") -> tg.Stream:
    return stream.key_by("k").window(size).aggregate(n=tg.count(), name=name)


def plan_of(query: tg.Stream, cells: int) -> Plan:
    return compile_query(unique_names(query.node), "spark", cells=cells)


def by_names(plan: Plan, number: int = 1) -> Plan:
    """The same over files, which workers read by their names."""
    files = Files("in", tuple(f"in/{each}.parquet" for each in range(number)), "parquet", COLUMNS)
    return plan.reading(lambda source: replace(source, origin=FileNames(None, files)))  # type: ignore[arg-type]


def drawn(stage: Any) -> str:
    """A stage and what comes before it: [one task], or step(what its exchange gets); * reports its metrics."""
    match stage:
        case OneStage():
            return f"[{', '.join(branch.source.name for branch in stage.inputs)}]"
        case FeedBranch():
            return str(stage.input.source.name)
        case PulseBranch():
            return "pulse"
        case ExchangedStage():
            assert stage.cells == stage.function.step.cells
            mark = "*" if stage.function.reports else ""
            return f"{stage.function.step.name}{mark}({', '.join(map(drawn, stage.before))})"
        case _:
            raise AssertionError(stage)


def stages(query: tg.Stream, cells: int) -> list[str]:
    return [drawn(stage) for stage in stages_of(plan_of(query, cells), OPTIONS)]


def test_one_cell_is_one_stage_whatever_the_query() -> None:
    chain = counted(counted(calls()), "daily", "1 day")
    both = calls("a").join(calls("b"), on="k", within="1 minute", name="both")
    assert stages(counted(calls()), 1) == ["[calls]"]
    assert stages(chain, 1) == ["[calls]"]
    assert stages(both, 1) == ["[a, b]"]
    one = counted(calls())
    diamond = counted(one, "daily", "1 day").union(counted(one, "weekly", "7 days"))
    assert stages(diamond, 1) == ["[calls]"]
    beside = one.select("ts", "k").union(calls("others"))
    assert stages(beside, 1) == ["[calls, others]"]


def test_one_stage_has_all_steps_and_an_input_for_each_feed() -> None:
    (stage,) = stages_of(plan_of(counted(counted(calls()), "daily", "1 day"), 1), OPTIONS)
    assert isinstance(stage, OneStage)
    assert [(step.name, step.cells, step.instances) for step in stage.function.steps.values()] == [
        ("counts", 1, 3),
        ("daily", 1, 3),
    ]
    assert [step.sources for step in stage.function.steps.values()] == [(("calls", 0),)] * 2
    stream = calls()
    twice = counted(stream.filter(nw.col("k") > 1)).union(counted(stream, "all"))
    for plan in (plan_of(twice, 1), by_names(plan_of(twice, 1))):
        (stage,) = stages_of(plan, OPTIONS)
        assert isinstance(stage, OneStage)
        assert len(stage.inputs) == 1, "what two steps read is read once for both"
        assert len(stage.function.inputs.inputs[0].feeds) == 2


@pytest.mark.parametrize("cells", [2, 3])
def test_several_cells_have_an_exchange_before_each_step(cells: int) -> None:
    assert stages(counted(calls()), cells) == ["counts*(calls, pulse)"]
    assert stages(counted(counted(calls()), "daily", "1 day"), cells) == ["daily*(counts*(calls, pulse))"]
    both = calls("a").join(counted(calls("b")), on="k", within="1 minute", name="both")
    assert stages(both, cells) == ["both*(counts*(b, pulse), a)"]
    (stage,) = stages_of(plan_of(counted(calls()), cells), OPTIONS)
    assert isinstance(stage, ExchangedStage)
    assert stage.cells == cells


def test_a_step_that_two_read_runs_in_both_branches_and_one_reports() -> None:
    one = counted(calls(), "one")
    diamond = counted(one, "daily", "1 day").union(counted(one, "weekly", "7 days"))
    assert stages(diamond, 2) == ["daily*(one*(calls, pulse))", "weekly*(one(calls, pulse))"]


def test_results_that_leave_by_two_paths_run_their_step_once() -> None:
    one = counted(calls(), "one")
    twice = one.union(one.filter(nw.col("n") > 1))
    assert stages(twice, 2) == ["one*(calls, pulse)"]
    names = list(COLUMNS.names)
    beside = one.select(*names).union(one.filter(nw.col("n") > 1).select(*names), calls("others"))
    assert stages(beside, 2) == ["one*(calls, pulse)", "[others]"]


def test_what_has_no_state_is_one_stage_with_any_cells() -> None:
    for cells in (1, 2):
        (stage,) = stages_of(plan_of(calls().filter(nw.col("k") > 1), cells), OPTIONS)
        assert isinstance(stage, OneStage)
        assert not stage.function.steps


def test_files_come_by_name_and_frames_with_the_columns_that_are_read() -> None:
    query = counted(calls().filter(nw.col("k") > 1))
    for plan, kind, columns in (
        (plan_of(query, 2), FrameRows, ("ts", "k")),
        (by_names(plan_of(query, 2)), NamedFiles, ()),
    ):
        (stage,) = stages_of(plan, OPTIONS)
        assert isinstance(stage, ExchangedStage)
        feed = stage.before[0]
        assert isinstance(feed, FeedBranch)
        assert isinstance(feed.function.inputs.inputs[0], kind)
        assert feed.input.columns == columns


@pytest.mark.parametrize(
    ("cells", "columns"), [(1, [["ts", "k", "n", "x"]]), (2, [["ts", "k", "n"], ["ts", "k", "x"]])]
)
def test_each_input_has_the_columns_that_its_own_feeds_read(cells: int, columns: list[list[str]]) -> None:
    """Several readers of a source read it as a whole; with several cells each step has an input of its own."""
    names = [*COLUMNS.names, "n", "x", "y"]
    wide = tg.stream(pa.schema([COLUMNS.field("ts"), *((name, pa.int64()) for name in names[1:])]), time="ts", name="s")
    some = wide.filter(nw.col("n") > 1).key_by("k").window("1 minute").aggregate(c=tg.count(), name="some")
    most = wide.filter(nw.col("x") > 1).key_by("k").window("1 minute").aggregate(c=tg.max("x"), name="most")
    stages = stages_of(plan_of(some.union(most), cells), OPTIONS)
    inputs = [branch for stage in stages for branch in inputs_of(stage)]
    assert [list(branch.columns) for branch in inputs] == columns


def test_what_is_shipped_does_not_grow_with_the_files_there_are() -> None:
    def sizes(cells: int, files: int) -> list[int]:
        (stage,) = stages_of(by_names(plan_of(counted(calls()), cells), files), OPTIONS)
        parts = [stage, *stage.before] if isinstance(stage, ExchangedStage) else [stage]
        return [len(cloudpickle.dumps(part.function)) for part in parts]

    for cells in (1, 2):
        assert sizes(cells, 1) == sizes(cells, 10_000)


def test_what_is_shipped_has_no_source_but_its_shape() -> None:
    """A lock cannot be pickled, as a DataFrame cannot."""
    import threading

    plan = plan_of(counted(counted(calls()).filter(nw.col("n") > 1), "daily", "1 day"), 2)
    plan = plan.reading(lambda source: replace(source, origin=threading.Lock()))
    for stage in stages_of(plan, OPTIONS):
        assert isinstance(stage, ExchangedStage)
        pickle.loads(cloudpickle.dumps(stage.function))
    lean = shipped(plan)
    assert [type(subquery.operator.inputs[0]) for subquery in lean.subqueries if subquery.operator] == [Source, Source]
    assert all(source.origin is None for source in lean.sources)


def test_the_fingerprint_is_that_of_any_number_of_cells() -> None:
    one, two = (fingerprints(plan_of(counted(calls()), cells)) for cells in (1, 2))
    assert one == two and len(one) == 1


def test_the_fingerprint_says_the_stores() -> None:
    def kept(**stores: Any) -> str:
        keyed = calls().key_by("k").unbounded()
        query = keyed.apply(update=lambda window, one: None, stores=stores, returns={"n": pa.int64()})
        return fingerprints(plan_of(query, 1))[0]

    one = kept(seen=tg.store(key=pa.string(), value=pa.int64()))
    assert one.endswith("| stores: seen (key: string -> int64)")
    assert one != kept(seen=tg.store(key=pa.string(), value=pa.float64()))
    assert "stores" not in kept()


def rows(minutes: int) -> pa.Table:
    moments = [60_000_000 * minute for minute in range(minutes)]
    return pa.table([pa.array(moments, MOMENT), pa.array([minute % 3 for minute in range(minutes)])], schema=COLUMNS)


@pytest.mark.parametrize("cells", [1, 2])
def test_a_tuple_is_reported_once_however_many_steps_read_it(cells: int) -> None:
    stream = calls()
    one = counted(stream, "one")
    twice = counted(stream, "minutes").union(counted(stream, "hours", "1 hour"))
    diamond = counted(one, "daily", "1 day").union(counted(one, "weekly", "7 days"))
    for query in (one, twice, diamond, counted(one, "daily", "1 day")):
        driver = Driver(unique_names(query.node), cells)
        reports = driver.run([Batch({"calls": [rows(5), rows(4)]})]).reports
        assert sum(told["rows"] for told in reports[0] if "source" in told) == 9
        told = [(each["step"], each["cell"]) for each in reports[0] if "step" in each]
        assert len(told) == len(set(told)) == cells * sum(s.operator is not None for s in driver.plan.subqueries)
        assert {each["watermark_us"] for each in reports[-1] if "step" in each} == {END}
