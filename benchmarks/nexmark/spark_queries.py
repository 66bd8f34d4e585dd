"""The queries of Nexmark for native Spark Structured Streaming, as well as it can express them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.engines.spark_native import WATERMARK_DELAY

CANNOT: Mapping[str, str] = {
    "q4": "an aggregate of an aggregate needs windows",
    "q6": "no windows in number of rows",
    "q15": "no distinct counts in a stream",
    "q16": "no distinct counts in a stream",
    "q19": "no ranks in a stream",
}
UPDATING = ("q17", "q18")
"""Queries that give a row whenever it changes, in update mode; the others append."""
BIDS = ("auction", "bidder", "price", "channel", "url", "extra")
TIME = "date_time"


@dataclass(frozen=True, slots=True)
class Tables:
    """The streams, the table of query 13, and how long an auction may be open."""

    person: DataFrame
    auction: DataFrame
    bid: DataFrame
    side: DataFrame
    longest: timedelta


def _timed(rows: DataFrame, time: str = TIME) -> DataFrame:
    return rows.withWatermark(time, WATERMARK_DELAY)


def q0(of: Tables) -> DataFrame:
    return of.bid.select("auction", "bidder", "price", TIME, "extra")


def q1(of: Tables) -> DataFrame:
    return q0(of).withColumn("price", F.col("price") * F.lit(0.908))


def q2(of: Tables) -> DataFrame:
    return of.bid.where("auction % 123 = 0").select("auction", "price")


def q3(of: Tables) -> DataFrame:
    auctions = of.auction.where("category = 10").select("id", "seller")
    people = of.person.where("state in ('OR', 'ID', 'CA')").select(F.col("id").alias("person"), "name", "city", "state")
    return auctions.join(people, F.expr("seller = person")).select("name", "city", "state", "id")


def q5(of: Tables) -> DataFrame:
    counts = _timed(of.bid).groupBy(F.window(TIME, "10 seconds", "2 seconds"), "auction").agg(F.count("*").alias("num"))
    found = counts.groupBy("window").agg(
        F.max("num").alias("most"), F.collect_list(F.struct("auction", "num")).alias("all")
    )
    rows = found.select(F.col("window.end").alias("window_end"), "most", F.explode("all").alias("one"))
    return rows.where("one.num = most").select("window_end", "one.auction", "one.num")


def q7(of: Tables) -> DataFrame:
    highest = _timed(of.bid).groupBy(F.window(TIME, "10 seconds")).agg(F.max("price").alias("highest"))
    highest = highest.select("highest", F.window_time("window").alias("closed"))
    bids = _timed(
        of.bid.select(F.col(TIME).alias("date_time_left"), "auction", "bidder", "price", "extra"), "date_time_left"
    )
    near = (
        "price = highest and date_time_left >= closed - interval 9999999 microseconds "
        "and date_time_left <= closed + interval 1 microsecond"
    )
    return bids.join(highest, F.expr(near)).select("date_time_left", "auction", "bidder", "price", "extra")


def q8(of: Tables) -> DataFrame:
    people = _timed(of.person).groupBy(F.window(TIME, "10 seconds"), "id", "name").agg(F.count("*").alias("n"))
    sellers = (
        _timed(of.auction).groupBy(F.window(TIME, "10 seconds").alias("other"), "seller").agg(F.count("*").alias("m"))
    )
    pairs = people.join(sellers, F.expr("id = seller and window = other"))
    return pairs.select("id", "name", F.col("window.start").alias("window_start"))


def q9(of: Tables) -> DataFrame:
    span = f"interval {round(of.longest.total_seconds() * 1e6)} microseconds"
    auctions = _timed(of.auction.withColumnRenamed(TIME, "opened"), "opened")
    bids = of.bid.select(
        F.col(TIME).alias("date_time_right"), "auction", "bidder", "price", F.col("extra").alias("extra_right")
    )
    is_open = (
        "id = auction and date_time_right >= opened and date_time_right <= expires "
        f"and date_time_right <= opened + {span}"
    )
    pairs = auctions.join(_timed(bids, "date_time_right"), F.expr(is_open))
    columns = [name for name in pairs.columns if name not in ("id", "auction")]
    best = F.max_by(F.struct(*columns), F.struct("price", -F.unix_micros("date_time_right"), -F.col("bidder")))
    session = F.session_window("date_time_right", f"{round(of.longest.total_seconds() * 1e3) + 1} milliseconds")
    return pairs.groupBy(session, "id").agg(best.alias("best")).select("id", "best.*")


def q10(of: Tables) -> DataFrame:
    return q0(of).withColumns({"dt": F.date_format(TIME, "yyyy-MM-dd"), "hm": F.date_format(TIME, "HH:mm")})


def q11(of: Tables) -> DataFrame:
    counts = _timed(of.bid).groupBy(F.session_window(TIME, "10 seconds").alias("window"), "bidder")
    return counts.agg(F.count("*").alias("bid_count")).select(
        "bidder", "bid_count", F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")
    )


def q12(of: Tables) -> DataFrame:
    counts = _timed(of.bid, "arrival").groupBy(F.window("arrival", "10 seconds").alias("window"), "bidder")
    counted = counts.agg(F.count("*").alias("bid_count"))
    return counted.select("bidder", "bid_count", F.col("window.start").alias("window_start"))


def q13(of: Tables) -> DataFrame:
    pairs = of.bid.join(F.broadcast(of.side), F.expr("auction % 10000 = key"))
    return pairs.select("auction", "bidder", "price", TIME, "value")


def q14(of: Tables) -> DataFrame:
    hour = F.hour(TIME)
    by_day = F.when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    letters = (F.length("extra") - F.length(F.replace("extra", F.lit("c"), F.lit("")))).cast("long")
    return (
        q1(of).where("price > 1000000 and price < 50000000").withColumns({"bid_time_type": by_day, "c_counts": letters})
    )


def q17(of: Tables) -> DataFrame:
    low, high = F.col("price") < 10_000, F.col("price") >= 1_000_000
    days = of.bid.groupBy("auction", F.date_trunc("day", TIME).alias("window_start"))
    return days.agg(
        F.count("*").alias("total_bids"),
        _count_if(low).alias("rank1_bids"),
        _count_if(~low & ~high).alias("rank2_bids"),
        _count_if(high).alias("rank3_bids"),
        F.min("price").alias("min_price"),
        F.max("price").alias("max_price"),
        F.avg("price").alias("avg_price"),
        F.sum("price").alias("sum_price"),
    )


def _count_if(test: Column) -> Column:
    return F.count(F.when(test, 1))


def q18(of: Tables) -> DataFrame:
    bids = of.bid.withColumnRenamed(TIME, "at")
    last = F.max_by(F.struct("price", "channel", "url", "at", "extra"), F.struct("at", -F.col("price")))
    return bids.groupBy("bidder", "auction").agg(last.alias("last")).select("bidder", "auction", "last.*")


def q20(of: Tables) -> DataFrame:
    auctions = of.auction.where("category = 10").withColumnsRenamed({TIME: "date_time_right", "extra": "extra_right"})
    bids = of.bid.select(F.col(TIME).alias("date_time_left"), *BIDS)
    return bids.join(auctions, F.expr("auction = id")).drop("id")


def q21(of: Tables) -> DataFrame:
    channel, found = F.lower("channel"), F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2)
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    number = F.when(found != "", found)
    for name, value in known.items():
        number = F.when(channel == name, value).otherwise(number)
    rows = of.bid.select("auction", "bidder", "price", "channel", number.alias("channel_id"))
    return rows.where("channel_id is not null")


def q22(of: Tables) -> DataFrame:
    parts = F.split("url", "/")
    directories = [parts[place + 2].alias(f"dir{place}") for place in (1, 2, 3)]
    return of.bid.select("auction", "bidder", "price", "channel", *directories)


NATIVE: Mapping[str, Callable[[Tables], DataFrame]] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q5, q7, q8, q9, q10, q11, q12, q13, q14, q17, q18, q20, q21, q22)
}
