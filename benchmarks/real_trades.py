"""Real trades as an input: ticks of a few companies, sorted by time, each with the company's average price."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

TICKS = "stocks_lean_tick"
PRICE_UNIT = 10_000


def read_trades(folder: Path) -> pa.Table:
    """The trades of `folder/stocks_lean_tick/COMPANY_YYYYMMDD_trade.zip` by time: ts, id, price, average.

    The average is the company's of its day before among the files; of the same day where there is none.
    """
    paths = sorted((folder / TICKS).glob("*_trade.zip"))
    if not paths:
        raise FileNotFoundError(f"--data {folder}: no file matches {TICKS}/*_trade.zip in it")
    days = []
    averages: dict[str, float] = {}
    for path in paths:  # by company, then by day
        company, day, _ = path.name.split("_")
        times, prices = _ticks(path, day)
        mean = float(np.mean(prices))
        average = averages.get(company, mean)
        averages[company] = mean
        days.append(
            pa.table(
                {
                    "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                    "id": pa.repeat(company.upper(), len(times)),
                    "price": prices,
                    "average": np.full(len(times), average),
                }
            )
        )
    return pa.concat_tables(days).sort_by([("ts", "ascending"), ("id", "ascending")]).combine_chunks()


def _ticks(path: Path, day: str) -> tuple[np.ndarray, np.ndarray]:
    """Times, in microseconds, and prices of one file, which counts milliseconds of its day and ten-thousandths."""
    midnight_us = int(datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).timestamp()) * 1_000_000
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as lines:
        table = csv.read_csv(
            lines,
            csv.ReadOptions(column_names=["ms", "price", "size", "exchange", "condition", "suspicious"]),
            convert_options=csv.ConvertOptions(
                include_columns=["ms", "price"], column_types={"ms": pa.float64(), "price": pa.float64()}
            ),
        )
    ms = np.array(pc.floor(table.column("ms"))).astype(np.int64)
    return midnight_us + ms * 1_000, np.array(table.column("price")) / PRICE_UNIT
