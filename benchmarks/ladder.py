"""The ladder: what the project must reach and aims at, and how far a run of a benchmark has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.report import Row

LOCAL, ONE_INSTANCE, ON_SPARK = "tidegate-local", "tidegate-local-1", "tidegate-spark"
PAIRS = ("paircount-l", "paircount-m", "paircount-h")

Ratios = Mapping[str, float]
Find = Callable[[Sequence[Row], Ratios], float | None]


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the ladder for one workload: where its figure is found, and the two marks it is held against."""

    workload: str
    what: str
    find: Find
    must: float
    aim: float | None = None
    unit: str = "×"
    better: Literal["more", "less"] = "more"


@dataclass(frozen=True, slots=True)
class Rung:
    """A goal and the figure of a run."""

    goal: Goal
    value: float

    @property
    def reached(self) -> Literal["aim", "must", "missed"]:
        if self.goal.aim is not None and self._meets(self.goal.aim):
            return "aim"
        return "must" if self._meets(self.goal.must) else "missed"

    def _meets(self, mark: float) -> bool:
        return self.value >= mark if self.goal.better == "more" else self.value <= mark

    def as_json(self) -> dict[str, Any]:
        goal = self.goal
        marks = {"must": goal.must, "aim": goal.aim, "unit": goal.unit, "better": goal.better}
        return {"what": goal.what, "value": self.value, **marks, "reached": self.reached}


def _ratio(name: str) -> Find:
    return lambda rows, ratios: ratios.get(name)


def _against_better_batch(rows: Sequence[Row], ratios: Ratios) -> float | None:
    """Against the faster of DuckDB and Polars; None unless both ran, as the better one is not known."""
    both = [ratios.get(f"{LOCAL}/{peer}") for peer in ("duckdb", "polars")]
    known = [ratio for ratio in both if ratio is not None]
    return min(known) if len(known) == len(both) else None


def _peak_mb(rows: Sequence[Row], ratios: Ratios) -> float | None:
    return next((row.peak_rss_mb for row in rows if row.engine == LOCAL), None)


def _start_seconds(rows: Sequence[Row], ratios: Ratios) -> float | None:
    """The longest start of a query over the batch sizes."""
    return max((row.start_s for row in rows if row.engine == ON_SPARK), default=None)


def _in_process(workload: str, must: float, aim: float) -> Goal:
    return Goal(workload, "in process against native Spark at its best", _ratio(f"{LOCAL}/spark"), must, aim)


def _on_spark(workload: str, batch: str, must: float, aim: float) -> Goal:
    return Goal(workload, f"on Spark against native Spark @{batch}", _ratio(f"{ON_SPARK}/spark@{batch}"), must, aim)


GOALS = (
    _on_spark("wordcount", "50k", 2.8, 4),
    _on_spark("wordcount", "250k", 4.5, 7),
    _on_spark("wordcount", "1m", 5, 8),
    *(_on_spark(pairs, "50k", 12, 25) for pairs in PAIRS[:2]),
    _on_spark("keyed", "50k", 1.2, 1.5),
    _on_spark("keyed", "250k", 1.5, 2),
    _on_spark("keyed", "1m", 2.3, 3),
    *(
        Goal(name, "start of a query on Spark", _start_seconds, 0.5, 0.35, "s", "less")
        for name in ("wordcount", "keyed", *PAIRS)
    ),
    _in_process("wordcount", 15, 25),
    *(_in_process(pairs, 25, aim) for pairs, aim in zip(PAIRS, (60, 40, 40), strict=True)),
    _in_process("keyed", 15, 25),
    Goal("wordcount", "in process against the better of DuckDB and Polars", _against_better_batch, 3, 4),
    Goal("wordcount", "two instances against one", _ratio(f"{LOCAL}/{ONE_INSTANCE}"), 1.6, 1.8),
    Goal("wordcount", "peak memory in process", _peak_mb, 400, 300, "MB", "less"),
    Goal("scalejoin", "all pairs, two instances against the bare loop", _ratio(f"{LOCAL}/bare-loop"), 1.6, 1.65),
    Goal("scalejoin", "p99 latency at 70 % of the sustainable rate", _ratio("p99_ms"), 25, 10, "ms", "less"),
    Goal(
        "scalejoin-spark",
        "all pairs on Spark against native Spark, constant key",
        _ratio(f"{ON_SPARK}/spark"),
        1_000,
        2_000,
    ),
    Goal("scalejoin-spark", "… on native's small input", _ratio(f"{ON_SPARK}, the same input/spark"), 15, 25),
    Goal("equijoin", "by key on Spark against native Spark at its best", _ratio(f"{ON_SPARK}/spark"), 2.5, 4),
    Goal("overlap-inter", "micro against native Spark, slowest map", _ratio("micro/spark, least of M"), 1, 1.2),
    Goal("overlap-inter", "micro against native Spark, slowest join", _ratio("micro/spark, least of J"), 20),
    Goal("state-growth", "batch time with ten times the keys, warm", _ratio("10x/1x"), 1.1, 1.05, "×", "less"),
    *(
        Goal(
            "bandjoin", f"by sorting against all pairs @{each}", _ratio(f"{LOCAL}@{each}/{LOCAL} (all pairs)@{each}"), 5
        )
        for each in ("1k", "10k")
    ),
    Goal("skew-theta", "all pairs, exponent 2 against 0", _ratio(f"{LOCAL} theta 2/{LOCAL} theta 0"), 0.8),
)


def held_against(workload: str, rows: Sequence[Row], ratios: Ratios) -> list[Rung]:
    """The goals of a workload whose figures this run has."""
    found = ((goal, goal.find(rows, ratios)) for goal in GOALS if goal.workload == workload)
    return [Rung(goal, value) for goal, value in found if value is not None]


def table(rungs: Sequence[Rung]) -> str:
    """A line for each rung: the figure, must and aim beside it, and which of them it reached."""
    if not rungs:
        return ""
    width = max(len(rung.goal.what) for rung in rungs)
    lines = [f"\n{'ladder':<{width}}  {'here':>10}  {'must':>8}  {'aim':>8}  reached"]
    for rung in rungs:
        goal = rung.goal
        sign = "≥" if goal.better == "more" else "≤"
        unit = goal.unit if goal.unit == "×" else f" {goal.unit}"
        aim = "–" if goal.aim is None else f"{sign} {goal.aim:g}"
        here = f"{rung.value:,.2f}{unit}" if goal.unit != "MB" else f"{rung.value:,.0f}{unit}"
        lines.append(f"{goal.what:<{width}}  {here:>10}  {f'{sign} {goal.must:g}':>8}  {aim:>8}  {rung.reached}")
    return "\n".join(lines)
