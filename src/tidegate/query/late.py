"""What lies behind the watermark: the late tuples of a stateful step as a stream, and what may not read such rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidegate.errors import InternalError, QueryError, choices
from tidegate.query.nodes import Late, Node, Source, Stateful, Stateless, Union, WindowAggregate, is_stateful, walk
from tidegate.watermark import START, Watermark, has_ended

MISSED = "missed_watermark"
SIDES = ("left", "right")


def late_schema(schema: pa.Schema, time: str, what: str = "late_to") -> pa.Schema:
    """The columns of the late tuples of a feed: its own, and the watermark that each missed, of the type of event time.

    ``what`` asks for them, for messages.

    >>> late_schema(pa.schema({"ts": pa.timestamp("us"), "k": pa.string()}), "ts").names
    ['ts', 'k', 'missed_watermark']
    """
    if MISSED in (name.lower() for name in schema.names):
        raise QueryError(
            f"{what}: late tuples come with a column '{MISSED}', and the tuples of the query have one already; "
            "rename theirs with .select(...)"
        )
    return schema.append(pa.field(MISSED, schema.field(time).type))


def with_missed(table: pa.Table, time: str, watermark: Watermark) -> pa.Table:
    """Late tuples with the watermark that they missed, null for `END`: those came after the end of input.

    >>> late = pa.table({"ts": pa.array([3], pa.timestamp("us"))})
    >>> with_missed(late, "ts", 7).column("missed_watermark").cast(pa.int64()).to_pylist()
    [7]
    """
    if watermark == START:
        raise InternalError("tuples are said to be late before any watermark was known")
    schema = late_schema(table.schema, time)
    missed = pa.scalar(None if has_ended(watermark) else watermark, pa.int64()).cast(schema.field(MISSED).type)
    return pa.table([*table.columns, pa.repeat(missed, table.num_rows)], schema=schema)


def late_node(step: str, stream: Node, of: object) -> Late:
    """The late tuples of the nearest stateful step before a stream, at one of its inputs; a checked node.

    ``of`` is the position of the input, or 'left' and 'right' where there are two; None where only one can have some.
    """
    nearest = {id(node): node for node in _nearest(step, stream)}
    if len(nearest) != 1:
        problem = f"the stream brings several together, {choices(node.name for node in nearest.values())}"
        if not nearest:
            problem = f"the stream '{stream.name}' has none before it"
        raise QueryError(
            f"step '{step}': tuples are late for a stateful step, such as an aggregate or a join, and {problem}; call "
            ".late() on what the step itself returns"
        )
    (operator,) = nearest.values()
    side = _side(step, operator, of)
    upstream = operator.inputs[side]
    return Late(step, (operator,), late_schema(upstream.schema, upstream.time, f"step '{step}'"), upstream.time, side)


def refuse_refined(step: str, *inputs: Node) -> None:
    """Refuse a stateful step over what lies behind the watermark: results that may be refined later, and late tuples."""
    for upstream in (found for node in inputs for found in walk(node)):
        if isinstance(upstream, Late):
            raise QueryError(
                f"step '{step}': '{upstream.name}' are the late tuples of '{upstream.input.name}', which lie behind the "
                "watermark, so all of them would be late here too; only stateless steps and results may follow late()"
            )
        if isinstance(upstream, WindowAggregate) and upstream.window.lateness:
            raise QueryError(
                f"step '{step}': '{upstream.name}' allows lateness, so its results may be refined; only the last "
                "stateful step of a query may"
            )


def _nearest(step: str, node: Node) -> Iterator[Stateful]:
    """The stateful steps before a stream that no other stateful step lies behind."""
    if is_stateful(node):
        yield node
    elif isinstance(node, Late):
        raise QueryError(
            f"step '{step}': '{node.name}' has late tuples already, and there is nothing they are late for"
        )
    elif isinstance(node, Stateless | Union):
        for upstream in node.inputs:
            yield from _nearest(step, upstream)


def _side(step: str, operator: Stateful, of: object) -> int:
    """The input that is meant, which must read from a source."""
    fed = [side for side, upstream in enumerate(operator.inputs) if _has_edge(upstream)]
    if not fed:
        before = sorted({str(node.name) for upstream in operator.inputs for node in _nearest(step, upstream)})
        raise QueryError(
            f"step '{step}': '{operator.name}' reads the results of {choices(before)}, which are never late; tuples are "
            "late where they come from a source, so call .late() on what that step returns"
        )
    names = _names(operator)
    if of is None and len(fed) == 1:
        return fed[0]
    side = names.index(of) if of in names else of
    if not isinstance(side, int) or isinstance(side, bool) or side not in fed:
        asked = "says of which" if of is None else f"has no such input of={of!r}"
        raise QueryError(
            f"step '{step}': '{operator.name}' has {len(operator.inputs)} inputs, with columns of their own, and late() "
            f"{asked}; choose of={' or of='.join(repr(names[side]) for side in fed)}"
            + ("" if len(fed) == len(operator.inputs) else ": another reads results of a stateful step, never late")
        )
    return side


def _names(operator: Stateful) -> tuple[object, ...]:
    """What the inputs of a step are called."""
    count = len(operator.inputs)
    return SIDES if count == 2 else tuple(range(count))


def _has_edge(node: Node) -> bool:
    """Whether tuples come to a stream from a source without passing a stateful step."""
    if isinstance(node, Source):
        return True
    return isinstance(node, Stateless | Union) and any(map(_has_edge, node.inputs))
