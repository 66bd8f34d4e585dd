"""Table 1 of the paper as values: the operator, its function, its windows and the selectivity that the paper reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.overlap import functions
from benchmarks.overlap.functions import MapFunction

Data = Literal["texts", "scans"]


@dataclass(frozen=True, slots=True)
class MapQuery:
    """One tuple in, any number out: the columns that the function takes, and the names of what it gives."""

    name: str
    data: Data
    columns: tuple[str, ...]
    function: MapFunction
    gives: tuple[str, ...]
    selectivity: float


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """Pairs of a stream with itself: over texts by the words of `change` and a length, over scans by a difference."""

    name: str
    data: Data
    bound: float
    every_us: int
    size_us: int
    selectivity: float

    @property
    def tumbling_us(self) -> int:
        """The size of its windows where they tumble, as between engines (§6.2)."""
        return self.size_us


def _texts(name: str, columns: tuple[str, ...], function: MapFunction, selectivity: float) -> MapQuery:
    gives = ("word",) if len(columns) == 1 else ("word", "word_change", "word_updated")
    return MapQuery(name, "texts", columns, function, gives, selectivity)


def _scans(name: str, function: MapFunction, selectivity: float) -> MapQuery:
    return MapQuery(name, "scans", ("scan", "dist"), function, ("scan", "xs", "ys"), selectivity)


ORIG, ALL = ("orig",), ("orig", "change", "updated")
S = 1_000_000

QUERIES: Mapping[str, MapQuery | JoinQuery] = {
    query.name: query
    for query in (
        _texts("LLM", ORIG, functions.llm, 5e-3),
        _texts("ALM", ORIG, functions.alm, 1),
        _texts("HLM", ORIG, functions.hlm, 3),
        _texts("LHM", ALL, functions.lhm, 3e-4),
        _texts("AHM", ALL, functions.ahm, 1),
        _texts("HHM", ALL, functions.hhm, 2.3),
        JoinQuery("LLJ", "texts", 210, S, 3 * S, 1e-4),
        JoinQuery("ALJ", "texts", 150, S, 3 * S, 1e-3),
        JoinQuery("HLJ", "texts", 100, S, 3 * S, 3e-3),
        JoinQuery("LHJ", "texts", 210, S, 10 * S, 1e-4),
        JoinQuery("AHJ", "texts", 150, S, 10 * S, 1e-3),
        JoinQuery("HHJ", "texts", 100, S, 10 * S, 3e-3),
        _scans("llm", functions.llm_scan, 0.2),
        _scans("alm", functions.alm_scan, 1),
        _scans("hlm", functions.hlm_scan, 3),
        _scans("lhm", functions.lhm_scan, 0.7),
        _scans("ahm", functions.ahm_scan, 1),
        _scans("hhm", functions.hhm_scan, 3),
        JoinQuery("llj", "scans", 0.5, S // 2, S, 8e-5),
        JoinQuery("alj", "scans", 0.6, S // 2, S, 8e-4),
        JoinQuery("hlj", "scans", 0.7, S // 2, S, 5e-3),
        JoinQuery("lhj", "scans", 0.5, S // 2, 2 * S, 6e-5),
        JoinQuery("ahj", "scans", 0.6, S // 2, 2 * S, 7e-4),
        JoinQuery("hhj", "scans", 0.7, S // 2, 2 * S, 3e-3),
    )
}
"""Names as in the paper: cost and selectivity (low, average, high) and the operator; lower case over scans."""
