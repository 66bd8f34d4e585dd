from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

from tidegate.compile.compiler import compile_query
from tidegate.compile.place_steps import place_steps
from tidegate.compile.plan import Place, Plan
from tidegate.compile.split_at_stateful import split_at_stateful
from tidegate.errors import InternalError
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder, source
from tidegate.query.keys import Each, each, keys
from tidegate.sources.in_memory import TableOrigin

NATIVE, KERNEL, PYTHON = Place.NATIVE, Place.KERNEL, Place.PYTHON
a, text = nw.col("a"), nw.col("text")


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def counted(stream: Builder, by: str | Each = "a") -> Builder:
    return stream.key_by(by).window("1 minute").aggregate(n=count(), name="counts")


def places(stream: Builder, runtime: str = "spark") -> dict[str, Place]:
    return {name: place for name, place, _ in steps_of(stream, runtime)}


def why(stream: Builder, name: str) -> str:
    return next(why for step, _, why in steps_of(stream) if step == name)


def steps_of(stream: Builder, runtime: str = "spark") -> list[tuple[str, Place | None, str]]:
    plan = compile_query(stream.node, runtime)
    steps = [(step.node.name, step.place, step.why) for feed in plan.feeds for step in feed.steps]
    return steps + [(sub.operator.name, sub.place, sub.why) for sub in plan.subqueries if sub.operator is not None]


def test_expressions_run_where_tuples_come_to_a_worker_and_natively_where_none_does(heavy_customers, numbers) -> None:
    assert places(heavy_customers) == dict.fromkeys(("length", "per_customer", "heavy"), KERNEL)
    assert "has seen the times of all of them" in why(heavy_customers, "length")
    assert why(heavy_customers, "heavy") == "whole columns of results, in the cell that emits them"
    assert places(numbers.filter(a > 1, name="f")) == {"f": NATIVE}


def test_what_spark_would_compute_otherwise_runs_on_arrow_with_what_follows(numbers) -> None:
    steps = numbers.filter(a > 1, name="f").with_columns(c=a * 2, name="doubled").filter(a < 9, name="g")
    assert places(steps) == {"f": NATIVE, "doubled": KERNEL, "g": KERNEL}
    assert why(steps, "doubled").startswith("c = a * 2 may be another value in Spark")
    assert why(steps, "g") == "follows 'doubled', which runs there"
    behind = numbers.map_batches(same, name="m").filter(a > 1, name="f")
    assert places(behind) == {"m": PYTHON, "f": KERNEL}


def test_what_workers_read_themselves_is_worked_on_there() -> None:
    table = pa.table({"ts": pa.array([1], pa.timestamp("us")), "a": [1], "text": ["x"]})
    read = Builder(source("numbers", table.schema, time="ts", origin=TableOrigin(table)))
    steps = read.filter(a > 1, name="f").map_batches(same, name="m").filter(a > 2, name="g")
    assert places(counted(steps)) == dict.fromkeys(("f", "m", "g", "counts"), KERNEL)
    assert why(counted(steps), "f") == "whole columns of what the worker has read; no row of Spark's is built"
    assert places(steps) == dict.fromkeys(("f", "m", "g"), KERNEL), "with no stateful step as well"


def test_a_batch_function_far_from_an_aggregate_is_python(numbers) -> None:
    assert places(numbers.map_batches(same, name="m")) == {"m": PYTHON}
    after = counted(numbers).map_batches(same, name="m").filter(a > 1, name="f")
    assert places(after) == {"counts": KERNEL, "m": KERNEL, "f": KERNEL}, "it is near one that it follows"


def test_a_stream_beside_a_stateful_step_comes_to_workers_too(numbers, more_numbers) -> None:
    query = counted(numbers).select("ts", "a", name="s").union(more_numbers.select("ts", "a", name="raw"), name="both")
    assert places(query) == dict.fromkeys(("counts", "s", "raw"), KERNEL)


def test_a_step_with_two_readers_is_placed_in_each_feed(numbers) -> None:
    shared = numbers.map_batches(same, name="m")
    raw = shared.select("ts", "a", name="raw")
    query = counted(shared.filter(a > 1, name="f")).select("ts", "a", name="s").union(raw, name="u")
    plan = compile_query(query.node)
    assert [[(step.node.name, step.place) for step in feed.steps] for feed in plan.feeds] == [
        [("m", KERNEL), ("f", KERNEL)],
        [("s", KERNEL)],
        [("m", KERNEL), ("raw", KERNEL)],
        [],
    ]


def test_the_aggregate_says_how_it_gets_its_keys(numbers) -> None:
    def signs(batch: pa.RecordBatch) -> pa.ListArray:
        return pa.array([[value > 0] for value in batch.column("a").to_pylist()], pa.list_(pa.bool_()))

    own = (
        numbers.key_by(keys(signs, columns={"positive": pa.bool_()})).window("1 minute").aggregate(n=count(), name="g")
    )
    assert why(own, "g").endswith("Python builds the keys, signs(batch) once per batch")
    words = numbers.with_columns(words=text.str.split(" "))
    assert why(counted(words, each("words")), "counts").endswith("a tuple is not copied for the keys of words(text)")


def test_the_reference_runs_everything_in_python(heavy_customers) -> None:
    assert set(places(heavy_customers, "reference").values()) == {PYTHON}
    assert {why for _, _, why in steps_of(heavy_customers, "reference")} == {"one tuple at a time"}


def test_a_runtime_without_places_is_a_bug(numbers) -> None:
    with pytest.raises(InternalError, match="'elsewhere'"):
        place_steps(split_at_stateful(Plan(numbers.node, "elsewhere")))


def test_in_process_whole_segments_are_worked_on(heavy_customers: Builder) -> None:
    assert set(places(heavy_customers, "local").values()) == {KERNEL}
