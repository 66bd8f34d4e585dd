"""Pairs of an Aggregate of bags whose tuples come out of order."""

from __future__ import annotations

import pyarrow as pa

from tests.kit.lowering import lowered
from tests.kit.moving import SCHEMA, TIME, stream
from tests.kit.spark_driver import Batch, Driver
from tidegate.reference import interpret
from tidegate.testing import difference


def at(*times_us: int) -> pa.Table:
    rows = len(times_us)
    columns = [pa.array(times_us, TIME), [1] * rows, list(range(rows)), [[]] * rows]
    return pa.table([pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def test_a_tuple_that_comes_later_and_ends_in_an_earlier_window_hides_no_other() -> None:
    """::

    windows of 5 ms every 3 ms, in ms     6 ─────── 11
                                              9 ─────── 14
    right, batch 0                              9.5           is in both
    right, batch 1                          8.5               is in the first
    left, batch 1                                   11.5      is in the second, and meets 9.5
    """
    query = lowered(stream().join(stream("two"), on="k", window="5ms", every="3ms"), "multi")
    driver = Driver(query.node, 1)
    outcome = driver.run([Batch({"two": [at(9_500)]}), Batch({"two": [at(8_500)], "one": [at(11_500)]})])
    made = pa.concat_tables([query.schema.empty_table(), *outcome.tables])
    assert made.num_rows == 1
    assert difference(made, interpret(query.node, outcome.events).rows) is None
