"""Real trades and quotes of a few companies: the files `COMPANY_YYYYMMDD_trade.zip` and `…_quote.zip` of a data folder."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

TICKS = "stocks_lean_tick"
TRADE = ("ms", "price", "volume", "exchange", "condition", "suspicious")
QUOTE = ("ms", "bid", "bid_size", "ask", "ask_size", "exchange", "condition", "suspicious")
PRICE_UNIT = 10_000


def traded(folder: Path) -> pa.Table:
    """All trades by time: ts, id, price, volume."""
    return _by_time(folder, "trade", TRADE, lambda lines: _side(lines, "price", "volume"))


def quoted(folder: Path) -> pa.Table:
    """All quotes by time: ts, stock, trader (the exchange), side, price, volume; a line is a bid or an ask, or both."""

    def sides(lines: pa.Table) -> pa.Table:
        both = {"buy": _side(lines, "bid", "bid_size"), "sell": _side(lines, "ask", "ask_size")}
        told = [table.append_column("side", pa.repeat(side, table.num_rows)) for side, table in both.items()]
        return pa.concat_tables(told).filter(pc.field("price") > 0)

    quotes = _by_time(folder, "quote", QUOTE, sides)
    return quotes.rename_columns({"id": "stock", "exchange": "trader"})


def _side(lines: pa.Table, price: str, volume: str) -> pa.Table:
    named = {"price": pc.divide(lines[price].cast(pa.float64()), PRICE_UNIT), "volume": lines[volume].cast(pa.int64())}
    return pa.table({"ts": lines["ts"], "id": lines["id"], "exchange": lines["exchange"], **named})


def _by_time(folder, kind, columns, shape) -> pa.Table:
    """The lines of all files of a kind, shaped, by time, then company."""
    paths = sorted((folder / TICKS).glob(f"*_{kind}.zip"))
    if not paths:
        raise FileNotFoundError(f"--data {folder}: no file matches {TICKS}/*_{kind}.zip in it")
    tables = [shape(_lines(path, columns)) for path in paths]
    return pa.concat_tables(tables).sort_by([("ts", "ascending"), ("id", "ascending")]).combine_chunks()


def _lines(path: Path, columns: tuple[str, ...]) -> pa.Table:
    """One file, which counts milliseconds of its day; with the times in microseconds and the company."""
    company, day, _ = path.name.split("_")
    midnight_us = int(datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).timestamp()) * 1_000_000
    types = {name: pa.string() if name in ("exchange", "condition") else pa.float64() for name in columns}
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as lines:
        table = csv.read_csv(
            lines, csv.ReadOptions(column_names=list(columns)), convert_options=csv.ConvertOptions(column_types=types)
        )
    ts_us = midnight_us + np.floor(table["ms"].to_numpy()).astype(np.int64) * 1_000
    moments = pa.array(ts_us, pa.timestamp("us", tz="UTC"))
    return table.append_column("ts", moments).append_column("id", pa.repeat(company.upper(), table.num_rows))
