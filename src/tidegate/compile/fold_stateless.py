"""Pass: neighbouring stateless steps become one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, TypeVar

import narwhals as nw

from tidegate.query.expressions import cannot_fail, columns_made, columns_passed, columns_read, names_its_columns
from tidegate.query.nodes import Filter, Node, Select, Step, WithColumns, rewrite, walk

S = TypeVar("S", bound=Step)


def fold_stateless(query: Node) -> Node:
    """Fold stateless steps into the ones before them where the tuples that come out stay the same.

    ::

        before   filter a > 1 | filter a < 9         after   filter (a > 1) & (a < 9)
                 with x = a + 1 | with y = a * 2              with x = a + 1, y = a * 2
                 select ts, a, b | select ts, c = a           select ts, c = a
                 select ts, a (all there is)                  nothing

    An error is part of what a query means, so no fold adds or removes one. Arrow evaluates both sides of ``&`` on every
    row: ``filter(x is a number) | filter(cast(x) > 3)`` stays two steps, because the cast would fail on the rows that
    the first filter takes away. A step that several others read stays by itself, so that it can run once for all of them.
    Names are joined with '+'.

    >>> import pyarrow as pa
    >>> from tidegate.compile.show_query import show_query
    >>> from tidegate.query.builder import Builder, source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "a": pa.int64()}, time="ts"))
    >>> query = calls.filter(nw.col("a") > 1, name="low").filter(nw.col("a") < 9, name="high")
    >>> print(show_query(fold_stateless(query.node)))
    1  calls     stream  ts: timestamp[us], a: int64; time ts, in order
    2  low+high  filter  (a > 1) & (a < 9)
    """
    readers = Counter(id(upstream) for node in walk(query) for upstream in node.inputs)
    originals = iter(list(walk(query)))
    shared: set[int] = set()

    def fold(node: Node) -> Node:
        # Nodes come in the order of `walk`, perhaps over new inputs.
        read = readers[id(next(originals))]
        made = node if any(id(upstream) in shared for upstream in node.inputs) else _fold(node)
        if read > 1:
            shared.add(id(made))
        return made

    return rewrite(query, fold)


def _fold(node: Node) -> Node:
    match node:
        case Filter(input=Filter() as first) if cannot_fail(node.predicate):
            both = first.predicate & node.predicate
            return _folded(first, node, predicate=both)
        case WithColumns(input=WithColumns() as first) if _independent(first, node):
            return _folded(first, node, exprs=first.exprs + node.exprs)
        case Select(input=Select() as first):
            folded = _select_of_select(first, node)
            return _without_identity(node) if folded is node else _fold(folded)
        case Select():
            return _without_identity(node)
        case _:
            return node


def _independent(first: WithColumns, second: WithColumns) -> bool:
    made = set(columns_made(first.exprs, first.input.schema, first.name))
    touched = columns_read(second.exprs, first.schema) | set(columns_made(second.exprs, first.schema, second.name))
    return made.isdisjoint(touched)


def _select_of_select(first: Select, second: Select) -> Select:
    exprs = _picked(first, second) or _over_picked(first, second)
    if exprs is None:
        return second
    return _folded(first, second, exprs=exprs)


def _picked(first: Select, second: Select) -> tuple[nw.Expr, ...] | None:
    """The first's expressions, when the second only picks among their columns."""
    names = _columns(second)
    made = {} if names is None else _expression_of_each(first)
    if names is None or made is None or not all(cannot_fail(made[name]) for name in made.keys() - set(names)):
        return None
    return tuple(made[name] for name in names)


def _over_picked(first: Select, second: Select) -> tuple[nw.Expr, ...] | None:
    """The second's expressions, when the first only picks columns, which they then find in its input as well."""
    return second.exprs if _columns(first) is not None and all(map(names_its_columns, second.exprs)) else None


def _expression_of_each(select: Select) -> dict[str, nw.Expr] | None:
    """Each column's own expression; None if one expression computes several columns."""
    found: dict[str, nw.Expr] = {}
    for expr in select.exprs:
        passed = columns_passed(expr, select.input.schema)
        if passed is not None:
            found.update((name, nw.col(name)) for name in passed)
            continue
        made = columns_made((expr,), select.input.schema, select.name)
        if len(made) > 1:
            return None
        found[made[0]] = expr
    return found


def _columns(select: Select) -> tuple[str, ...] | None:
    """The columns a select hands on as they are; None if it computes any."""
    passed = [columns_passed(expr, select.input.schema) for expr in select.exprs]
    return tuple(name for names in passed for name in names or ()) if None not in passed else None


def _without_identity(select: Select) -> Node:
    return select.input if _columns(select) == tuple(select.input.schema.names) else select


def _folded(first: S, second: S, **changed: Any) -> S:
    """The second step as it is after both, in place of the two."""
    return replace(second, name=f"{first.name}+{second.name}", inputs=first.inputs, **changed)
