"""Bargains: shares that are offered below the average price of the last 15 seconds, weighted by volume."""

import narwhals as nw

import tidegate as tg

col = nw.col


def average_prices(trades: tg.Stream) -> tg.Stream:
    """The average price of each company over 15 seconds, weighted by volume, every second."""
    return (
        trades.with_columns(worth=col("price") * col("volume"))
        .key_by("id")
        .window("15 seconds", every="1 second")
        .aggregate(worth=tg.sum("worth"), volume=tg.sum("volume"))
        .with_columns(vwap=col("worth") / col("volume"))
        .select("ts", "id", "vwap")
    )


def bargains(trades: tg.Stream, quotes: tg.Stream) -> tg.Stream:
    """The quotes that ask less than the average of at most five seconds before, and what buying all of it saves."""
    return (
        quotes.join_asof(average_prices(trades), on="id", tolerance="5 seconds")
        .filter(col("ask") < col("vwap"))
        .with_columns(index=(col("vwap") - col("ask")) * col("size"))
        .select("ts", "id", "ask", "size", "vwap", "index")
    )
