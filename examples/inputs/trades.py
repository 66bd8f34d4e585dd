"""Trades and quotes of a few companies, at a rate that changes abruptly, as at an exchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.demo import demo_folder, write_once

Array = np.ndarray[Any, Any]

COMPANIES = ("AAPL", "AMZN", "BAC", "FB", "GE", "INTC", "MSFT", "MU", "NFLX", "T")
FIRST_US = 1_532_957_400_000_000  # 2018-07-30 13:30 UTC
MOVE = 0.0008


def trades(folder: str | Path | None = None, *, rows: int = 20_000, seed: int = 1, files: int = 4) -> str:
    """A folder of trades, generated unless it is there; returns its path.

    ``average`` is the company's average price of the day before. Companies move in two groups, one against the other.
    """
    where = Path(folder) if folder is not None else demo_folder(f"trades-{rows}-{seed}")
    return write_once(where, lambda: _trades(rows, seed), files)


def quotes(folder: str | Path | None = None, *, rows: int = 20_000, seed: int = 2, files: int = 4) -> str:
    """A folder of quotes: what is asked for shares of a company, and how many."""
    where = Path(folder) if folder is not None else demo_folder(f"quotes-{rows}-{seed}")
    return write_once(where, lambda: _quotes(rows, seed), files)


def _trades(rows: int, seed: int) -> pa.Table:
    times, company, average, price = _market(rows, seed)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "id": pa.array(COMPANIES).take(pa.array(company)),
            "price": price,
            "average": average,
            "volume": np.random.default_rng(seed).integers(1, 500, rows),
        }
    )


def _quotes(rows: int, seed: int) -> pa.Table:
    times, company, _, price = _market(rows, seed)
    random = np.random.default_rng(seed)
    asked = price * (1 + random.normal(0, 0.003, rows))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "id": pa.array(COMPANIES).take(pa.array(company)),
            "ask": asked,
            "size": random.integers(1, 50, rows) * 100,
        }
    )


def _market(rows: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Times, companies, their averages and their prices."""
    random = np.random.default_rng(seed)
    # Most trades come in bursts: a few pauses are long.
    times = FIRST_US + np.cumsum(random.pareto(1.5, rows) * 10_000).astype(np.int64)
    company = random.integers(0, len(COMPANIES), rows)
    average = (50.0 + 40.0 * np.arange(len(COMPANIES)))[company]
    mood = np.cumsum(random.normal(0, MOVE, rows))
    side = np.where(company % 2 == 0, 1.0, -1.0)
    return times, company, average, np.round(average * (1 + side * mood + random.normal(0, MOVE, rows)), 2)
