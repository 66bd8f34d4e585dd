"""PageRank over the links of each window: a query with a loop.

The pages of a window and their links run through the body `ROUNDS` times. Each time a page gives its rank to the pages it
links to, in equal shares; what a page gets, damped, is its next rank.
"""

import narwhals as nw
import pyarrow as pa

import tidegate as tg

ROUNDS = 30
DAMPING = 0.85
TIME = pa.timestamp("us", tz="UTC")
SHARES = {"ts": TIME, "page": pa.string(), "share": pa.float64()}
col = nw.col


def shares(batch: pa.RecordBatch) -> pa.Table:
    """What each page gives to the pages it links to, and what every page has without a link."""
    pages = pa.Table.from_batches([batch])
    lists = batch.column("to")
    # A page that links to none has a list of nothing but null.
    links = pa.table({"of": pa.compute.list_parent_indices(lists), "page": lists.flatten()})
    links = links.filter(links["page"].is_valid())
    count = links.group_by("of").aggregate([("page", "count")])
    links = links.join(count, "of")
    rank = pages["rank"].take(links["of"])
    given = pa.compute.divide(pa.compute.multiply(rank, DAMPING), links["page_count"])
    own = pa.repeat(1.0 - DAMPING, len(pages))
    received = pa.table({"ts": pages["ts"].take(links["of"]), "page": links["page"], "share": given})
    return pa.concat_tables([pages.select(["ts", "page"]).append_column("share", own), received])


def body(pages: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
    """One round: the next rank of every page, again or for good."""
    ranks = (
        pages.map_batches(shares, schema=SHARES)
        .key_by("page")
        .window("1 microsecond")
        .aggregate(rank=tg.sum("share"))
        .select("ts", "page", "rank")
    )
    known = pages.select("ts", "page", "to", "round")
    ranked = ranks.join(known, on="page", window="1 microsecond").select(
        "ts", "page", "to", "rank", round=col("round") + 1
    )
    return ranked.filter(col("round") < ROUNDS), ranked.filter(col("round") == ROUNDS).select("ts", "page", "rank")


def ranks_of(found: tg.Stream, window: str = "10 seconds") -> tg.Stream:
    """The rank of every page in each window."""
    # Every page is there, also one that links to none.
    linked = found.select("ts", page=col("to")).with_columns(to=nw.lit(None, nw.String))
    pages = found.union(linked).key_by("page").window(window).aggregate(to=tg.collect("to"))
    begun = pages.select("ts", "page", "to", rank=nw.lit(1.0), round=nw.lit(0))
    return begun.loop(body, rounds=ROUNDS, name="ranks")
