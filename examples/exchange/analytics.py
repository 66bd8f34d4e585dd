"""What follows the transactor: six statistics and five events, each of them over its transactions.

The paper names moving averages, a composite index and alarms of prices; the others are what an exchange would ask too.
"""

import narwhals as nw
import pyarrow as pa

import tidegate as tg

LARGE_CENTS = 10_000_000
JUMP_PERCENT = 1
BURST = 12
BASE_INDEX = 1_000.0
col = nw.col


def statistics(deals: tg.Stream) -> dict[str, tg.Stream]:
    """Six statistics of transactions."""
    minutes = deals.key_by("stock").window("1 minute")
    squared = deals.with_columns(square=col("price") * col("price"))
    sums = {"n": tg.count(), "total": tg.sum("price"), "squares": tg.sum("square")}
    variance = (col("n") * col("squares") - col("total") * col("total")) / (col("n") * col("n"))
    closes = deals.key_by("stock").window("10 seconds").aggregate(close=tg.last("price"))
    return {
        "moving_average": deals.key_by("stock")
        .window("1 minute", every="10 seconds")
        .aggregate(price=tg.mean("price"), deals=tg.count()),
        "vwap": minutes.aggregate(cash=tg.sum("cash"), volume=tg.sum("volume")).with_columns(
            vwap=col("cash") / col("volume")
        ),
        "candles": minutes.aggregate(
            open=tg.first("price"), high=tg.max("price"), low=tg.min("price"), close=tg.last("price")
        ),
        "volatility": squared.key_by("stock")
        .window("5 minutes", every="1 minute")
        .aggregate(**sums)
        .with_columns(deviation=variance**0.5),
        "turnover": deals.window("1 minute").aggregate(
            deals=tg.count(), cash=tg.sum("cash"), stocks=tg.distinct("stock")
        ),
        "composite_index": closes.with_columns(market=nw.lit("all"))
        .key_by("market")
        .unbounded()
        .apply(
            update=level,
            state={"step": pa.int64(), "total": pa.int64(), "divisor": pa.float64()},
            initial={"step": 0, "total": 0, "divisor": 0.0},
            stores={"prices": tg.store(key=pa.string(), value=pa.int64())},
            returns={"step": pa.int64(), "index": pa.float64()},
        )
        .window("10 seconds")
        .aggregate(index=tg.last("index")),
    }


def level(window, close):
    """The index after a closing price: last prices over a divisor, set so that a stock's first price does not move it."""
    step, total, divisor = (window.state[name] for name in ("step", "total", "divisor"))
    prices = window.store("prices")
    before = prices.get(close["stock"])
    prices.put(close["stock"], close["close"])
    if before is None:
        index = total / divisor if total else BASE_INDEX
        total += close["close"]
        divisor = total / index
    else:
        total += close["close"] - before
    state = {"step": step + 1, "total": total, "divisor": divisor}
    return tg.updated(state, rows={"step": step + 1, "index": total / divisor})


def events(deals: tg.Stream, limits: pa.Table) -> dict[str, tg.Stream]:
    """Five events; `limits` has the price of each stock above which someone wants to hear of it."""
    return {
        "price_alarms": deals.lookup(limits, on="stock").filter(col("price") > col("limit")),
        "large_deals": deals.filter(col("cash") >= LARGE_CENTS),
        "own_deals": deals.filter(col("seller") == col("buyer")),
        "price_jumps": deals.key_by("stock")
        .unbounded()
        .apply(
            update=jump,
            state={"last": pa.int64()},
            returns={"stock": pa.string(), "before": pa.int64(), "price": pa.int64()},
        ),
        "bursts": deals.key_by("stock").window("10 seconds").aggregate(deals=tg.count()).filter(col("deals") >= BURST),
    }


def jump(window, deal):
    """A row if the price differs from the one before by more than some percent."""
    before, price = window.state["last"], deal["price"]
    if before is not None and abs(price - before) * 100 > before * JUMP_PERCENT:
        return tg.updated({"last": price}, rows={"stock": window.key, "before": before, "price": price})
    return tg.updated({"last": price})
