"""State that is rows by key: what cannot matter any more is forgotten, and what is not touched is not written again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.spark_driver import Batch, Driver
from tidegate.operators.as_of_slots import AsOfSlots
from tidegate.operators.column_slots import slots_of
from tidegate.operators.logged_slots import LoggedSlots

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("ts", TIME), ("k", pa.string())])
STEP = 1_000


def tuples(start: int, keys: list[int]) -> pa.Table:
    """One tuple each 5 µs."""
    times = pa.array(range(start, start + 5 * len(keys), 5), pa.int64()).cast(TIME)
    return pa.table([times, pa.array([f"key {key}" for key in keys])], schema=SCHEMA)


def stream(name: str = "s") -> tg.Stream:
    return tg.stream(SCHEMA, time="ts", name=name)


def settle(slots: LoggedSlots | AsOfSlots, number: int, tables: list[pa.Table], watermark: int) -> int:
    """How many results a turn has."""
    for side, table in enumerate(tables):
        slots.waiting.hold(number, side, table, "ts")
    settled = slots.waiting.settle(number, watermark)
    return sum(made.num_rows for made in slots.process(settled, slots.prepare(settled), None))


def logged(node: Any) -> LoggedSlots | AsOfSlots:
    slots = slots_of(node)
    assert isinstance(slots, LoggedSlots | AsOfSlots)
    return slots


QUERIES = {
    "windows that are full": lambda: stream().key_by("k").count_window(2).aggregate(n=tg.count()),
    "tuples out of reach": lambda: stream().join_asof(stream("right"), on="k", tolerance="1ms"),
    "keys that are deleted": lambda: stream().lookup(stream("right").with_columns(gone=True), on="k", deleted="gone"),
}


@pytest.mark.parametrize("kind", QUERIES)
def test_what_cannot_matter_any_more_is_forgotten(kind: str) -> None:
    """Each batch has a hundred new keys, each twice; none of them comes again."""
    node = QUERIES[kind]().node
    slots, driver = logged(node), Driver(node, 1)
    names = [below.name for below in node.inputs]
    for number in range(40):
        fresh = list(range(100 * number, 100 * number + 100))
        table, start = tuples(number * STEP, fresh + fresh), number * STEP
        shown = table.append_column("gone", pa.array([True] * 200)) if kind == "keys that are deleted" else table
        if len(names) == 1:
            settle(slots, number, [table], start + STEP)
        else:
            settle(slots, number, [table, shown], start + STEP)
        assert slots.rows <= 1_000
        sources = {"s": [table]} if len(names) == 1 else {"s": [table], "right": [table]}
        driver.batch(Batch(sources))
        assert sum(chunk.rows for chunk in driver.held()) <= 3_000


@pytest.mark.parametrize(
    "query",
    [
        stream().key_by("k").count_window(5, every=2).aggregate(n=tg.count()),
        stream("left").join_asof(stream(), on="k"),
    ],
)
def test_what_is_not_touched_is_not_written_again(query: tg.Stream) -> None:
    slots = logged(query.node)
    of = [[tuples(0, list(range(90)))], [tuples(500, [7])]]
    for number, tables in enumerate(of):
        parts = tables if len(query.node.inputs) == 1 else [SCHEMA.empty_table(), *tables]
        assert settle(slots, number, parts, 500 * (number + 1)) == 0
    assert [run.rows for run in slots.runs] == [90, 1]


def test_a_run_of_rows_of_which_none_is_left_has_none() -> None:
    """Such a table may have no chunks, as one whose shards have all gone to another cell."""
    logic = logged(stream().key_by("k").count_window(2).aggregate(all=tg.collect("k")).node).logic
    nothing = pa.table([pa.chunked_array([], field.type) for field in logic.schema], schema=logic.schema)
    assert logic.run(nothing).rows == 0
    assert logic.joined([logic.run(nothing).table]).num_rows == 0
