"""One stream parted into several by predicates, of which the first that is true wins (StreamCloud's routing filter)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import narwhals as nw

from tidegate.errors import QueryError, UnknownStepError, choices
from tidegate.query import expressions
from tidegate.query.names import DefaultName
from tidegate.query.nodes import Filter

if TYPE_CHECKING:
    from tidegate.query.builder import Builder

B = TypeVar("B", bound="Builder")
REST = "rest"


class Routed(Mapping[str, B], Generic[B]):
    """The parts of a stream by name, as ``routed.big`` and ``routed["big"]``; see `Builder.route`."""

    def __init__(self, parts: Mapping[str, B]) -> None:
        self._parts = dict(parts)

    def __getitem__(self, name: str) -> B:
        if name not in self._parts:
            raise KeyError(self._missing(name))
        return self._parts[name]

    def __getattr__(self, name: str) -> B:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._parts:
            raise UnknownStepError(self._missing(name))
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __repr__(self) -> str:
        return f"Routed({', '.join(self)})"

    def _missing(self, name: object) -> str:
        hint = "" if REST in self._parts else "; what no predicate takes is a part with route(..., rest=True)"
        return f"route: there is no part {name!r}; there is {choices(self._parts)}{hint}"


def route(stream: B, predicates: Mapping[str, Any], rest: bool) -> Routed[B]:
    """Part a stream: each part is a filter, "mine and none before", and the rest "none"."""
    if not predicates:
        raise QueryError("route: name at least one part, as in .route(big=nw.col('n') > 100, rest=True)")
    if not isinstance(rest, bool):
        raise QueryError(f"route: rest is True for a part of what no predicate takes, or False; got {rest!r}")
    schema, time = stream.schema, stream.time
    parts: dict[str, B] = {}
    others: list[nw.Expr] = []
    for name, predicate in predicates.items():
        if name.startswith("_") or name in dir(Mapping):
            raise QueryError(
                f"route: a part cannot be called '{name}', as the parts themselves are; give it another name"
            )
        if not isinstance(predicate, nw.Expr):
            raise QueryError(
                f"route: the part '{name}' takes a Narwhals expression, as in nw.col('x') > 3; got {predicate!r}"
            )
        expressions.derive_condition(name, schema, "a route", predicate)
        mine = reduce(and_, [predicate, *others])
        parts[name] = stream._then(Filter(DefaultName(name), (stream.node,), schema, time, mine))
        others.append(~predicate.fill_null(False))
    if rest:
        none = reduce(and_, others)
        parts[REST] = stream._then(Filter(DefaultName(REST), (stream.node,), schema, time, none))
    return Routed(parts)
