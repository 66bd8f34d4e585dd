"""The fluent face of `dedup`: checks its arguments and builds the node."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.errors import QueryError
from tidegate.query.event_time import LONGEST_US, Duration, format_duration, parse_duration
from tidegate.query.keys import Columns
from tidegate.query.late import refuse_refined
from tidegate.query.nodes import Dedup, Node


def dedup_node(step: str, upstream: Node, by: str | Sequence[str], within: Duration) -> Dedup:
    """A checked node behind a stream."""
    names = (by,) if isinstance(by, str) else tuple(by)
    if not names or not all(isinstance(each, str) for each in names):
        raise QueryError(f"step '{step}': dedup takes the column, or a list of those, to compare; got {by!r}")
    within_us = parse_duration(within, f"step '{step}': within")
    if not 0 < within_us <= LONGEST_US // 2:
        raise QueryError(
            f"step '{step}': within ({format_duration(within_us)}) must be longer than zero, and at most "
            f"{format_duration(LONGEST_US // 2)}"
        )
    refuse_refined(step, upstream)
    keys = Columns(names)
    key_schema = keys.returns(upstream.schema, step)
    return Dedup(step, (upstream,), upstream.schema, upstream.time, (keys,), key_schema, within_us)
