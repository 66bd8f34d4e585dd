"""Lookups in tables that are given: whatever the keys, they find what a dict finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.query.schema import canonical
from tidegate.query.stateless import apply_stateless

TIME = pa.timestamp("us", tz="UTC")
ORDERS = pa.table({"ts": pa.array([1, 2, 3, 4], TIME), "id": [7, 8, None, 9], "n": [1, 2, 3, 4]})
CUSTOMERS = pa.table({"id": [9, 7], "name": ["cy", "ann"], "n": [90, 70]})
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "a", "b", "äö", "a\0"]),
    "bytes": (pa.binary(), [b"", b"\xff", b"a"]),
    "whole": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf")]),
    "truth": (pa.bool_(), [True, False]),
    "moment": (TIME, [-5, 0, 7]),
    "day": (pa.date32(), [-1, 0, 3]),
}


def found(orders: tg.Stream, **given: Any) -> list[dict[str, Any]]:
    query = orders.lookup(given.pop("table", CUSTOMERS), on=given.pop("on", "id"), **given)
    return [dict(row) for row in apply_stateless(query.node, ORDERS).drop_columns(["ts"]).to_pylist()]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        lambda folder: CUSTOMERS,
        lambda folder: CUSTOMERS.to_batches()[0],
        lambda folder: pd.DataFrame(CUSTOMERS.to_pydict()),
        lambda folder: pl.DataFrame(CUSTOMERS.to_pydict()),
        lambda folder: CUSTOMERS.to_pylist(),
        lambda folder: CUSTOMERS.to_pydict(),
        lambda folder: {9: {"name": "cy", "n": 90}, 7: {"name": "ann", "n": 70}},
        lambda folder: folder / "customers.parquet",
    ],
)
def test_tables_of_all_kinds(given: Callable[[Path], Any], tmp_path: Path) -> None:
    pq.write_table(CUSTOMERS, tmp_path / "customers.parquet")
    orders = tg.stream(ORDERS, time="ts", name="orders")
    first, last = {"id": 7, "n": 1, "name": "ann", "n_right": 70}, {"id": 9, "n": 4, "name": "cy", "n_right": 90}
    assert found(orders, table=given(tmp_path)) == [first, last]
    unmatched = [{"id": 8, "n": 2, "name": None, "n_right": None}, {"id": None, "n": 3, "name": None, "n_right": None}]
    assert found(orders, table=given(tmp_path), how="left") == [first, *unmatched, last]


@pytest.mark.parametrize("names", [[each] for each in VALUES] + [["text", "float"], ["whole", "moment", "text"]])
def test_keys_of_every_type_find_what_a_dict_finds(names: list[str]) -> None:
    chance = random.Random(f"{names}")

    def rows(count: int) -> list[tuple[Any, ...]]:
        return [tuple(chance.choice([None, *VALUES[name][1]]) for name in names) for _ in range(count)]

    def table(keys: list[tuple[Any, ...]], **more: Any) -> pa.Table:
        columns = {name: pa.array([key[at] for key in keys], VALUES[name][0]) for at, name in enumerate(names)}
        return pa.table({**columns, **more})

    known = list({canonical(key): key for key in rows(12)}.values())
    asked = rows(200)
    orders = table(asked, ts=pa.array(range(200), pa.int64()).cast(TIME))
    query = tg.stream(orders, time="ts", name="orders").lookup(
        table(known, row=range(len(known))), on=names, how="left"
    )
    law = {canonical(key): row for row, key in enumerate(known) if None not in key}
    made = apply_stateless(query.node, orders).column("row").to_pylist()  # type: ignore[arg-type]
    assert made == [law.get(canonical(key)) for key in asked]


def test_mistakes_are_found_when_the_query_is_built() -> None:
    orders: Any = tg.stream(ORDERS, time="ts", name="orders")
    with pytest.raises(
        tg.QueryError, match=r"2 rows of the table have a key that another row has, such as \{'id': 7\}"
    ):
        orders.lookup(pa.table({"id": [7, 7, 8, 7], "x": [1, 2, 3, 4]}), on="id")
    with pytest.raises(tg.QueryError, match="deleted='x' is for a stream of changes"):
        orders.lookup(CUSTOMERS, on="id", deleted="x")
    with pytest.raises(tg.QueryError, match=r"a lookup takes a stream of changes, or a table.*got int"):
        orders.lookup(7, on="id")
    with pytest.raises(tg.QueryError, match="goes by key"):
        orders.lookup(CUSTOMERS, on=None)
    with pytest.raises(tg.QueryError, match="cannot be compared as keys"):
        orders.lookup(CUSTOMERS, on=[("id", "name")])
    with pytest.raises(tg.QueryError, match="a dict of rows has keys of one column"):
        orders.lookup({9: {"name": "cy"}}, on=["id"])
    with pytest.raises(tg.QueryError, match="with a tolerance it is"):
        orders.lookup(CUSTOMERS, on="id", tolerance="1 s")
    changes = orders.with_columns(gone=True)
    with pytest.raises(tg.QueryError, match=r"deleted is true or false, and .* is int64"):
        orders.lookup(changes, on="id", deleted="n")
    with pytest.raises(tg.QueryError, match="unknown column 'gon'"):
        orders.lookup(changes, on="id", deleted="gon")
    assert orders.lookup(changes, on="id", deleted="gone").schema.names == ["ts", "id", "n", "ts_right", "n_right"]
