"""The loop that tries pairs, as Python source for Numba.

The *new* tuples are those of one side that have come, the *stored* ones those of the other side that they meet. For each
stretch of stored tuples and each new tuple, the loop first counts the stored ones that fit, without branches, so that the
processor tries several at once; only where some fit it goes over them again to note them. Most pairs of most joins do not.

A condition is written as two conditions, when it is *true* and when it is *false*: null is neither. Where no column holds a
null the second is the first's opposite, which makes a second, faster loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidegate.errors import InternalError
from tidegate.query.predicates.tree import Column, ConstantValue, Operation, Side, Tree, can_fail, columns_of, walk_tree

_YES, _NO = "True", "False"


@dataclass(frozen=True, slots=True)
class LoopShape:
    """What a loop is built from: the predicate, which side is new, how many keys to compare, and what to check."""

    tree: Tree
    new_side: Side
    keys: int
    checks_time: bool
    nullable: bool

    @property
    def new_columns(self) -> tuple[Column, ...]:
        return columns_of(self.tree, self.new_side)

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        return columns_of(self.tree, 0 if self.new_side else 1)


def texts_of(tree: Tree) -> list[str | bytes]:
    """The texts that a predicate compares with, which its loop takes as codes."""
    found = [part.value for part in walk_tree(tree) if isinstance(part, ConstantValue)]
    return list(dict.fromkeys(value for value in found if isinstance(value, str | bytes)))


def loop_source(shape: LoopShape) -> str:
    """The source of a function ``loop``; see `compiled` for what it takes and returns."""
    writer = _Writer(shape)
    near = ["(new_low <= stored_time[j]) & (stored_time[j] <= new_high)"] if shape.checks_time else []
    equal = [f"(new_key{k} == stored_key{k}[j])" for k in range(shape.keys)]
    fits = _all(*near, *equal, writer.truth(shape.tree)[0])
    fails = _all(*near, *equal, writer.fails(shape.tree)) if can_fail(shape.tree) else _NO
    news, stored = _arrays(shape)
    texts = [f"text{place}" for place in range(len(texts_of(shape.tree)))]
    arguments = ["lows", "highs", "starts", "stops", "at", "out_new", "out_stored"]
    arguments += [f"all_{name}" for name in (*news, *stored)] + texts
    failing = (
        [
            "            wrong = 0",
            "            for j in range(stop - start):",
            f"                wrong += {fails}",
            "            if wrong:",
            "                for j in range(stop - start):",
            f"                    if {fails}:",
            "                        at[0], at[1], at[2] = i, start + j, 1",
            "                        return n",
        ]
        if fails != _NO
        else []
    )
    lines = [
        f"def loop({', '.join(arguments)}):",
        "    n = 0",
        "    for b in range(at[0], starts.size):",
        "        for i in range(at[1], lows.size):",
        "            start, stop = max(lows[i], starts[b]), min(highs[i], stops[b])",
        "            if start >= stop:",
        "                continue",
        *(f"            {name} = all_{name}[i]" for name in news),
        *(f"            {name} = all_{name}[start:stop]" for name in stored),
        *failing,
        "            hits = 0",
        "            for j in range(stop - start):",
        f"                hits += {fits}",
        "            if hits:",
        "                if n + hits > out_new.size:",
        "                    at[0], at[1] = b, i",
        "                    return n",
        "                for j in range(stop - start):",
        f"                    if {fits}:",
        "                        out_new[n], out_stored[n] = i, start + j",
        "                        n += 1",
        "        at[1] = 0",
        "    at[0] = starts.size",
        "    return n",
    ]
    return "\n".join(lines) + "\n"


def _arrays(shape: LoopShape) -> tuple[list[str], list[str]]:
    """The arrays of new and of stored tuples, in the order in which the loop takes them."""
    news = ["new_low", "new_high"] if shape.checks_time else []
    stored = ["stored_time"] if shape.checks_time else []
    for names, side, columns in ((news, "new", shape.new_columns), (stored, "stored", shape.stored_columns)):
        names += [f"{side}_key{k}" for k in range(shape.keys)]
        for place in range(len(columns)):
            names += [f"{side}{place}"] + ([f"{side}{place}_valid"] if shape.nullable else [])
    return news, stored


class _Writer:
    """Writes the parts of a predicate as source."""

    def __init__(self, shape: LoopShape) -> None:
        self._shape = shape
        self._texts = texts_of(shape.tree)
        self._names = {column: f"new{place}" for place, column in enumerate(shape.new_columns)}
        self._names |= {column: f"stored{place}" for place, column in enumerate(shape.stored_columns)}

    def truth(self, tree: Tree) -> tuple[str, str]:
        """When a condition is true, and when it is false."""
        true, false = self._truth(tree)
        return (true, false) if self._shape.nullable else (true, _not(true))

    def _truth(self, tree: Tree) -> tuple[str, str]:
        match tree:
            case ConstantValue():
                return (_YES, _NO) if tree.value else (_NO, _YES)
            case Operation("~", (of,)):
                true, false = self.truth(of)
                return false, true
            case Operation("is null", (of,)):
                valid = self.valid(of)
                return _not(valid), valid
            case Operation("if", (condition, then_tree, other_tree)):
                (asked, not_asked), (then, not_then) = self.truth(condition), self.truth(then_tree)
                other, not_other = self.truth(other_tree)
                # Without nulls the condition is true or false, so it does not matter that both outcomes agree.
                agree = _all(then, other) if self._shape.nullable else _NO
                return (
                    _any(_all(asked, then), _all(not_asked, other), agree),
                    _any(_all(asked, not_then), _all(not_asked, not_other), _all(not_then, not_other)),
                )
            case Operation("&" | "|" | "==" | "!=", (one, two)) if one.kind == "bool":
                (left, not_left), (right, not_right) = self.truth(one), self.truth(two)
                if tree.name == "&":
                    return _all(left, right), _any(not_left, not_right)
                if tree.name == "|":
                    return _any(left, right), _all(not_left, not_right)
                same = _any(_all(left, right), _all(not_left, not_right))
                different = _any(_all(left, not_right), _all(not_left, right))
                return (same, different) if tree.name == "==" else (different, same)
            case _:
                valid, value = self.valid(tree), self._number(tree)
                return _all(valid, value), _all(valid, _not(value))

    def valid(self, tree: Tree) -> str:
        """When a value is not null."""
        if not self._shape.nullable:
            return _YES
        match tree:
            case Column():
                return self._column(tree, "_valid")
            case ConstantValue() | Operation("is null"):
                return _YES
            case Operation(arguments=arguments) if arguments[0].kind != "bool":
                return _all(*map(self.valid, arguments))
            case _:
                return _any(*self.truth(tree))

    def fails(self, tree: Tree) -> str:
        """When a value cannot be computed."""
        match tree:
            case Operation("if", (condition, then, otherwise)):
                true, false = self.truth(condition)
                paths = _all(_not(false), self.fails(then)), _all(_not(true), self.fails(otherwise))
                return _any(self.fails(condition), *paths)
            case Operation("//" | "%", (_, divisor)):
                zero = _all(self.valid(tree), f"({self._number(divisor)} == 0)")
                return _any(*map(self.fails, tree.arguments), zero)
            case Operation():
                return _any(*map(self.fails, tree.arguments))
            case _:
                return _NO

    def _number(self, tree: Tree, wide: bool = False) -> str:
        """A number, the code of a text, or a comparison of these; ``wide`` asks for a float."""
        if wide and tree.kind == "int":
            return f"float({self._number(tree)})" if not isinstance(tree, ConstantValue) else repr(float(tree.value))
        match tree:
            case ConstantValue(value=str() | bytes() as text):
                return f"text{self._texts.index(text)}"
            case ConstantValue(value=float() as value) if not math.isfinite(value):
                return "np.nan" if math.isnan(value) else "np.inf" if value > 0 else "-np.inf"
            case ConstantValue():
                return f"({tree.value!r})"
            case Column():
                return self._column(tree)
            case Operation("neg", (of,)):
                return f"(-{self._number(of)})"
            case Operation("abs", (of,)):
                return f"abs({self._number(of)})"
            case Operation() if tree.is_call:
                return f"np.{tree.name}({', '.join(self._number(each, wide=True) for each in tree.arguments)})"
            case Operation(operator, (left, right)):
                wide = "float" in (tree.kind, left.kind, right.kind)
                return f"({self._number(left, wide)} {operator} {self._number(right, wide)})"
            case _:
                raise InternalError(f"{tree!r} is no number")

    def _column(self, column: Column, what: str = "") -> str:
        return f"{self._names[column]}{what}" + ("" if column.side == self._shape.new_side else "[j]")


def _all(*conditions: str) -> str:
    kept = [condition for condition in dict.fromkeys(conditions) if condition != _YES]
    if _NO in kept:
        return _NO
    return kept[0] if len(kept) == 1 else f"({' & '.join(kept)})" if kept else _YES


def _any(*conditions: str) -> str:
    kept = [condition for condition in dict.fromkeys(conditions) if condition != _NO]
    if _YES in kept:
        return _YES
    return kept[0] if len(kept) == 1 else f"({' | '.join(kept)})" if kept else _NO


def _not(condition: str) -> str:
    return {_YES: _NO, _NO: _YES}.get(condition, f"(not {condition})")
