"""The right answer to a query, by the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from tidegate.errors import QueryError
from tidegate.files import Files, Rejects, read_table
from tidegate.query.names import unique_names
from tidegate.query.nodes import sources
from tidegate.reference import Answer, Event, events_of, interpret
from tidegate.stream import Stream


def answer(
    query: Stream, tables: Mapping[str, pa.Table] | None = None, *, events: Iterable[Event] | None = None
) -> Answer:
    """Interpret a query over given events, over tables by source name, or over what its sources hold."""
    if events is None:
        given = tables or {}
        whole = {}
        for source in sources(unique_names(query.node)):
            held = given.get(source.name, source.origin)
            if isinstance(held, Files):
                rejects = Rejects(source.name, source.dead_letters)
                held = read_table(held, source.schema, rejects, source.time)
            whole[source.name] = held
            if not isinstance(whole[source.name], pa.Table):
                raise QueryError(
                    f"stream '{source.name}' holds no table; pass answer(query, {{'{source.name}': table}})"
                )
        events = events_of(query.node, whole)
    return interpret(query.node, events)
