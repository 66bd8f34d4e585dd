"""Columns of decimals and of maps, through every kind of step; answers worked out by hand."""

from __future__ import annotations

from decimal import Decimal as D
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tidegate.errors import DataError, QueryError, SlowWarning
from tidegate.testing import difference

TIME = pa.timestamp("us", tz="UTC")
MONEY = pa.decimal128(30, 2)
TAGS = pa.map_(pa.string(), pa.int64())
SALES = pa.schema([("ts", TIME), ("k", pa.string()), ("price", MONEY), ("tags", TAGS)])
GREAT = D(10) ** 27
GREATER = D(
    "1000000000000000000000000000.01"
)  # more digits than int64 and float64 have, and than Python adds by default


FEW = ["reference", "driver, 3 cells with 3 instances", "local, 7 instances"]
few = pytest.mark.parametrize("quick_runtime", FEW, indirect=True)


def table(schema: pa.Schema, *rows: tuple[Any, ...]) -> pa.Table:
    columns = [
        pa.array([row[place] for row in rows], pa.int64() if field.type == TIME else field.type)
        for place, field in enumerate(schema)
    ]
    return pa.table([each.cast(field.type) for each, field in zip(columns, schema, strict=True)], schema=schema)


def sales() -> tg.Stream:
    return tg.stream(SALES, time="ts", name="sales", disorder="10 us")


ROWS = (
    (1, "a", D("0.10"), [("x", 1)]),
    (2, "a", D("0.20"), [("x", 2), ("y", 3)]),
    (3, "b", GREAT, None),
    (3, "b", GREATER, []),
    (4, "b", None, [("z", None)]),
    (5, "b", -GREAT, [("x", 1)]),
    (6, "c", None, [("b", 2), ("a", 1)]),
    (6, "c", None, [("a", 1), ("b", 1)]),
)
BATCHES = [{"sales": table(SALES, *ROWS[:4])}, {"sales": table(SALES, *ROWS[4:])}]


def every_aggregate(stream: tg.Stream) -> tg.Stream:
    return (
        stream.key_by("k")
        .window("10 us")
        .aggregate(
            total=tg.sum("price"),
            mean=tg.mean("price"),
            least=tg.min("price"),
            most=tg.max("price"),
            first=tg.first("tags"),
            last=tg.last("tags"),
            prices=tg.collect("price"),
            top=tg.top_k("price", 1, take="tags"),
            distinct=tg.distinct("price"),
        )
    )


def every_answer(query: tg.Stream) -> pa.Table:
    kept = pa.schema([field for field in query.schema if not field.name.startswith("window_")])
    prices = [GREAT, GREATER, None, -GREAT]
    return table(
        kept,
        (9, "a", D("0.30"), 0.15, D("0.10"), D("0.20"), [("x", 1)], [("x", 2), ("y", 3)], [D("0.10"), D("0.20")],
         [[("x", 2), ("y", 3)]], 2),
        (9, "b", GREATER, float(GREATER) / 3, -GREAT, GREATER, None, [("x", 1)], prices, [[]], 3),
        # Maps go by their entries in the order of keys, however they are written.
        (9, "c", None, None, None, None, [("a", 1), ("b", 1)], [("b", 2), ("a", 1)], [None, None], [], 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    "runtime",
    [*FEW, "micro, multi", pytest.param("spark, 2 cells with 2 instances", marks=pytest.mark.spark)],
    indirect=True,
)
def test_every_aggregate_of_decimals_and_maps(runtime: Runtime) -> None:
    query = every_aggregate(sales())
    assert query.schema.field("total").type == pa.decimal128(38, 2)
    assert query.schema.field("mean").type == pa.float64()
    found = runtime.run(query, BATCHES).rows
    assert difference(found.select(every_answer(query).column_names), every_answer(query)) is None


@few
def test_decimals_are_keys(quick_runtime: Runtime) -> None:
    query = sales().key_by("price", "k").window("10 us").aggregate(n=tg.count())
    found = quick_runtime.run(query, [{"sales": table(SALES, *ROWS, *ROWS)}]).rows
    counts = {(row["price"], row["k"]): row["n"] for row in found.to_pylist()}
    assert counts == {
        (D("0.10"), "a"): 2,
        (D("0.20"), "a"): 2,
        (GREAT, "b"): 2,
        (GREATER, "b"): 2,
        (-GREAT, "b"): 2,
        (None, "b"): 2,
        (None, "c"): 4,
    }


@few
@pytest.mark.parametrize("price", [D("9" * 38), D("-" + "9" * 38)])
def test_a_sum_of_more_than_38_digits_is_an_error(quick_runtime: Runtime, price: D) -> None:
    schema = pa.schema([("ts", TIME), ("price", pa.decimal128(38, 0))])
    query = (
        tg.stream(schema, time="ts", name="s").window("10 us").aggregate(total=tg.sum("price"), mean=tg.mean("price"))
    )
    minus = price.copy_negate()  # Python's own minus would round
    fits = table(schema, (1, price), (2, minus), (3, price))
    (row,) = quick_runtime.run(query, [{"s": fits}]).rows.to_pylist()
    assert (row["total"], row["mean"]) == (price, pytest.approx(float(price) / 3))
    with pytest.raises(DataError, match="a sum of 'price' has more than the 38 digits of a decimal"):
        quick_runtime.run(query, [{"s": table(schema, (1, price), (2, price))}])
    # Batches that overflow by themselves may be part of a sum that fits.
    together = [{"s": table(schema, (1, price), (1, price))}, {"s": table(schema, (1, minus), (1, minus))}]
    (row,) = quick_runtime.run(query, together).rows.to_pylist()
    assert (row["total"], row["mean"]) == (0, 0.0)


@few
def test_decimals_join_by_key_and_predicate(quick_runtime: Runtime) -> None:
    offers = tg.stream(pa.schema([("ts", TIME), ("price", MONEY)]), time="ts", name="offers")
    by_key = sales().join(offers, on="price", within="10 us")
    found = quick_runtime.run(
        by_key, [{"sales": table(SALES, *ROWS), "offers": table(offers.schema, (1, GREAT), (2, None))}]
    )
    assert [(row["price"], row["tags"]) for row in found.rows.to_pylist()] == [(GREAT, None)]
    with pytest.warns(SlowWarning, match=r"interpreted.*'price'.*decimal128"):
        priced = sales().filter(~nw.col("price").is_null())
        cheaper = priced.join(offers, within="10 us", where=lambda l, r: l.price < r.price)
    found = quick_runtime.run(cheaper, [{"sales": table(SALES, *ROWS), "offers": table(offers.schema, (1, GREATER))}])
    assert sorted(row["price"] for row in found.rows.to_pylist()) == [-GREAT, D("0.10"), D("0.20"), GREAT]
    with pytest.raises(QueryError, match=r"cannot be compared as keys; cast one so that both are .* of one type"):
        sales().join(tg.stream({"ts": TIME, "price": pa.decimal128(9, 1)}, time="ts"), on="price", within="10 us")


@few
def test_decimals_in_as_of_joins_lookups_dedup_and_top_n(quick_runtime: Runtime) -> None:
    offers = tg.stream(pa.schema([("ts", TIME), ("price", MONEY), ("shop", pa.string())]), time="ts", name="offers")
    given = pa.table({"price": pa.array([GREAT, D("0.10")], MONEY), "name": ["great", "small"]})
    query = (
        sales()
        .dedup("price", within="1 ms")
        .join_asof(offers, on="price", tolerance="1 ms", how="left")
        .lookup(given, on="price", how="left")
    )
    batch = {"sales": table(SALES, *ROWS), "offers": table(offers.schema, (1, D("0.10"), "s"), (2, GREAT, "t"))}
    found = quick_runtime.run(query, [batch]).rows
    assert sorted((str(row["price"]), row["shop"], row["name"]) for row in found.to_pylist()) == [
        (str(-GREAT) + ".00", None, None),
        ("0.10", "s", "small"),
        ("0.20", None, None),
        (str(GREAT) + ".00", "t", "great"),
        (str(GREATER), None, None),
        ("None", None, None),
    ]
    best = sales().key_by("k").window("10 us").top_n(1, by="price")
    found = quick_runtime.run(best, BATCHES).rows
    assert sorted((row["k"], row["price"], row["tags"]) for row in found.to_pylist()) == [
        ("a", D("0.20"), [("x", 2), ("y", 3)]),
        ("b", GREATER, []),
    ]


@few
def test_functions_of_one_tuple_get_and_give_decimals_and_maps(quick_runtime: Runtime) -> None:
    def update(window: Any, arriving: Any) -> Any:
        spent = window.state["spent"] + (arriving["price"] or 0)
        row = {
            "spent": spent,
            "k": arriving["k"],
            "tags": {"before": len(window.state["tags"] or ()), "now": len(arriving["tags"] or ())},
        }
        return tg.updated({"spent": spent, "tags": arriving["tags"]}, rows=[row])

    query = (
        sales()
        .key_by("k")
        .unbounded()
        .apply(
            update=update,
            state={"spent": pa.decimal128(38, 2), "tags": TAGS},
            initial={"spent": 0, "tags": {}},
            returns={"spent": pa.decimal128(38, 2), "k": pa.string(), "tags": TAGS},
        )
    )
    found = quick_runtime.run(query, BATCHES).rows
    got = [(row["spent"], row["tags"]) for row in found.sort_by("ts").to_pylist() if row["k"] == "a"]
    assert got == [(D("0.10"), [("before", 0), ("now", 1)]), (D("0.30"), [("before", 1), ("now", 2)])]
