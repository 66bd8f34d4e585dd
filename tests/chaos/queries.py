"""The queries that are run, over data that is generated from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa

import tidegate as tg
from examples.inputs.trades import trades
from tidegate.demo.calls import calls, heavy_customers


def demo(folder: Path) -> tg.Stream:
    """What `tidegate demo` runs: windows of an hour, every minute; in many small batches."""
    return heavy_customers(calls(folder / "calls", rows=1_500, hours=2, files=10))


def join(folder: Path) -> tg.Stream:
    """Trades of different companies that moved alike, within two seconds: a self-join without an equality."""
    moves = (
        tg.stream(trades(folder / "trades", rows=3_000), time="ts", name="trades")
        .with_columns(nd=(nw.col("price") - nw.col("average")) / nw.col("average"))
        .select("ts", "id", "price", "nd")
    )
    near = moves.join(moves, within="2 seconds", where=lambda l, r: (l.id != r.id) & (abs(l.nd - r.nd) < 0.0001))
    return near.select("ts", "id", "price", "id_right", "price_right")


def follow(window: Any, trade: Any) -> Any:
    """Number the trades of a company, and tell the change since the last one: what it gives depends on every order."""
    number, change = window.state["number"] + 1, trade["price"] - window.state["price"]
    row = {"id": window.key, "number": number, "change": change}
    return tg.updated({"number": number, "price": trade["price"]}, rows=[row])


def apply(folder: Path) -> tg.Stream:
    """A function of one tuple over state that never ends."""
    stream = tg.stream(trades(folder / "trades", rows=3_000), time="ts", name="trades")
    return (
        stream.key_by("id")
        .unbounded()
        .apply(
            update=follow,
            state={"number": pa.int64(), "price": pa.float64()},
            initial={"number": 0, "price": 0.0},
            returns={"id": pa.string(), "number": pa.int64(), "change": pa.float64()},
            name="follow",
        )
    )


QUERIES = {"demo": demo, "join": join, "apply": apply}
