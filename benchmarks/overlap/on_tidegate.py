"""The queries over texts as queries of tidegate, the same on every runtime."""

from __future__ import annotations

from dataclasses import dataclass

import narwhals as nw
import pyarrow as pa

import tidegate as tg
from benchmarks.overlap.queries import JoinQuery, MapQuery


@dataclass(frozen=True, slots=True)
class OverBatch:
    """The function of a map query on every row of a batch."""

    query: MapQuery

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        function = self.query.function
        columns = [batch.column(name).to_pylist() for name in self.query.columns]
        rows, of = [], []
        for number, values in enumerate(zip(*columns, strict=True)):
            for row in function(*values):
                rows.append(row)
                of.append(number)
        times = batch.column("ts").take(pa.array(of, pa.int64()))
        given = list(zip(*rows, strict=True)) or [[] for _ in self.query.gives]
        return pa.table([times, *(pa.array(each, pa.string()) for each in given)], names=["ts", *self.query.gives])


def query_over(tuples: tg.Stream, query: MapQuery | JoinQuery) -> tg.Stream:
    """A query over texts, windows of joins tumbling; equalities are given as such, and what cannot match is left out."""
    if isinstance(query, MapQuery):
        schema = {"ts": tuples.schema.field("ts").type, **dict.fromkeys(query.gives, pa.string())}
        return tuples.select("ts", *query.columns).map_batches(OverBatch(query), schema=schema)
    side = (
        tuples.with_columns(
            words=nw.col("change").str.split(" ").list.len().cast(nw.Int64),
            length=nw.col("orig").str.len_chars().cast(nw.Int64),
            lower=nw.col("orig").str.to_lowercase(),
        )
        .filter(nw.col("length") > int(query.bound))
        .select("ts", "orig", "words", "length", "lower")
    )
    pairs = side.join(
        side, on=["words", "length"], window=f"{query.tumbling_us}us", where=lambda l, r: l.lower != r.lower
    )
    return pairs.with_columns(orig_left=nw.col("orig")).select("ts", "ts_left", "ts_right", "orig_left", "orig_right")
