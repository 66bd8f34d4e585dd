"""Queries 5, 7, 8, 11 and 12: windows and sessions."""

from __future__ import annotations

import tidegate as tg
from examples.nexmark.market import TIME, Market


def q5(of: Market) -> tg.Stream:
    """Hot items: the auctions with the most bids in the last ten seconds, every two seconds.

    Bids are counted by auction over windows that overlap. All counts of a window have the same time, its end − 1 µs, and a
    window of two seconds around them has the greatest; the join gives all auctions that have as many.
    """
    counts = of.bid.key_by("auction").window("10 seconds", every="2 seconds").aggregate(num=tg.count())
    most = counts.window("2 seconds").aggregate(most=tg.max("num")).select(TIME, "window_end", "most")
    hottest = counts.join(most, on="window_end", within=0, where=lambda l, r: l.num >= r.most)
    return hottest.select(TIME, "window_end", "auction", "num")


def q7(of: Market) -> tg.Stream:
    """Highest bid: the bids with the highest price of each ten seconds.

    The highest price of each window, joined with the bids of that price in the window. As in the SQL a bid at the very end
    of the window counts too, if its price is as high.
    """
    highest = of.bid.window("10 seconds").aggregate(price=tg.max("price"))
    bids = of.bid.select(TIME, "auction", "bidder", "price", "extra")
    pairs = bids.join(
        highest,
        on="price",
        within="10 seconds",
        where=lambda l, r: (r.window_start <= l.date_time) & (l.date_time <= r.window_end),
    )
    return pairs.select(TIME, "date_time_left", "auction", "bidder", "price", "extra")


def q8(of: Market) -> tg.Stream:
    """New users: persons who registered and opened an auction in the same ten seconds. A semi join over windows."""
    persons = of.person.select(TIME, "id", "name")
    sellers = of.auction.select(TIME, "seller")
    new = persons.join(sellers, on=[("id", "seller")], window="10 seconds", how="semi")
    return new.select(TIME, "id", "name", "window_start")


def q11(of: Market) -> tg.Stream:
    """User sessions: how many bids a bidder made in a row, with less than ten seconds in between. Sessions."""
    return of.bid.key_by("bidder").session("10 seconds").aggregate(bid_count=tg.count())


def q12(of: Market) -> tg.Stream:
    """Processing time windows: how many bids of a bidder arrived in each ten seconds.

    Windows over the time at which a bid arrived. It was recorded, so that the answer is the same at every run.
    """
    return of.arriving.key_by("bidder").window("10 seconds").aggregate(bid_count=tg.count())
