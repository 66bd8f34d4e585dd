"""Bargains: shares offered below the average price of the last 15 seconds, weighted by volume (Gedik et al., Finance).

An aggregate, then a join of its results with another stream. A quote that comes soon after a window of trades and asks less
than their average price is a bargain, the better the more shares it offers. Try

    tidegate run examples/bargain_index.py --on local
"""

import math

import narwhals as nw
from inputs.trades import quotes, trades

import tidegate as tg

vwap = (
    tg.stream(trades(rows=20_000), time="ts", name="trades")
    .with_columns(worth=nw.col("price") * nw.col("volume"))
    .key_by("id")
    .window("15 seconds", every="1 second")
    .aggregate(worth=tg.sum("worth"), volume=tg.sum("volume"))
    .with_columns(vwap=nw.col("worth") / nw.col("volume"))
    .select("ts", "id", "vwap")
)

query = (
    tg.stream(quotes(rows=20_000), time="ts", name="quotes")
    .join(vwap, on="id", within="1 second", where=lambda l, r: (r.ts <= l.ts) & (l.ask < r.vwap))
    .with_columns(bargain=((nw.col("vwap") - nw.col("ask")) / math.e * nw.col("size")).round(2))
    .select("ts", "id", "ask", "vwap", "size", "bargain")
)
