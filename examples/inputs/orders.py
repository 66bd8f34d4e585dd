"""Limit orders at a stock exchange (Elasticutor §5.4), generated, or made of the real quotes of a day."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.inputs.ticks import quoted

STOCKS = 40
TRADERS = 300
PER_SECOND = 50
FIRST_US = 1_704_159_000_000_000  # 2024-01-02 01:30 UTC, when Shanghai opens
SHIFT_SECONDS = 60
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("order", pa.int64()),
        ("stock", pa.string()),
        ("trader", pa.string()),
        ("side", pa.string()),
        ("price", pa.int64()),
        ("volume", pa.int64()),
    ]
)
"""`order` counts up in the order of arrival; prices are in cents."""


def orders(rows: int, seed: int = 1) -> pa.Table:
    """So many orders by time: some stocks are asked for far more than others, and every minute these are others."""
    random = np.random.default_rng(seed)
    at_us = np.sort(random.integers(0, max(1, rows * 1_000_000 // PER_SECOND), rows))
    shift = at_us // (SHIFT_SECONDS * 1_000_000)
    stock = ((STOCKS * random.random(rows) ** 3).astype(np.int64) + 7 * shift) % STOCKS
    # All prices drift together, some of them against the rest; what a trader bids lies around that, so about half trade.
    drift = np.cumsum(random.normal(0, 0.0004, rows)) * np.where(stock % 5 == 0, -1.0, 1.0)
    value = (1_000 + 200 * stock) * (1 + drift)
    buys = random.random(rows) < 0.5
    price = value * (1 + random.normal(0, 0.004, rows) + np.where(buys, -0.002, 0.002))
    return pa.table(
        [
            pa.array(FIRST_US + at_us, SCHEMA.types[0]),
            np.arange(rows),
            pa.array([f"60{number:04}" for number in range(STOCKS)]).take(pa.array(stock)),
            pa.array([f"T{number:03}" for number in range(TRADERS)]).take(pa.array(random.integers(0, TRADERS, rows))),
            pa.array(["sell", "buy"]).take(pa.array(buys.astype(np.int64))),
            np.maximum(1, price).astype(np.int64),
            random.integers(1, 20, rows) * 100,
        ],
        schema=SCHEMA,
    )


def quoted_orders(folder: Path, rows: int) -> pa.Table:
    """The first quotes of `folder/stocks_lean_tick/*_quote.zip` as orders that stand until they are filled.

    A line of these files quotes one side at one exchange, which is the trader here. At the exchange a quote ends when the
    next one comes; an order here does not, as the paper's orders do not.
    """
    quotes = quoted(folder).filter(pc.field("volume") > 0).slice(0, rows)
    numbered = quotes.append_column("order", pa.array(np.arange(quotes.num_rows)))
    priced = numbered.set_column(
        numbered.column_names.index("price"), "price", pc.round(pc.multiply(numbered["price"], 100)).cast(pa.int64())
    )
    return priced.select(SCHEMA.names).cast(SCHEMA)
