"""Lookups, whose answers were worked out by hand."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

ORDERS = pa.schema([("ts", TIME), ("id", pa.int64()), ("n", pa.int64())])
CHANGES = pa.schema([("ts", TIME), ("id", pa.int64()), ("city", pa.string()), ("gone", pa.bool_())])


def orders() -> tg.Stream:
    return tg.stream(ORDERS, time="ts", name="orders")


@pytest.mark.dedicated
def test_a_tuple_gets_the_version_of_its_time(runtime: Runtime) -> None:
    """Customer 1 moves at 10:00, is deleted at 11:00 and comes back at 12:00; customer 2 is there from 10:30 on.

    ::

        1   09:00 ●Oslo    10:00 ●Bergen    11:00 ✗    12:00 ●Oslo
        2                        10:30 ●Rome
    """
    changes = tg.stream(CHANGES, time="ts", name="changes", disorder="2 hours")
    query = orders().lookup(changes, on="id", deleted="gone", how="left")
    assert query.schema.names == ["ts", "id", "n", "ts_right", "city"]
    batches = [
        {"changes": rows(CHANGES, ("10:00", 1, "Bergen", None), ("09:00", 1, "Oslo", False))},
        {"orders": rows(ORDERS, ("09:30", 1, 1), ("10:00", 1, 2), ("10:00", 2, 3), ("10:45", 2, 4))},
        {
            "changes": rows(
                CHANGES, ("10:30", 2, "Rome", False), ("11:00", 1, "Bergen", True), ("12:00", 1, "Oslo", False)
            )
        },
        {"orders": rows(ORDERS, ("11:30", 1, 5), ("13:00", None, 6), ("13:00", 1, 7))},
    ]
    matched = [
        ("09:30", 1, 1, "09:00", "Oslo"),
        ("10:00", 1, 2, "10:00", "Bergen"),
        ("10:45", 2, 4, "10:30", "Rome"),
        ("13:00", 1, 7, "12:00", "Oslo"),
    ]
    alone = [("10:00", 2, 3, None, None), ("11:30", 1, 5, None, None), ("13:00", None, 6, None, None)]
    expect(query, runtime.run(query, batches).rows, *matched, *alone)
    inner = (
        orders()
        .lookup(changes, on="id", deleted=nw.col("gone"), name="found")
        .select("ts", "id", "n", "ts_right", "city")
    )
    expect(inner, runtime.run(inner, batches).rows, *matched)


def test_a_table_that_is_given_is_one_version(runtime: Runtime) -> None:
    """It needs no watermark: what is behind a lookup takes late tuples as it would without."""
    cities = {1: {"city": "Oslo"}, 2: {"city": "Rome"}}
    known = orders().lookup(cities, on="id", name="known")
    query = known.key_by("city").window("1 hour").aggregate(n=tg.sum("n"))
    batches = [
        {"orders": rows(ORDERS, ("09:00", 1, 1), ("09:10", 2, 2), ("09:20", 3, 4))},
        {"orders": rows(ORDERS, ("09:40", 1, 8), ("10:00", None, 16))},
    ]
    end = "09:59:59.999999"
    expect(
        query,
        runtime.run(query, batches).rows,
        (end, "Oslo", "09:00", "10:00", 9),
        (end, "Rome", "09:00", "10:00", 2),
    )
    kept = orders().lookup(cities, on="id", how="left")
    everything = [("09:00", 1, 1, "Oslo"), ("09:10", 2, 2, "Rome"), ("09:20", 3, 4, None)]
    everything += [("09:40", 1, 8, "Oslo"), ("10:00", None, 16, None)]
    expect(kept, runtime.run(kept, batches).rows, *everything)
