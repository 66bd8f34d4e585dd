"""The README's table of throughput beside native Spark as a picture: `python -m figures.speed` draws it anew."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from figures.draw import BLUE, GREEN, GREY

PROJECT = Path(__file__).resolve().parents[1]
README, PICTURE = PROJECT / "README.md", PROJECT / "docs" / "images" / "speed.png"
TITLE = "Throughput on Spark, as a multiple of native Spark's on the same micro-batches"
_RATIO = re.compile(r"([\d.]+)×")


@dataclass(frozen=True, slots=True)
class Ratios:
    """A row of the table: a workload, the tuples of a micro-batch, and the ratios over files and over a DataFrame."""

    workload: str
    batch: str
    files: float
    frame: float

    @property
    def label(self) -> str:
        return f"{self.workload}, {self.batch} a batch" if self.batch else self.workload


def table_of(readme: str) -> list[Ratios]:
    """The rows of the table whose head is the benchmark's name, the tuples a batch, and the two ways to read them."""
    lines = iter(readme.splitlines())
    for line in lines:
        if line.endswith("| tuples a batch | files | DataFrame |"):
            break
    next(lines)
    rows: list[Ratios] = []
    for line in lines:
        if not line.startswith("|"):
            break
        name, batch, files, frame = (cell.strip() for cell in line.strip("|").split("|"))
        workload = name.partition(":")[0].strip("` ") or rows[-1].workload
        rows.append(Ratios(workload, batch, *(float(_RATIO.match(cell)[1]) for cell in (files, frame))))  # type: ignore[index]
    return rows


def draw_speed(rows: list[Ratios], path: Path) -> Path:
    """Two bars for each row, from native Spark on, which is the line at 1, on a scale of factors."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    figure = Figure(figsize=(9.0, 0.55 * len(rows) + 1.2), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(rows):
        for shift, value, colour in ((-0.19, row.files, BLUE), (0.19, row.frame, GREEN)):
            axes.barh(place + shift, value - 1, 0.36, left=1, color=colour)
            axes.annotate(
                f"{value:g}×", (value, place + shift), (3, 0), textcoords="offset points", va="center", fontsize=8
            )
    for label, colour in (("files that tidegate reads", BLUE), ("a DataFrame of yours", GREEN)):
        axes.barh(0, 0, left=1, color=colour, label=label)
    axes.axvline(1, color=GREY, linewidth=1.4, label="native Spark, the better of its state stores")
    axes.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=9)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.8, 30)
    axes.xaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.set_title(TITLE, fontsize=10, loc="left")
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{draw_speed(table_of(README.read_text(encoding='utf-8')), PICTURE)}\n")
