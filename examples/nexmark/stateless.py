"""Queries 0, 1, 2, 10, 13, 14, 21 and 22: each bid by itself."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from examples.nexmark.market import TIME, Market

EUROS = 0.908
CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def q0(of: Market) -> tg.Stream:
    """Pass through: all bids as they are. What reading and writing cost."""
    return of.bid.select("auction", "bidder", "price", TIME, "extra")


def q1(of: Market) -> tg.Stream:
    """Currency: prices in euros instead of dollars. One product; a float, where Flink's SQL has a decimal."""
    return q0(of).with_columns(price=nw.col("price") * EUROS)


def q2(of: Market) -> tg.Stream:
    """Selection: the bids for every 123rd auction. One filter."""
    return of.bid.filter(nw.col("auction") % 123 == 0).select(TIME, "auction", "price")


def q10(of: Market) -> tg.Stream:
    """Log to files: all bids, with the day and the minute that say into which part of a partitioned folder they go.

    The sinks have no partitions, so the two columns are there for whoever reads the folder.
    """
    moment = nw.col(TIME)
    return q0(of).with_columns(dt=moment.dt.to_string("%Y-%m-%d"), hm=moment.dt.to_string("%H:%M"))


def q13(of: Market) -> tg.Stream:
    """Bounded side input: each bid with the value that a table of 10,000 rows has for its auction. A lookup."""
    keyed = of.bid.with_columns(key=nw.col("auction") % len(of.side))
    return keyed.lookup(of.side, on="key").select(TIME, "auction", "bidder", "price", "value")


def q14(of: Market) -> tg.Stream:
    """Calculation: bids of some prices in euros, whether it was day, and how many letters c they carry: a function."""
    hour = nw.col(TIME).dt.hour()
    by_day = nw.when((hour >= 8) & (hour <= 18)).then(nw.lit("dayTime"))
    kind = by_day.otherwise(
        nw.when((hour <= 6) | (hour >= 20)).then(nw.lit("nightTime")).otherwise(nw.lit("otherTime"))
    )
    priced = q1(of).filter((nw.col("price") > 1_000_000) & (nw.col("price") < 50_000_000))
    timed = priced.with_columns(bid_time_type=kind)
    return timed.map_batches(_count_letter, schema=timed.schema.append(pa.field("c_counts", pa.int64())))


def _count_letter(batch: pa.RecordBatch) -> pa.RecordBatch:
    counts = pc.count_substring(batch.column("extra"), "c").cast(pa.int64())
    return batch.append_column("c_counts", counts)


def q21(of: Market) -> tg.Stream:
    """Channel id: that of the four large channels, of others what their address says; bids that have none are left out."""
    bids = of.bid.select(TIME, "auction", "bidder", "price", "channel", "url")
    schema = pa.schema([*(bids.schema.field(name) for name in bids.schema.names[:-1]), ("channel_id", pa.string())])
    return bids.map_batches(_channel_ids, schema=schema)


def _channel_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A regular expression is tried once for each address there is, not for each bid."""
    known = pc.index_in(pc.utf8_lower(batch.column("channel")), pa.array(list(CHANNEL_IDS)))
    addresses = batch.column("url").dictionary_encode()
    found = pc.extract_regex(addresses.dictionary, "(?:&|^)channel_id=(?P<id>[^&]*)")
    in_address = pc.struct_field(found, "id").take(addresses.indices)
    ids = pc.coalesce(pa.array(list(CHANNEL_IDS.values())).take(known), in_address)
    rows = batch.drop_columns("url").append_column("channel_id", ids)
    return rows.filter(pc.is_valid(ids))


def q22(of: Market) -> tg.Stream:
    """Directories: the first three parts of the address's path. Text that is split."""
    parts = nw.col("url").str.split("/")
    directories = {f"dir{place}": parts.list.get(place + 2) for place in (1, 2, 3)}
    return of.bid.with_columns(**directories).select(TIME, "auction", "bidder", "price", "channel", *directories)
