"""Queries 15 to 19: statistics by day, and what is latest and best.

Flink's SQL gives a row whenever one changes. Here a result comes once, when it is final: that of a day when it has ended,
and that of an auction when it has no more bids.
"""

from __future__ import annotations

import narwhals as nw

import tidegate as tg
from examples.nexmark.auctions import BIDS, ended
from examples.nexmark.market import TIME, Market

LOW, HIGH = 10_000, 1_000_000
DAY = "1 day"


def ranked(bids: tg.Stream) -> tuple[tg.Stream, dict[str, tg.Aggregate]]:
    """Bids with a column for each of three ranks of price, and how many bids each rank has."""
    price = nw.col("price")
    ranks = {"rank1": price < LOW, "rank2": (price >= LOW) & (price < HIGH), "rank3": price >= HIGH}
    counted = bids.with_columns(**{f"{rank}_bids": test.cast(nw.Int64) for rank, test in ranks.items()})
    return counted, {"total_bids": tg.count(), **{f"{rank}_bids": tg.sum(f"{rank}_bids") for rank in ranks}}


def with_distinct(bids: tg.Stream) -> tuple[tg.Stream, dict[str, tg.Aggregate]]:
    """As `ranked`, and how many different bidders and auctions there are, in all and of each rank."""
    counted, aggregates = ranked(bids)
    for what in ("bidder", "auction"):
        aggregates[f"total_{what}s"] = tg.distinct(what)
        for rank in ("rank1", "rank2", "rank3"):
            only = nw.when(nw.col(f"{rank}_bids") == 1).then(nw.col(what))  # null, which is not counted, of other ranks
            counted = counted.with_columns(**{f"{rank}_{what}s": only})
            aggregates[f"{rank}_{what}s"] = tg.distinct(f"{rank}_{what}s")
    return counted, aggregates


def q15(of: Market) -> tg.Stream:
    """Bids by day: how many, by rank of price, and how many different bidders and auctions. A window of a day."""
    bids, aggregates = with_distinct(of.bid.select(TIME, "auction", "bidder", "price"))
    return bids.window(DAY).aggregate(**aggregates)


def q16(of: Market) -> tg.Stream:
    """Bids by channel and day: the same, and the last minute with a bid. A window of a day by channel."""
    bids, aggregates = with_distinct(of.bid.select(TIME, "auction", "bidder", "price", "channel"))
    timed = bids.with_columns(at=nw.col(TIME))
    days = timed.key_by("channel").window(DAY).aggregate(minute=tg.max("at"), **aggregates)
    return days.with_columns(minute=nw.col("minute").dt.to_string("%H:%M"))


def q17(of: Market) -> tg.Stream:
    """Auctions by day: bids by rank, least, greatest, mean and sum of prices. A window of a day by auction."""
    bids, aggregates = ranked(of.bid.select(TIME, "auction", "price"))
    prices = {
        "min_price": tg.min("price"),
        "max_price": tg.max("price"),
        "avg_price": tg.mean("price"),
        "sum_price": tg.sum("price"),
    }
    return bids.key_by("auction").window(DAY).aggregate(**aggregates, **prices)


def q18(of: Market) -> tg.Stream:
    """Last bid of each bidder for each auction. The session of their bids ends with the auction, and gives the last one."""
    bids = of.bid.select(*BIDS).with_columns(at=nw.col(TIME))
    last = bids.key_by("bidder", "auction").session(ended(of)).top_n(1, by="at")
    return last.select(TIME, "bidder", "auction", "price", "channel", "url", "at", "extra")


def q19(of: Market) -> tg.Stream:
    """Ten highest bids of each auction. The session of its bids ends with it, and gives the first ten by price."""
    bids = of.bid.select(*BIDS).with_columns(at=nw.col(TIME))
    ten = bids.key_by("auction").session(ended(of)).top_n(10, by="price")
    return ten.select(TIME, "auction", "bidder", "price", "channel", "url", "at", "extra", "rank")
