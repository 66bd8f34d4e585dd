"""How large the whole numbers inside a predicate can get, given how large those of its columns are."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.query.predicates.tree import Absolute, Arithmetic, Column, Constant, Negative, Tree, parts_of

LIMIT = 2**63 - 1


def fits_int64(tree: Tree, sizes: Mapping[Column, int]) -> bool:
    """Whether no whole number inside a tree can leave int64, columns being at most so far from zero.

    >>> x = Column(0, "x", "int")
    >>> product = Arithmetic("*", x, x, "int")
    >>> fits_int64(product, {x: 10**9}), fits_int64(product, {x: 10**10})
    (True, False)
    """
    return all(fits_int64(part, sizes) for part in parts_of(tree)) and (
        tree.kind != "int" or _size(tree, sizes) <= LIMIT
    )


def _size(tree: Tree, sizes: Mapping[Column, int]) -> int:
    """A bound of the distance from zero of a whole number."""
    match tree:
        case Column():
            return sizes.get(tree, 0)
        case Constant():
            return abs(int(tree.value))
        case Negative() | Absolute():
            return _size(tree.of, sizes)
        case Arithmetic(operator="+" | "-"):
            return _size(tree.left, sizes) + _size(tree.right, sizes)
        case Arithmetic(operator="*"):
            return _size(tree.left, sizes) * _size(tree.right, sizes)
        case Arithmetic(operator="//"):
            return _size(tree.left, sizes)
        case Arithmetic():
            return _size(tree.right, sizes)
        case _:
            return LIMIT + 1
