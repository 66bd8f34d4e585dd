"""What dedup remembers of a key is forgotten when it cannot matter any more."""

from __future__ import annotations

import pyarrow as pa

import tidegate as tg
from tests.kit.spark_driver import Batch, Driver
from tidegate.operators.column_slots import slots_of

TIME = pa.timestamp("us", tz="UTC")
WITHIN = 1_000


def tuples(start: int, count: int) -> pa.Table:
    """New keys, one each 10 µs."""
    times = pa.array(range(start, start + 10 * count, 10), pa.int64()).cast(TIME)
    return pa.table({"ts": times, "k": [f"key {start + at}" for at in range(count)]})


def test_state_is_that_of_the_keys_of_twice_the_time() -> None:
    node = tg.stream(tuples(0, 1).schema, time="ts", name="s").dedup("k", within="1ms").node
    slots, driver = slots_of(node), Driver(node, 1)
    for number in range(50):
        table, watermark = tuples(number * WITHIN, 100), (number + 1) * WITHIN
        slots.waiting.hold(number, 0, table, "ts")
        settled = slots.waiting.settle(number, watermark)
        assert sum(made.num_rows for made in slots.process(settled, slots.prepare(settled), None)) == 100
        assert slots.rows <= 300
        driver.batch(Batch({"s": [table]}))
        assert sum(chunk.rows for chunk in driver.held()) <= 1_000
    assert sum(made.num_rows for made in driver.outcome.tables) == 4_999  # the last is not settled
