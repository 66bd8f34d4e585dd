"""A query as numbered lines: what each step is called, what kind it is and what it does."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.compile.show_keyed_apply import show_keyed_apply
from tidegate.compile.show_table import GLUE, show_table
from tidegate.errors import InternalError
from tidegate.query.builder import AHEAD
from tidegate.query.event_time import format_duration, parse_duration
from tidegate.query.expressions import show_expression
from tidegate.query.nodes import (
    Filter,
    Join,
    KeyedApply,
    MapBatches,
    Node,
    Select,
    Source,
    Union,
    WindowAggregate,
    WithColumns,
    walk,
)

_SHORT = 40


def show_query(query: Node, indent: str = "") -> str:
    """The steps of a query in the order in which tuples pass them; a step reads the line above unless it says so."""
    numbers = {id(node): number for number, node in enumerate(walk(query), start=1)}
    rows = []
    for number, node in enumerate(walk(query), start=1):
        kind, text = _show(node)
        read = [numbers[id(upstream)] for upstream in node.inputs]
        reads = f"reads {', '.join(map(str, read))}" if read and read != [number - 1] else ""
        rows.append((str(number), node.name, kind, "; ".join(filter(None, (reads, text)))))
    return show_table(rows, indent=indent)


def _show(node: Node) -> tuple[str, str]:
    match node:
        case Source():
            disorder = f"up to {format_duration(node.disorder_us)} out of order" if node.disorder_us else "in order"
            told = f"{_glued(f'time {node.time}, {disorder}')}{_ahead(node)}"
            return "stream", f"{_columns(node)}; {told}"
        case WithColumns():
            return "with", _listed(map(show_expression, node.exprs))
        case Select():
            return "select", _listed(map(show_expression, node.exprs))
        case Filter():
            return "filter", show_expression(node.predicate)
        case MapBatches():
            return "map", f"{getattr(node.function, '__name__', 'function')}(batch) -> {_columns(node)}"
        case Union():
            return "union", ""
        case WindowAggregate():
            computed = _listed(f"{column} = {aggregate}" for column, aggregate in node.aggregates)
            return "aggregate", f"by {node.keys}, window {node.window}: {computed}"
        case KeyedApply():
            return "apply", show_keyed_apply(node)
        case Join():
            return "join", _join(node)
        case _:
            raise InternalError(f"no text is known for {type(node).__name__}")


def _ahead(node: Source) -> str:
    """How far ahead tuples may lie, where that is not what a stream has by default."""
    if node.ahead_us is None or (node.ahead_of == "clock" and node.ahead_us == parse_duration(AHEAD, "ahead")):
        return ""
    return f", {_glued(f'at most {format_duration(node.ahead_us)} ahead of the {node.ahead_of}')}"


def _join(node: Join) -> str:
    on = _listed(name if name == other else f"{name} = {other}" for name, other in node.on)
    near = f"window {node.window}" if node.within_us is None else f"within {format_duration(node.within_us)}"
    where = f"where {node.where}" if node.where is not None else ""
    return "; ".join(filter(None, (on and f"on {on}", near, where)))


def _columns(node: Node) -> str:
    return _listed(f"{field.name}: {field.type}" for field in node.schema)


def _listed(items: Iterable[str]) -> str:
    return ", ".join(map(_glued, items))


def _glued(item: str) -> str:
    """An item that stays on one line, if it is short enough."""
    return item.replace(" ", GLUE) if len(item) <= _SHORT else item
