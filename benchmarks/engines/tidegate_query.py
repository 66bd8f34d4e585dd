"""The workloads as tidegate queries: one text for every runtime."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa

import tidegate as tg
from benchmarks.pairs import pairs_within
from benchmarks.workloads import Workload


def query_of(tuples: tg.Stream, workload: Workload) -> tg.Stream:
    """The results of a workload over its tuples."""
    size, every = f"{workload.size_seconds} seconds", f"{workload.every_seconds} seconds"
    if workload.pair_distance:
        columns = {"left": pa.string(), "right": pa.string()}
        keyed = tuples.key_by(tg.keys(pairs_within(workload.pair_distance), columns=columns, reads=["text"]))
        return keyed.window(size, every=every).aggregate(tweets=tg.count())
    match workload.name:
        case "wordcount":
            words = tuples.with_columns(words=nw.col("text").str.split(" ")).key_by(tg.each("words", name="word"))
            return words.window(size, every=every).aggregate(tweets=tg.count())
        case "keyed":
            return tuples.key_by("key").window(size, every=every).aggregate(n=tg.count(), mean=tg.mean("value"))
        case name:
            raise ValueError(f"tidegate: no query for workload {name!r}")
