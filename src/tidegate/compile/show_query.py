"""Shows queries as text: numbered lines that say what each step is called, what kind it is and what it does."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.query.bag_functions import AtIndex, Embed, ForEach, Iterate, PairUp, Unfold
from tidegate.query.bags import BagFunction
from tidegate.query.builder import AHEAD
from tidegate.query.event_time import format_duration, parse_duration
from tidegate.query.expressions import show_expression
from tidegate.query.forms import TupleForm
from tidegate.query.keys import Columns, Keys
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Filter,
    Join,
    KeyedApply,
    Late,
    LookupTable,
    MapBatches,
    Node,
    Outputs,
    Running,
    Select,
    SessionAggregate,
    Source,
    Union,
    WindowAggregate,
    WithColumns,
    walk,
)

WIDTH = 99
GLUE = "\u00a0"
"""A space at which no line is broken."""

_SHORT, _NARROWEST = 40, 30


def show_query(query: Node, indent: str = "") -> str:
    """The steps of a query in the order in which tuples pass them; a step reads the line above unless it says so."""
    numbers = {id(node): number for number, node in enumerate(walk(query), start=1)}
    rows = []
    for number, node in enumerate(walk(query), start=1):
        kind, text = describe(node)
        read = [numbers[id(upstream)] for upstream in node.inputs]
        reads = f"reads {', '.join(map(str, read))}" if read and read != [number - 1] else ""
        rows.append((str(number), node.name, kind, "; ".join(filter(None, (reads, text)))))
    return show_table(rows, indent=indent)


def show_graph(query: Node, indent: str = "") -> str:
    """What each step reads, below it, with the numbers of `show_query`; a step that loops reads itself too."""
    numbers = {id(node): number for number, node in enumerate(walk(query), start=1)}
    lines: list[str] = []
    shown: set[int] = set()

    def show(node: Node, first: str, below: str) -> None:
        number = numbers[id(node)]
        again = id(node) in shown and bool(node.inputs)
        shown.add(id(node))
        lines.append(f"{indent}{first}{number} {node.name}{', as above' if again else ''}")
        reads = () if again else node.inputs
        loops = not again and isinstance(node, BagAggregate) and node.loop_us is not None
        for place, upstream in enumerate(reads, start=1):
            is_last = place == len(reads) and not loops
            show(upstream, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  "))
        if loops:
            lines.append(f"{indent}{below}└─ ↺ {number} {node.name}: its own rows")

    show(query, "", "")
    return "\n".join(lines)


def show_table(rows: Sequence[Sequence[str]], *, indent: str = "", right: frozenset[int] = frozenset()) -> str:
    """Align the cells of rows of equal length; columns whose number is in ``right`` end together.

    >>> print(show_table([("a", "one"), ("long", "two")]))
    a     one
    long  two
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        before = indent + "".join(f"{cell}  " for cell in cells[:-1])
        room = max(WIDTH - len(before), _NARROWEST)
        wrapped = textwrap.wrap(cells[-1], room, break_long_words=False, break_on_hyphens=False) or [""]
        lines.append((before + wrapped[0]).rstrip())
        lines += [" " * len(before) + line for line in wrapped[1:]]
    return "\n".join(lines).replace(GLUE, " ")


def describe(node: Node) -> tuple[str, str]:
    """What kind of step a node is, and what it does; the text has spaces at which no line is to be broken."""
    match node:
        case Source():
            disorder = f"up to {format_duration(node.disorder_us)} out of order" if node.disorder_us else "in order"
            disorder = "set as it arrives" if node.stamped else disorder
            told = f"{_glued(f'time {node.time}, {disorder}')}{_ahead(node)}"
            if node.idle_us is not None:
                told += f", {_glued(f'idle after {format_duration(node.idle_us)}')}"
            return "stream", f"{_columns(node)}; {told}"
        case WithColumns():
            return "with", _listed(map(show_expression, node.exprs))
        case Select():
            return "select", _listed(map(show_expression, node.exprs))
        case Filter():
            return "filter", show_expression(node.predicate)
        case LookupTable():
            return "lookup", str(node.function)
        case MapBatches():
            return "map", f"{getattr(node.function, '__name__', 'function')}(batch) -> {_columns(node)}"
        case Union():
            return "union", ""
        case WindowAggregate():
            computed = _listed(f"{column} = {aggregate}" for column, aggregate in node.aggregates)
            return "aggregate", f"by {node.keys}, window {node.window}: {computed}"
        case SessionAggregate():
            computed = _listed(f"{column} = {aggregate}" for column, aggregate in node.aggregates)
            return "aggregate", f"by {node.keys}, sessions {node.session}: {computed}"
        case CountAggregate():
            computed = _listed(f"{column} = {aggregate}" for column, aggregate in node.aggregates)
            return "aggregate", f"by {node.keys[0]}, {node.counted}: {computed}"
        case KeyedApply():
            return "apply", _keyed_apply(node)
        case Dedup():
            return "dedup", f"by {node.keys[0]}, within {format_duration(node.within_us)}"
        case AsOf():
            return "as of", _as_of(node)
        case CountJoin():
            return "join", _count_join(node)
        case Running():
            return "running", _running(node)
        case Join():
            return "join" if node.how == "inner" else f"{node.how} join", _join(node)
        case Outputs():
            return "outputs", _listed(node.names)
        case Late():
            inputs = len(node.operator.inputs)
            return "late", f"tuples too late for {node.operator.name}" + (f", input {node.side}" if inputs > 1 else "")
        case BagAggregate():
            return "aggregate", _bag_aggregate(node)
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


def _count_join(node: CountJoin) -> str:
    where = f"where {node.where}" if node.where is not None else ""
    return "; ".join(filter(None, (_on(node.keys), f"the last {node.size:,} tuples of the other side", where)))


def _on(keys: tuple[Keys, Keys]) -> str:
    left, right = keys
    if not isinstance(left, Columns):
        return ""
    return f"on {left}" if str(left) == str(right) else f"on {left} = {right}"


def _as_of(node: AsOf) -> str:
    near = "" if node.tolerance_us is None else f"at most {format_duration(node.tolerance_us)} before"
    deleted = f"but where {show_expression(node.deleted)}" if node.deleted is not None else ""
    kept = "left tuples without a match are kept" if node.keeps_unmatched else ""
    return "; ".join(filter(None, (_on(node.keys), near, deleted, kept)))


def _bag_aggregate(node: BagAggregate) -> str:
    """The keys, windows and function of an Aggregate that stands for another step."""
    keys = " and ".join(dict.fromkeys(map(str, node.keys)))
    most = "at most one row" if node.single else "any number of rows"
    loop = f"; reads its own rows again, up to {format_duration(node.loop_us)} late" if node.loop_us is not None else ""
    return f"by {keys}, window {node.window}: {_bag_function(node.function)}, {most}{loop}"


def _bag_function(function: BagFunction | Iterate) -> str:
    match function:
        case ForEach(steps):
            return f"of every tuple, {', then '.join(' '.join(describe(step)) for step in steps)}"
        case PairUp(join):
            return f"pairs{f' where {join.where}' if join.where is not None else ''}"
        case Embed(inner):
            return f"in one tuple: {_bag_function(inner)}"
        case Unfold():
            return "which of the tuples in one comes next"
        case AtIndex():
            return "the tuple that is next"
        case Iterate():
            body = _listed(node.name for node in walk(function.out) if node.inputs)
            return f"up to {function.rounds} rounds through {body}"
        case _:
            return getattr(function, "__name__", type(function).__name__)


def _keyed_apply(node: KeyedApply) -> str:
    """The keys, windows, functions and state of ``apply``; a function that is not given is STRETCH's default (table 1)."""
    form = node.form
    keys = " and ".join(dict.fromkeys(map(str, node.keys)))
    window = (
        "unbounded" if node.window is None else f"window {node.window}" + (", one that slides" if node.single else "")
    )
    functions = [("update", form.update), ("output", form.output), ("slide", form.slide)]
    shown = [f"{role} = {getattr(function, '__name__', 'function')}" for role, function in functions if function]
    states = dict.fromkeys(map(_state, form.states if isinstance(form, TupleForm) else (form.state,)))
    how = "" if isinstance(form, TupleForm) else " on columns"
    kept = " and ".join(state or "nothing" for state in states)
    if isinstance(form, TupleForm) and form.stores:
        stores = ", ".join(f"{name} {of}" for name, of in form.stores.items())
        kept = f"stores {stores}" if kept == "nothing" else f"{kept} and stores {stores}"
    return f"by {keys}, {window}: {', '.join(shown)}{how}; keeps {kept} -> {_state(form.returns) or 'nothing'}"


def _running(node: Running) -> str:
    form = node.form
    keys = " and ".join(dict.fromkeys(map(str, node.keys)))
    functions = [("create", form.create), ("add", form.add), ("merge", form.merge), ("output", form.output)]
    shown = [f"{role} = {getattr(function, '__name__', 'function')}" for role, function in functions]
    kept, made = _state(form.state) or "nothing", _state(form.returns) or "nothing"
    return f"by {keys}, every {format_duration(node.period.every)}: {', '.join(shown)}; keeps {kept} -> {made}"


def _state(schema: pa.Schema) -> str:
    return ", ".join(_column(field) for field in schema)


def _column(field: pa.Field) -> str:
    if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
        return f"{field.name}: list of ({', '.join(part.name for part in field.type.value_type)})"
    return f"{field.name}: {field.type}"


def _columns(node: Node) -> str:
    return _listed(f"{field.name}: {field.type}" for field in node.schema)


def _listed(items: Iterable[str]) -> str:
    return ", ".join(map(_glued, items))


def _glued(item: str) -> str:
    """An item that stays on one line, if it is short enough."""
    return item.replace(" ", GLUE) if len(item) <= _SHORT else item
