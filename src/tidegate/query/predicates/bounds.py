"""Bounds that a predicate implies: bands that pairs lie in, and how large the whole numbers inside it can get.

A band condition: a column of one tuple lies within constants of a column of the other, so sorting finds the pairs.

``abs(l.x - r.a) <= 10``, ``r.a - 10 <= l.x <= r.a + 10``, ``-5 < l.x - r.a`` and the like are read as bounds of the
difference ``l.x - r.a``. The bounds may be a little too wide, never too narrow: the predicate is still evaluated for each
pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidegate.query.predicates.tree import Column, ConstantValue, Operation, Tree, can_fail, conjuncts, walk_tree

INT64_MAX = 2**63 - 1
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


@dataclass(frozen=True, slots=True)
class Band:
    """``low ≤ left − right ≤ high``; ``scale`` is the sum of the constants' sizes, from which rounding is bounded."""

    left: Column
    right: Column
    low: float
    high: float
    scale: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether both columns are whole numbers."""
        return self.left.kind == self.right.kind == "int"

    def __str__(self) -> str:
        return f"{self.left} - {self.right} from {_plain(self.low)} to {_plain(self.high)}"


def band_of(tree: Tree) -> Band | None:
    """The narrowest band with two ends that a predicate demands; None if there is none.

    A predicate that may fail has no band: pairs outside it would not be tried, and their failure not be seen.

    >>> l, r = Column(0, "x", "int"), Column(1, "a", "int")
    >>> distance = Operation("abs", (Operation("-", (l, r), "int"),), "int")
    >>> str(band_of(Operation("<=", (distance, ConstantValue(10, "int")))))
    'l.x - r.a from -10 to 10'
    """
    if can_fail(tree):
        return None
    found: dict[tuple[str, str], Band] = {}
    for bounds in (bound for condition in conjuncts(tree) for bound in _bounds(condition)):
        key = bounds.left.name, bounds.right.name
        held = found.get(key, bounds)
        found[key] = Band(
            held.left, held.right, max(held.low, bounds.low), min(held.high, bounds.high), max(held.scale, bounds.scale)
        )
    closed = [band for band in found.values() if math.isfinite(band.low) and math.isfinite(band.high)]
    return min(closed, key=lambda band: band.high - band.low, default=None)


def _bounds(condition: Tree) -> Iterator[Band]:
    """The bounds that one comparison puts on the difference of a left and a right column."""
    if not isinstance(condition, Operation) or condition.name not in _SWAPPED:
        return
    name, (left, right) = condition.name, condition.arguments
    for operator, one, other in ((name, left, right), (_SWAPPED[name], right, left)):
        if isinstance(one, Operation) and one.name == "abs":
            limit = _linear(other)
            if limit is not None and not limit.terms and operator in ("<", "<=", "=="):
                yield from _between(_linear(one.arguments[0]), -limit.constant, limit.constant, limit.scale)
            return
    lefts, rights = _linear(left), _linear(right)
    if lefts is None or rights is None:
        return
    low = 0.0 if name in (">", ">=", "==") else -math.inf
    high = 0.0 if name in ("<", "<=", "==") else math.inf
    yield from _between(lefts.plus(rights, -1), low, high, 0.0)


@dataclass(frozen=True, slots=True)
class _Linear:
    """A sum of columns, each times a whole number, and a constant."""

    terms: dict[Column, int]
    constant: float
    scale: float

    def plus(self, other: _Linear, sign: int) -> _Linear:
        terms = dict(self.terms)
        for column, factor in other.terms.items():
            terms[column] = terms.get(column, 0) + sign * factor
        kept = {column: factor for column, factor in terms.items() if factor}
        return _Linear(kept, self.constant + sign * other.constant, self.scale + other.scale)


def _linear(tree: Tree) -> _Linear | None:
    match tree:
        case Column(kind="int" | "float"):
            return _Linear({tree: 1}, 0.0, 0.0)
        case ConstantValue(kind="int" | "float") if not isinstance(tree.value, str | bytes):
            return _Linear({}, float(tree.value), abs(float(tree.value)))
        case Operation("neg" | "+" | "-"):
            # A sign is a difference from nothing.
            parts = [_linear(each) for each in tree.arguments]
            left, right = parts if len(parts) == 2 else (_Linear({}, 0.0, 0.0), parts[0])
            return None if left is None or right is None else left.plus(right, 1 if tree.name == "+" else -1)
        case _:
            return None


def _between(sum_: _Linear | None, low: float, high: float, scale: float) -> Iterator[Band]:
    """The band of ``low ≤ sum ≤ high``, if the sum is a left column less a right one, or the reverse."""
    if sum_ is None or sorted(sum_.terms.values()) != [-1, 1] or {column.side for column in sum_.terms} != {0, 1}:
        return
    left, right = sorted(sum_.terms, key=lambda column: column.side)
    low, high = low - sum_.constant, high - sum_.constant
    if sum_.terms[left] < 0:
        low, high = 0.0 - high, 0.0 - low
    if not (math.isnan(low) or math.isnan(high)):
        yield Band(left, right, low, high, scale + sum_.scale)


def _plain(value: float) -> str:
    return f"{value + 0.0:.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:g}"


def fits_int64(tree: Tree, sizes: Mapping[Column, int]) -> bool:
    """Whether no whole number inside a tree can leave int64, columns being at most so far from zero.

    >>> x = Column(0, "x", "int")
    >>> product = Operation("*", (x, x), "int")
    >>> fits_int64(product, {x: 10**9}), fits_int64(product, {x: 10**10})
    (True, False)
    """
    whole = (part for part in walk_tree(tree) if part.kind == "int")
    return all(_size(part, sizes) <= INT64_MAX for part in whole)


def _size(tree: Tree, sizes: Mapping[Column, int]) -> int:
    """A bound of the distance from zero of a whole number."""
    match tree:
        case Column():
            return sizes.get(tree, 0)
        case ConstantValue():
            return abs(int(tree.value))
        case Operation("+" | "-", (left, right)):
            return _size(left, sizes) + _size(right, sizes)
        case Operation("*", (left, right)):
            return _size(left, sizes) * _size(right, sizes)
        case Operation("neg" | "abs" | "//"):
            return _size(tree.arguments[0], sizes)
        case Operation("%"):
            return _size(tree.arguments[1], sizes)
        case _:
            return INT64_MAX + 1
