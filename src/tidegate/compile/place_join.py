"""Where the work of a join is done, and how its pairs are found."""

from __future__ import annotations

import narwhals as nw

from tidegate.compile.plan import Place
from tidegate.query.nodes import Join
from tidegate.query.predicates.bounds import band_of


def place_join(node: Join) -> tuple[Place, str]:
    """The place of a join, and why: how pairs are found and what tries them.

    >>> import pyarrow as pa
    >>> from tidegate.query.builder import Builder, source
    >>> trades = Builder(source("trades", {"ts": pa.timestamp("us"), "x": pa.int64()}, time="ts"))
    >>> near = trades.join(trades, within="1 second", where=lambda l, r: abs(l.x - r.x) <= 5)
    >>> place_join(near.node)[1]
    'pairs found by sorting (l.x - r.x from -5 to 5); the predicate is compiled'
    """
    found = f"pairs found {_way(node)}"
    match node.where:
        case None:
            return Place.KERNEL, found
        case where if where.tree is not None:
            return Place.KERNEL, f"{found}; the predicate is compiled"
        case where if isinstance(where.given, nw.Expr):
            return (
                Place.KERNEL,
                f"{found}; the predicate is applied to whole columns of pairs, since of {where.obstacle}",
            )
        case where:
            return Place.PYTHON, f"{found}; the predicate is interpreted pair by pair, since of {where.obstacle}"


def dealt_to_cells(node: Join) -> str:
    """How tuples find each other where cells share no memory."""
    if node.on:
        keys = ", ".join(dict.fromkeys(name if name == other else f"{name} = {other}" for name, other in node.on))
        return f"tuples that share keys ({keys}) meet in one cell"
    return (
        "cells form a grid: a left tuple goes to a row of it, a right one to a column, and each pair meets in one cell"
    )


def _way(node: Join) -> str:
    if node.on:
        return "by key"
    band = band_of(node.where.tree) if node.bands and node.where is not None and node.where.tree is not None else None
    return f"by sorting ({band})" if band is not None else "by trying all that are near in time"
