"""The document: for each paper its entries, ours beside the paper's, with the command, the machine and where we differ."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from figures.evaluation.entry import Comparison, Entry, NoEntry, Paper
from figures.evaluation.run import Record, kept
from figures.report import Table, note

MOST_BYTES = 100_000
WIDTHS = (900, 760, 620, 480)
COLOURS = 256
HEAD = ("figure", "what", "the paper", "ours")


@dataclass(frozen=True, slots=True)
class Section:
    """An entry with its record and its rows, or with the reason why it has none."""

    entry: Entry
    record: Record | None
    rows: Sequence[Comparison]
    missing: str

    def told(self, image: str) -> str:
        """The section as text; `image` is the link to its picture, if it has one."""
        entry, record = self.entry, self.record
        parts = [f"### {entry.covers[0].upper()}{entry.covers[1:]}: {entry.shows}"]
        if self.rows:
            parts.append(_table(HEAD, [(each.figure, each.what, each.paper, each.ours) for each in self.rows]))
        if self.missing:
            parts.append(f"**No figures of ours:** {self.missing}")
        if image:
            parts.append(f"![{entry.shows}]({image})")
        if self.rows:
            parts.append(f"*Where we differ:* {entry.differs}")
        parts.append(f"`python -m {' '.join(entry.words('OUT'))}`  \n{_circumstances(entry, record, bool(self.rows))}")
        return "\n\n".join(parts)


def section(entry: Entry, folder: Path) -> Section:
    """Read an entry's results; whatever is wrong with them is said instead of raised."""
    record = kept(entry, folder)
    if record is None:
        return Section(entry, None, (), f"not run. {entry.apart}".strip())
    if record.failure:
        return Section(entry, record, (), f"its run failed, {record.failure}")
    try:
        rows = entry.compare(folder)
    except Exception as error:
        # Results come from programs that change; one that cannot be read must not cost the others.
        return Section(entry, record, (), f"its results could not be read: {type(error).__name__}: {error}")
    return Section(entry, record, rows, "" if rows else "its results hold nothing to compare")


def write_document(
    sections: Sequence[Section], without: Sequence[NoEntry], cache: Path, path: Path, machine: dict[str, Any]
) -> None:
    """Write the document and its pictures."""
    images = path.parent / "images"
    parts = ["# Evaluation, beside the papers", _head(sections, machine)]
    for paper, group in groupby(sections, key=lambda each: each.entry.paper):
        parts.append(f"## {paper.value}")
        parts += [each.told(_picture(each, cache, images)) for each in group]
    parts += [
        "## Without an entry",
        _table(("paper", "figures", "why"), [(_short(each.paper), each.covers, each.why) for each in without]),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _head(sections: Sequence[Section], machine: dict[str, Any]) -> str:
    done = [each for each in sections if each.rows and each.record is not None]
    timed = [each.record for each in done if each.record is not None and each.entry.kind.timed]
    shared = sum(record.business.shared for record in timed)
    seconds = sum(each.record.seconds for each in done if each.record is not None)
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    busy = f"Nothing else was running while the {len(timed)} that depend on the machine were measured."
    if shared:
        busy = (
            f"**Other work was running on the machine in {shared} of the {len(timed)} that depend on it**, which is "
            "said there: their times and rates are worse than on a quiet machine; ratios within a run are less "
            "disturbed, and by how much nobody can say."
        )
    return (
        "Written by `make report`; do not edit. Every figure of ours comes from the command below it. The texts of "
        "the papers that we work from have the captions of their figures but not the curves, so ours stand beside "
        f"what their prose and tables say, and no curve is compared with a curve.\n\n{len(done)} of {len(sections)} "
        f"entries were run, in {seconds / 60:.0f} minutes. {busy}\n\nMachine: {machine['cores']} cores, "
        f"{machine['cpu']}, {machine['memory_gb']} GB; {versions}. The papers' machines: STRETCH 36 cores with 72 "
        "threads; StreamCloud 100 nodes with 320 cores; Gedik et al. 4 to 8 nodes of 8 cores; Semantic Overlap 4 "
        "cores with 8 threads, and an Odroid; Elasticutor 32 nodes of 8 cores. Absolute figures therefore say little; "
        "ratios, shapes and limits are what can be compared.\n\n*Measured*: taken on this machine. *Live*: the "
        "paper's experiment on this machine's cores, in less time. *Simulated*: the real controllers and balancers at "
        "the paper's size, on modelled instances."
    )


def _circumstances(entry: Entry, record: Record | None, shown: bool) -> str:
    if record is None:
        return f"{entry.kind.value.capitalize()}; `make report ARGS='--only {entry.name}'` runs it."
    about = f"{entry.kind.value.capitalize()}; {record.seconds:.0f} s, {record.when}, commit {record.commit}"
    return f"{about}; {record.business}." if shown and entry.kind.timed else f"{about}."


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return str(Table("", head, rows)).split("\n\n", 1)[1]


def _short(paper: Paper) -> str:
    return paper.value.split(" (")[0]


def _picture(section: Section, cache: Path, images: Path) -> str:
    entry = section.entry
    source = cache / entry.name / entry.picture
    if not (entry.picture and section.rows):
        return ""
    if not source.exists():
        note(f"{entry.name}: there is no picture {entry.picture}")
        return ""
    target = images / f"evaluation-{entry.name}.png"
    shrink(source, target)
    return f"{images.name}/{target.name}"


def shrink(source: Path, target: Path, most_bytes: int = MOST_BYTES) -> None:
    """Write a picture with few colours, narrower until it takes less than so many bytes."""
    from PIL import Image

    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    if source.stat().st_size <= most_bytes and picture.width <= WIDTHS[0]:
        shutil.copyfile(source, target)
        return
    for width in WIDTHS:
        height = round(picture.height * width / picture.width)
        # Lines are thin, so colours are kept by how far apart they are, not by how much of the picture they cover.
        small = picture.resize((width, height), Image.Resampling.LANCZOS).quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
        buffer = io.BytesIO()
        small.save(buffer, "PNG", optimize=True)
        if buffer.tell() <= most_bytes:
            break
    target.write_bytes(buffer.getvalue())
