"""The exchange: a plain order book over the same orders, and DuckDB over its transactions."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidegate as tg
from examples.exchange.analytics import BASE_INDEX, BURST, JUMP_PERCENT, LARGE_CENTS
from examples.exchange.application import exchange, with_limits
from examples.inputs.orders import SCHEMA, orders
from tidegate.testing import answer, difference

ORDERS = 3_000


def plain_book(placed: pa.Table) -> list[dict[str, Any]]:
    """All transactions: of the orders that face one and whose price will do, always the best and then the oldest."""
    standing: dict[tuple[str, str], list[dict[str, Any]]] = {}
    made: list[dict[str, Any]] = []
    for order in placed.to_pylist():
        facing = standing.setdefault((order["stock"], "sell" if order["side"] == "buy" else "buy"), [])
        sign = 1 if order["side"] == "buy" else -1
        while order["volume"] and facing:
            best = min(facing, key=lambda one: (sign * one["price"], one["order"]))
            if sign * best["price"] > sign * order["price"]:
                break
            volume = min(order["volume"], best["volume"])
            order["volume"] -= volume
            best["volume"] -= volume
            if not best["volume"]:
                facing.remove(best)
            buyer, seller = (order, best) if order["side"] == "buy" else (best, order)
            assert buyer["price"] >= seller["price"]
            made.append(
                {
                    "ts": order["ts"],
                    "stock": order["stock"],
                    "number": 1 + sum(one["stock"] == order["stock"] for one in made),
                    "price": best["price"],
                    "volume": volume,
                    "cash": volume * best["price"],
                    "seller": seller["trader"],
                    "buyer": buyer["trader"],
                }
            )
        if order["volume"]:
            standing.setdefault((order["stock"], order["side"]), []).append(order)
    return made


QUESTIONS = {
    "moving_average": """
        select start, stock, avg(price), count(*)
        from (select *, start: time_bucket(interval 10 second, ts) - back * interval 1 second
              from deals, range(0, 60, 10) as _(back))
        group by all""",
    "vwap": "select start, stock, sum(cash), sum(volume), sum(cash) / sum(volume) from minutes group by all",
    "candles": """
        select start, stock, arg_min(price, number), max(price), min(price), arg_max(price, number)
        from minutes group by all""",
    "volatility": """
        select start, stock, count(*), stddev_pop(price)
        from (select *, start: time_bucket(interval 1 minute, ts) - back * interval 1 minute
              from deals, range(0, 5) as _(back))
        group by all""",
    "turnover": "select start, count(*), sum(cash), count(distinct stock) from minutes group by all",
    "bursts": f"""
        select time_bucket(interval 10 second, ts) as start, stock, count(*) from deals group by all
        having count(*) >= {BURST}""",
    "price_alarms": """
        select ts, stock, number, price, "limit" from deals join limits using (stock) where price > "limit" """,
    "large_deals": f"select ts, stock, number from deals where cash >= {LARGE_CENTS}",
    "own_deals": "select ts, stock, number from deals where seller = buyer",
    "price_jumps": f"""
        select ts, stock, before, price
        from (select *, before: lag(price) over (partition by stock order by number) from deals)
        where abs(price - before) > before * {JUMP_PERCENT} / 100""",
}
"""The analytics in SQL; of the index there is a plain computation below."""
COLUMNS = {
    "moving_average": ["window_start", "stock", "price", "deals"],
    "vwap": ["window_start", "stock", "cash", "volume", "vwap"],
    "candles": ["window_start", "stock", "open", "high", "low", "close"],
    "volatility": ["window_start", "stock", "n", "deviation"],
    "turnover": ["window_start", "deals", "cash", "stocks"],
    "bursts": ["window_start", "stock", "deals"],
    "price_alarms": ["ts", "stock", "number", "price", "limit"],
    "large_deals": ["ts", "stock", "number"],
    "own_deals": ["ts", "stock", "number"],
    "price_jumps": ["ts", "stock", "before", "price"],
}


def plain_index(deals: list[dict[str, Any]]) -> list[float]:
    """The index at the end of every ten seconds with a deal, each time from the beginning."""
    levels = []
    ends = sorted({deal["ts"].timestamp() // 10 for deal in deals})
    prices: dict[str, int] = {}
    level = BASE_INDEX
    for end in ends:
        latest: dict[str, int] = {}
        for deal in deals:
            if deal["ts"].timestamp() // 10 == end:
                latest[deal["stock"]] = deal["price"]
        # In the order of stocks; one that is new enters at the level of that moment.
        for stock in sorted(latest):
            after = {**prices, stock: latest[stock]}
            if stock in prices:
                level *= sum(after.values()) / sum(prices.values())
            prices = after
        levels.append(level)
    return levels


def sorted_rows(table: pa.Table, columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in columns) for row in table.to_pylist())


def check(found: dict[str, pa.Table], inputs: dict[str, pa.Table]) -> None:
    """All twelve results are what the plain book, SQL and a loop find."""
    book = plain_book(inputs["orders"])
    deals = pa.Table.from_pylist(book, found["transactions"].schema)
    assert difference(found["transactions"], deals) is None
    with duckdb.connect() as database:
        database.execute("set TimeZone = 'UTC'")
        database.register("deals", deals)
        database.register("limits", inputs["limits"])
        database.execute("create view minutes as select *, start: time_bucket(interval 1 minute, ts) from deals")
        for name, question in QUESTIONS.items():
            expected = sorted(database.execute(question).fetchall())
            assert expected, name
            rows = sorted_rows(found[name], COLUMNS[name])
            assert len(rows) == len(expected), name
            for row, wanted in zip(rows, expected, strict=True):
                assert row[:2] == wanted[:2], name
                assert row[2:] == pytest.approx(wanted[2:], rel=1e-9, abs=1e-6), name
    index = found["composite_index"].sort_by("ts")["index"].to_pylist()
    assert index == pytest.approx(plain_index(book), rel=1e-9)


def test_all_results_are_those_of_a_plain_book_and_of_sql() -> None:
    inputs = with_limits(orders(ORDERS, seed=7))
    check(exchange.run(inputs, "local"), inputs)


@pytest.mark.spark
def test_spark_gives_the_same(spark: Any) -> None:
    inputs = with_limits(orders(ORDERS, seed=8))
    check(exchange.run(inputs, "spark"), inputs)


def placed(*told: tuple[str, str, int, int]) -> pa.Table:
    """Orders of one stock, a second apart: trader, side, price, volume."""
    rows = [
        {"ts": number * 1_000_000, "order": number, "stock": "s", "trader": t, "side": side, "price": p, "volume": v}
        for number, (t, side, p, v) in enumerate(told)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def test_orders_meet_by_price_then_time_and_in_parts() -> None:
    # a asks 10 for 5, b asks 9 for 5, c asks 9 for 5; d bids 9 for 7: all of b's, then two of c's, at 9.
    # e bids 10 for 20: the rest of c's at 9, then a's at 10; 12 are left, and f sells 4 of them at e's price.
    rows = placed(
        ("a", "sell", 10, 5),
        ("b", "sell", 9, 5),
        ("c", "sell", 9, 5),
        ("d", "buy", 9, 7),
        ("e", "buy", 10, 20),
        ("f", "sell", 8, 4),
        ("g", "sell", 11, 1),
    )
    found = answer(exchange.results(with_limits(rows)))["transactions"].sort_by("number").to_pylist()
    assert [(row["seller"], row["buyer"], row["volume"], row["price"]) for row in found] == [
        ("b", "d", 5, 9),
        ("c", "d", 2, 9),
        ("c", "e", 3, 9),
        ("a", "e", 5, 10),
        ("f", "e", 4, 10),
    ]


def test_the_transactor_runs_once_for_all_results() -> None:
    told = tg.explain(exchange.results(with_limits(orders(50))), runtime="local")
    assert told.count("update = execute") == 1


def test_quotes_of_a_folder_are_orders(tmp_path: Path) -> None:
    (tmp_path / "stocks_lean_tick").mkdir()
    with zipfile.ZipFile(tmp_path / "stocks_lean_tick" / "abc_20131007_quote.zip", "w") as archive:
        archive.writestr("quotes.csv", "34200000,0,0,1000000,300,Q,1,0\n34200001.5,1000100,200,0,0,P,1,0\n")
    found = exchange.run(exchange.read(tmp_path, 100), "local")["transactions"].to_pylist()
    assert [(row["stock"], row["seller"], row["buyer"], row["price"], row["volume"]) for row in found] == [
        ("ABC", "Q", "P", 10_000, 200)
    ]
    assert f"{found[0]['ts']:%F %T.%f}" == "2013-10-07 09:30:00.001000"
    with pytest.raises(FileNotFoundError, match=r"no file matches stocks_lean_tick/\*_quote.zip in it"):
        exchange.read(tmp_path / "stocks_lean_tick", 100)
