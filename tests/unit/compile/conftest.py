"""Streams to build queries from, and a way to run the stateless part of one on small tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import narwhals as nw
import pyarrow as pa
import pytest

from tidegate.query.aggregates import count, mean
from tidegate.query.builder import Builder, source
from tidegate.query.nodes import Node, Source, Union
from tidegate.query.stateless import apply_stateless

MOMENT = pa.timestamp("us", tz="UTC")

Evaluate = Callable[[Node, Mapping[str, pa.Table]], pa.Table]


@pytest.fixture
def numbers() -> Builder:
    """Tuples of a time, two integers that may be null, and a text."""
    return Builder(source("numbers", {"ts": MOMENT, "a": pa.int64(), "b": pa.int64(), "text": pa.string()}, time="ts"))


@pytest.fixture
def more_numbers() -> Builder:
    """A second stream of the same columns."""
    return Builder(source("more", {"ts": MOMENT, "a": pa.int64(), "b": pa.int64(), "text": pa.string()}, time="ts"))


@pytest.fixture
def tables() -> dict[str, pa.Table]:
    """What the two streams carry."""
    schema = pa.schema([("ts", MOMENT), ("a", pa.int64()), ("b", pa.int64()), ("text", pa.string())])
    columns = {"ts": [1, 2, 3, 4, 5], "a": [1, None, 3, -4, 5], "b": [7, 2, None, 0, 5]}
    one = pa.table({**columns, "text": ["1", "x y", None, "", "-5"]}, schema=schema)
    other = pa.table({"ts": [6, 7], "a": [3, 0], "b": [1, 1], "text": ["a b", "7"]}, schema=schema)
    return {"numbers": one, "more": other}


@pytest.fixture
def evaluate() -> Evaluate:
    """Runs a query without stateful steps, one step after the other as it is written."""

    def run(node: Node, tables: Mapping[str, pa.Table]) -> pa.Table:
        if isinstance(node, Source):
            return tables[node.name]
        if isinstance(node, Union):
            return pa.concat_tables([run(upstream, tables) for upstream in node.inputs])
        return apply_stateless(node, run(node.inputs[0], tables))

    return run


@pytest.fixture
def ahead_of_stream() -> Builder:
    """A stream whose tuples must not lie far after the newest one before them, which one runtime cannot tell."""
    return Builder(source("calls", {"ts": MOMENT}, time="ts", ahead="1 day", ahead_of="stream"))


@pytest.fixture
def heavy_customers() -> Builder:
    """StreamCloud's running example (§IV, figure 2): callers whose calls are long on average."""
    columns = {"ts": MOMENT, "src": pa.string(), "start_s": pa.int64(), "end_s": pa.int64()}
    return (
        Builder(source("calls", columns, time="ts", disorder="10 seconds"))
        .with_columns(duration=nw.col("end_s") - nw.col("start_s"), name="length")
        .key_by("src")
        .window("1 hour", every="1 minute")
        .aggregate(name="per_customer", calls=count(), avg_duration=mean("duration"))
        .filter(nw.col("avg_duration") > 300, name="heavy")
    )
