"""Narwhals expressions as text that reads like the code a user wrote."""

from __future__ import annotations

import reprlib
from typing import Any

import narwhals as nw

from tidegate.compile.expression_shape import parts

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "and": "&", "or": "|", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


def show_expression(expr: nw.Expr) -> str:
    """An expression as text; what it is renamed to stands before it.

    >>> show_expression(((nw.col("end_s") - nw.col("start_s")) / 60).alias("minutes"))
    'minutes = (end_s - start_s) / 60'
    >>> show_expression(nw.col("text").str.split(" "))
    "text.str.split(by=' ')"
    """
    text, name = "", ""
    for part in parts(expr):
        if part.name == "alias":
            name = part.kwargs["name"]
        else:
            text = _applied(text, part)
    return f"{name} = {text}" if name and name != text else text


def _applied(text: str, part: Any) -> str:
    """A function applied to the text of what it is called on; functions that begin an expression have none."""
    if part.name == "col":
        return ", ".join(part.kwargs["names"])
    if part.name == "lit":
        return repr(part.kwargs["value"])
    if part.name == "__invert__":
        return f"~{_operand(text)}"
    operator = part.name.strip("_")
    if operator in _INFIX:
        return f"{_operand(text)} {_INFIX[operator]} {_operand(_argument(part.exprs[0], part))}"
    if operator.removeprefix("r") in _INFIX and part.name.startswith("__r"):
        return f"{_operand(_argument(part.exprs[0], part))} {_INFIX[operator.removeprefix('r')]} {_operand(text)}"
    arguments = [_argument(argument, part) for argument in part.exprs]
    arguments += [
        f"{key}={reprlib.repr(value)}" for key, value in part.kwargs.items() if value is not None and value is not False
    ]
    called = f"{part.name}({', '.join(arguments)})"
    return f"{_operand(text)}.{called}" if text else called


def _argument(value: Any, part: Any) -> str:
    if isinstance(value, nw.Expr):
        return show_expression(value)
    return value if isinstance(value, str) and not part.str_as_lit else repr(value)


def _operand(text: str) -> str:
    """Brackets around what would read wrongly without them: text with a space outside brackets and quotes."""
    depth, quoted = 0, ""
    for letter in text:
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "'\"":
            quoted = letter
        else:
            depth += (letter in "([") - (letter in ")]")
            if letter == " " and depth == 0:
                return f"({text})"
    return text
