"""Queries 3, 4, 6, 9 and 20: auctions, their sellers and their bids."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import narwhals as nw
import pyarrow as pa

import tidegate as tg
from examples.nexmark.market import TIME, Market

HISTORY = "1 day"
"""For how long tuples without a partner are kept. Flink's SQL keeps them for ever, unless it is told not to."""
BIDS = (TIME, "auction", "bidder", "price", "channel", "url", "extra")


def q3(of: Market) -> tg.Stream:
    """Local items: who sells in Oregon, Idaho or California, and what, of one category. A join by key within a day."""
    auctions = of.auction.filter(nw.col("category") == 10).select(TIME, "id", "seller")
    persons = of.person.filter(nw.col("state").is_in(["OR", "ID", "CA"])).select(
        TIME, nw.col("id").alias("person"), "name", "city", "state"
    )
    pairs = auctions.join(persons, on=[("seller", "person")], within=HISTORY)
    return pairs.select(TIME, "name", "city", "state", "id")


def q20(of: Market) -> tg.Stream:
    """Expand bids: each bid with its auction, of one category. A join by key within a day."""
    auctions = of.auction.filter(nw.col("category") == 10)
    pairs = of.bid.select(*BIDS).join(auctions, on=[("auction", "id")], within=HISTORY)
    return pairs.select(
        TIME, "auction", "bidder", "price", "channel", "url", "date_time_left", "extra", "item_name", "description",
        "initial_bid", "reserve", "date_time_right", "expires", "seller", "category", "extra_right",
    )  # fmt: skip


def while_open(of: Market, auctions: tg.Stream, bids: tg.Stream) -> tg.Stream:
    """Auctions with the bids that were made while they were open: a join by key, as near as an auction is long."""

    def is_open(l: Any, r: Any) -> Any:
        return (l.date_time <= r.date_time) & (r.date_time <= l.expires)

    return auctions.join(bids, on=[("id", "auction")], within=of.longest, where=is_open)


def ended(of: Market) -> timedelta:
    """How long after its last bid an auction has surely ended: sessions of its bids with this gap hold all of them."""
    return of.longest + timedelta(microseconds=1)


def q9(of: Market) -> tg.Stream:
    """Winning bids: the highest bid of each auction, of equal ones the earliest.

    Each auction with the bids made while it was open; the session of these ends when there can be no more, and gives its
    first by price. The result comes once, when it is final. Flink's SQL gives a row whenever another bid leads.
    """
    auctions = of.auction.with_columns(opened=nw.col(TIME))
    bids = of.bid.select(TIME, "auction", "bidder", "price", "extra")
    first = while_open(of, auctions, bids).key_by("id").session(ended(of)).top_n(1, by="price")
    return first.select(
        TIME, "id", "item_name", "description", "initial_bid", "reserve", "opened", "expires", "seller", "category",
        "extra", "bidder", "price", "date_time_right", "extra_right",
    )  # fmt: skip


def q4(of: Market) -> tg.Stream:
    """Average price by category: of the auctions that have ended, by their highest bids; a row with each that ends.

    The highest bid of each session, then a mean that goes on, by a function. Flink's SQL has open auctions in its mean too,
    and replaces what they count for; when all have ended the last rows are the same.
    """
    auctions, bids = of.auction.select(TIME, "id", "expires", "category"), of.bid.select(TIME, "auction", "price")
    final = while_open(of, auctions, bids).key_by("id", "category").session(ended(of)).aggregate(final=tg.max("price"))

    def add(window: Any, auction: Any) -> Any:
        total, auctions = window.state["total"] + auction["final"], window.state["auctions"] + 1
        row = {"category": window.key, "auctions": auctions, "average": total / auctions}
        return tg.updated({"total": total, "auctions": auctions}, rows=row)

    state = {"total": pa.int64(), "auctions": pa.int64()}
    return (
        final.key_by("category")
        .unbounded()
        .apply(
            update=add,
            state=state,
            initial={"total": 0, "auctions": 0},
            returns={"category": pa.int64(), "auctions": pa.int64(), "average": pa.float64()},
        )
    )


def q6(of: Market) -> tg.Stream:
    """Average price by seller: of the last ten auctions of each that have ended; a row with each that ends, from the tenth.

    The highest bid of each session, then windows of ten of a seller's auctions. Sellers with fewer give nothing, and are
    counted as windows that were not full. Flink refuses the SQL: it is an average over rows that change.
    """
    auctions, bids = of.auction.select(TIME, "id", "expires", "seller"), of.bid.select(TIME, "auction", "price")
    final = while_open(of, auctions, bids).key_by("id", "seller").session(ended(of)).aggregate(final=tg.max("price"))
    return final.key_by("seller").count_window(10, every=1).aggregate(average=tg.mean("final"), last=tg.last("id"))
