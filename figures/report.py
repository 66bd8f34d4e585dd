"""Pages: a Markdown file per experiment with its pictures and tables, and an index of all of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NOT_GIVEN = "not in the text"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its heading; cells are shown as they are."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]

    def __str__(self) -> str:
        lines = [_row(self.head), "|" + "---|" * len(self.head), *map(_row, self.rows)]
        return f"## {self.title}\n\n" + "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Page:
    """An experiment: what it is, its pictures, its tables, and how it was simulated, or measured if it is live."""

    title: str
    about: str
    pictures: Sequence[Path]
    tables: Sequence[Table]
    model: Sequence[str] = ()
    live: bool = False

    def __str__(self) -> str:
        parts = [f"# {self.title}", self.about, *(f"![{each.stem}]({each.name})" for each in self.pictures)]
        parts += map(str, self.tables)
        if self.model:
            parts.append(
                f"## How it was {'measured' if self.live else 'simulated'}\n\n"
                + "\n".join(f"- {each}" for each in self.model)
            )
        return "\n\n".join(parts) + "\n"


def write_page(page: Page, path: Path) -> Path:
    """Write the page; returns where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(page), encoding="utf-8")
    return path


def read_tables(path: Path) -> dict[str, list[tuple[str, ...]]]:
    """The rows of each table of a written page by the table's title, without their heads."""
    found: dict[str, list[tuple[str, ...]]] = {}
    title = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif line.startswith("| "):
            cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
            found.setdefault(title, []).append(tuple(cell.replace("\\|", "|") for cell in cells))
    return {title: rows[1:] for title, rows in found.items()}


def write_index(out: Path, seconds: dict[str, float]) -> Path:
    """Write `index.md`: every page and every table in the folder, with its pictures, and what this run took."""
    lines = [
        "# Figures",
        "",
        "Experiments, simulated and live; in each, what the paper reports stands beside ours.",
        "",
    ]
    for page in sorted(path for path in out.glob("*.md") if path.name != "index.md"):
        pictures = sorted(out.glob(f"{page.stem}*.png"))
        shown = ", ".join(f"[{picture.name}]({picture.name})" for picture in pictures)
        lines.append(f"- [{_title(page)}]({page.name})" + (f": {shown}" if shown else ""))
    if seconds:
        took = ", ".join(f"{name} {each:.0f} s" for name, each in seconds.items())
        lines += ["", f"The last run took {took}."]
    path = out / "index.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def note(text: str) -> None:
    """Say how far an experiment has come."""
    print(f"  {text}", file=sys.stderr, flush=True)


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _title(page: Path) -> str:
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("# ") if first.startswith("# ") else page.stem
