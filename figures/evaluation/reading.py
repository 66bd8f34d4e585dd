"""How entries read results: the JSON of benchmarks, the tables of pages, and numbers as the document shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures.evaluation.entry import Comparison
from figures.report import read_tables

CLAIMS = "Ours beside the paper's text"


def results(folder: Path, name: str) -> dict[str, Any]:
    """What a benchmark has left."""
    made: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return made


def claims(page: Path, figures: Mapping[str, str]) -> list[Comparison]:
    """The rows of a page's table of claims whose beginnings are named, with the figures that they stand for."""
    tables = read_tables(page)
    rows = next(rows for title, rows in tables.items() if title.startswith(CLAIMS))
    found = []
    for beginning, figure in figures.items():
        what, paper, ours = next(row for row in rows if row[0].startswith(beginning))
        found.append(Comparison(figure, what, paper, ours))
    return found


def count(number: float) -> str:
    """A rate or a number of things, in three digits: 12.3 M, 4.56 G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def times(ratio: float) -> str:
    """A ratio."""
    return f"{ratio:.2f}×" if ratio < 10 else f"{ratio:,.0f}×"
