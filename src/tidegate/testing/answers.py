"""The right answer to a query, by the reference interpreter."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import pyarrow as pa

from tidegate.errors import QueryError, SetAsideWarning, choices
from tidegate.files import Files, Rejects, read_table
from tidegate.query.event_time import in_microseconds
from tidegate.query.nodes import sources, unique_names
from tidegate.reference import Answer, Event, events_of, interpret
from tidegate.stream import Stream


def answer(
    query: Stream,
    tables: Mapping[str, pa.Table] | None = None,
    *,
    events: Iterable[Event] | None = None,
    clock: datetime | None = None,
) -> Answer:
    """Interpret a query over given events, over tables by source name, or over what its sources hold.

    ``clock`` is when tables are read, now if it is not given: tuples further ahead of it than their stream allows are set
    aside.
    """
    if not isinstance(query, Stream):
        raise QueryError(f"answer takes a query made with tg.stream(...); got {type(query).__name__}")
    if events is None:
        given = tables or {}
        whole = {}
        named = sources(unique_names(query.node))
        for name in given:
            if name not in [source.name for source in named]:
                raise QueryError(
                    f"answer: there is no stream {name!r}; there is {choices(each.name for each in named)}"
                )
        for source in named:
            held = given.get(source.name, source.origin)
            if isinstance(held, Files):
                rejects = Rejects(source.name, source.dead_letters)
                held = read_table(held, source.schema, rejects, source.time)
            whole[source.name] = held
            if not isinstance(whole[source.name], pa.Table):
                raise QueryError(
                    f"stream '{source.name}' holds no table; pass answer(query, {{'{source.name}': table}})"
                )
        events = events_of(query.node, whole, clock=in_microseconds(clock or datetime.now(UTC)))
    found = interpret(query.node, events)
    if found.ahead:
        warnings.warn(
            f"{found.ahead} tuples lie too far in the future and were set aside", SetAsideWarning, stacklevel=2
        )
    return found
