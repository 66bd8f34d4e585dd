"""Arrivals and watermarks for a bounded input: each source in its own order, W the least over sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from tidegate.query.nodes import Node, sources, unique_names
from tidegate.query.schema import fitting
from tidegate.reference.ahead import AheadLaw
from tidegate.reference.interpreter import Advance, Event, Rows
from tidegate.watermark import END, START


def events_of(
    query: Node, tables: Mapping[str, pa.Table], batch_rows: int = 1000, clock: int | None = None
) -> Iterator[Event]:
    """Feed tables in turns of ``batch_rows``; after each turn W is the least over sources of latest τ − disorder.

    ``clock`` is when all of them are read: a tuple too far after it moves no watermark.
    """
    query = unique_names(query)
    latest = dict.fromkeys((source.name for source in sources(query)), START)
    watermark = START
    ahead = {source.name: AheadLaw(source) for source in sources(query)}
    tables = {
        source.name: fitting(tables[source.name], source.schema, f"stream '{source.name}'") for source in sources(query)
    }
    longest = max((table.num_rows for table in tables.values()), default=0)
    for offset in range(0, longest, batch_rows):
        for source in sources(query):
            part = tables[source.name].slice(offset, batch_rows)
            if part.num_rows:
                yield Rows(source.name, part, clock)
                ahead[source.name].timely(part, clock)
                newest = ahead[source.name].newest
                if newest is not None:
                    latest[source.name] = max(latest[source.name], newest - source.disorder_us)
            if offset + batch_rows >= tables[source.name].num_rows:
                latest[source.name] = END
        if min(latest.values()) > watermark:
            watermark = min(latest.values())
            yield Advance(watermark)
    if watermark < END:
        yield Advance(END)
