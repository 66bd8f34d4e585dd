"""Rows of text in aligned columns, with the last one wrapped to the width of a page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 99

# A space at which no line is broken.
GLUE = "\u00a0"

_NARROWEST = 30


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
