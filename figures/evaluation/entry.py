"""Entries of the evaluation: figures or tables of a paper, the command that gives ours, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

OUT = "{out}"
"""Stands in a command for the folder in which the entry leaves its results."""


class Paper(Enum):
    """The papers, in the order of the document, by their names in its headings."""

    STRETCH = "STRETCH"
    STREAMCLOUD = "StreamCloud"
    GEDIK = "Elastic Scaling for Data Stream Processing (Gedik et al.)"
    OVERLAP = "On the Semantic Overlap of Operators"
    ELASTICUTOR = "Elasticutor"


class Kind(Enum):
    """What our figures are."""

    MEASURED = "measured"
    LIVE = "live, at this machine's size"
    SIMULATED = "simulated, at the paper's size"
    COMPUTED = "computed from the paper's cost model, not run"

    @property
    def timed(self) -> bool:
        """Whether figures depend on the machine and on what else it does."""
        return self in (Kind.MEASURED, Kind.LIVE)


@dataclass(frozen=True, slots=True)
class NoEntry:
    """Figures of a paper that have no entry, and why."""

    paper: Paper
    covers: str
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A row of the document: the paper's figure or text, and ours."""

    figure: str
    what: str
    paper: str
    ours: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Figures of a paper that one command can be held against.

    `command` is what follows `python -m`. `compare` is given the folder with its results and reads our figures from them.
    `differs` says in a sentence or two where and why we differ. `picture` is a file in the folder that goes into the
    document. An entry with `apart` is left to whoever runs it by its name, for the reason given.
    """

    name: str
    paper: Paper
    covers: str
    shows: str
    kind: Kind
    command: tuple[str, ...]
    compare: Callable[[Path], Sequence[Comparison]]
    differs: str
    limit_seconds: float
    picture: str = ""
    apart: str = ""

    def __post_init__(self) -> None:
        if not any(OUT in word for word in self.command):
            raise ValueError(
                f"entry {self.name!r}: its command leaves its results in {OUT}, which is not in {self.command}"
            )

    def words(self, out: Path | str) -> list[str]:
        """The command with the folder in its place."""
        return [word.replace(OUT, str(out)) for word in self.command]
