"""Loops of the user's: checks a body, and builds the node that runs rows through it in rounds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidegate.errors import QueryError, choices
from tidegate.query.bag_functions import Iterate
from tidegate.query.event_time import format_duration
from tidegate.query.keys import Columns
from tidegate.query.late import refuse_refined
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Join,
    KeyedApply,
    Late,
    Node,
    Running,
    SessionAggregate,
    Source,
    WindowAggregate,
    walk,
)
from tidegate.query.schema import show_columns
from tidegate.query.windows import INSTANT


def loop_entry(step: str, upstream: Node) -> Source:
    """The stream that the body of a loop reads."""
    return Source(f"{step}, round", (), upstream.schema, upstream.time, 0)


def loop_node(step: str, upstream: Node, entry: Source, returned: Any, rounds: Any) -> BagAggregate:
    """A checked loop; ``returned`` is what the body gave for the stream it reads."""
    refuse_refined(step, upstream)
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
        raise QueryError(f"step '{step}': rounds is how often a row may run through the body, from 1; got {rounds!r}")
    if not (isinstance(returned, tuple) and len(returned) == 2 and all(hasattr(each, "node") for each in returned)):
        raise QueryError(
            f"step '{step}': the body of a loop returns two streams, the rows that run again and those that leave, as in "
            f"lambda rows: (rows.filter(...), rows.filter(...)); got {returned!r}"
        )
    back, out = (each.node for each in returned)
    for node in (*walk(back), *walk(out)):
        _check(step, node, entry)
    if (back.schema, back.time) != (entry.schema, entry.time):
        raise QueryError(
            f"step '{step}': what runs again must have the columns of what came in; ({show_columns(back.schema)}) is not "
            f"({show_columns(entry.schema)})"
        )
    key = pa.schema([entry.schema.field(entry.time)])
    function = Iterate(entry, back, out, rounds)
    return BagAggregate(step, (upstream,), out.schema, out.time, (Columns((entry.time,)),), key, INSTANT, function)


def _check(step: str, node: Node, entry: Source) -> None:
    """Refuse what has no place in a round: other streams, and whatever remembers tuples of other times."""
    match node:
        case Source() if node is not entry:
            raise QueryError(
                f"step '{step}': its body reads the stream '{node.name}', and a round has only the rows it is given; join "
                "it with them before the loop"
            )
        case Late():
            raise QueryError(
                f"step '{step}': '{node.name}' in its body asks for late tuples, and the rows of a round are never late; "
                "call .late() on what the loop returns"
            )
        case KeyedApply() | Running() | SessionAggregate() | CountAggregate() | AsOf() | CountJoin():
            kind = _REFUSED[type(node)]
            raise QueryError(
                f"step '{step}': '{node.name}' in its body is {kind}; a body has {choices(_ALLOWED)} and aggregates and "
                "joins over windows of 1 microsecond"
            )
        case WindowAggregate() | Join() if node.window is None or (node.window.size, node.window.lateness) != (1, 0):
            found = "no window" if node.window is None else f"windows of {format_duration(node.window.size)}"
            raise QueryError(
                f"step '{step}': '{node.name}' in its body has {found}; rows of one time and one round run together, so "
                "windows in a body last '1 microsecond', without lateness"
            )


_REFUSED = {
    KeyedApply: "an apply",
    Running: "running state",
    SessionAggregate: "an aggregate of sessions",
    CountAggregate: "an aggregate of count windows",
    AsOf: "an as-of join",
    CountJoin: "a join over the last tuples",
}
_ALLOWED = ("with_columns", "select", "filter", "map_batches", "union", "loop")
