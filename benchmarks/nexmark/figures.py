"""What the engines did with Nexmark's queries: rates, ratios, and a table with the worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

OURS = ("tidegate-spark", "tidegate-local")
STREAMING = ("spark-rocksdb", "spark-hdfs", "flink")
"""The engines that ours are held against: the better of them on each query."""
MEASURES = ("time", "CPU")


@dataclass(slots=True)
class Figures:
    """One engine on one query: what its runs took, or why it cannot."""

    query: str
    engine: str
    events: int
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    output_rows: int = 0
    cannot: str | None = None

    @property
    def took(self) -> dict[str, float]:
        """Medians of the clock and of processor time."""
        return dict(zip(MEASURES, (median(self.seconds), median(self.cpu_seconds)), strict=True))

    def line(self) -> str:
        if self.cannot:
            return f"{self.engine}: cannot, {self.cannot}"
        took = self.took
        rate, rows = self.events / took["time"], self.output_rows
        return f"{self.engine}: {rate:,.0f} events/s, {took['time']:.2f} s, CPU {took['CPU']:.2f} s, {rows:,} rows"

    def as_json(self) -> dict[str, Any]:
        if self.cannot:
            return {"query": self.query, "engine": self.engine, "cannot": self.cannot}
        return {
            "query": self.query,
            "engine": self.engine,
            "tuples_per_second": round(self.events / self.took["time"]),
            "spread": [round(self.events / max(self.seconds)), round(self.events / min(self.seconds))],
            "seconds": round(self.took["time"], 3),
            "cpu_seconds": round(self.took["CPU"], 3),
            "output_rows": self.output_rows,
        }


def ratios(found: Mapping[str, Sequence[Figures]]) -> dict[str, float]:
    """How many times as fast as the better of Spark and Flink, by the clock and by processor time, and beside DuckDB."""
    made: dict[str, float] = {}
    for query, figures in found.items():
        took = {each.engine: each.took for each in figures if not each.cannot}
        for ours in (name for name in OURS if name in took):
            for measure in MEASURES:
                peers = [took[name][measure] for name in STREAMING if name in took]
                if peers:
                    made[f"{query} {ours}/streaming {measure}"] = round(min(peers) / took[ours][measure], 3)
                if "duckdb" in took:
                    made[f"{query} {ours}/duckdb {measure}"] = round(took["duckdb"][measure] / took[ours][measure], 3)
    return made


def summary(by_query: Mapping[str, float]) -> dict[str, float]:
    """Median and worst over queries, of each kind of ratio."""
    kinds = dict.fromkeys(name.split(" ", 1)[1] for name in by_query)
    values = {kind: [value for name, value in by_query.items() if name.split(" ", 1)[1] == kind] for kind in kinds}
    medians = {f"median {kind}": round(median(each), 3) for kind, each in values.items()}
    return {**medians, **{f"worst {kind}": min(each) for kind, each in values.items()}}


def shown(found: Mapping[str, Sequence[Figures]], by_query: Mapping[str, float]) -> str:
    """Thousands of events a second of each engine, CPU seconds in brackets; the worst ratios first."""
    engines = list(dict.fromkeys(each.engine for figures in found.values() for each in figures))
    kinds = [f"{ours}/streaming {measure}" for ours in OURS if ours in engines for measure in MEASURES]

    def ratio(query: str, kind: str) -> float:
        return by_query.get(f"{query} {kind}", float("inf"))

    def cell(each: Figures | None) -> str:
        if each is None:
            return "failed"
        return "–" if each.cannot else f"{each.events / each.took['time'] / 1e3:,.0f} ({each.took['CPU']:.1f})"

    titles = ["", *engines, *(kind.replace("tidegate-", "").replace("/streaming", " ×") for kind in kinds)]
    lines = [titles]
    for query in sorted(found, key=lambda name: min((ratio(name, kind) for kind in kinds), default=0.0)):
        row = {each.engine: each for each in found[query]}
        beside = [f"{value:.2f}" if (value := ratio(query, kind)) < float("inf") else "–" for kind in kinds]
        lines.append([query, *(cell(row.get(engine)) for engine in engines), *beside])
    widths = [max(len(line[place]) for line in lines) for place in range(len(titles))]
    table = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
    table[0] += "      (thousands of events a second, CPU seconds of a run in brackets)"
    return "\n".join([*table, "", *(f"{kind} = {value:g}" for kind, value in summary(by_query).items())])
