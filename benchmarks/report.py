"""Figures of a benchmark: from runs to rows, ratios, a table on screen and a JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.engine_process import Run
from benchmarks.engines import ENGINES, JUDGES, SPARK_VARIANTS

ONE_BATCH = "all"
OTHER_INSTANCES = {"tidegate-local": "tidegate-local-1"}  # two instances are held against one


@dataclass(frozen=True, slots=True)
class Row:
    """One engine at one batch size: median and extremes over runs, percentiles over the micro-batches of all runs."""

    engine: str
    batch: str
    tuples: int
    tuples_per_second: int
    spread: tuple[int, int]
    p50_ms: float
    p99_ms: float
    peak_rss_mb: int
    output_rows: int
    start_s: float = 0.0
    setting: str | None = None  # which variant a row named `spark` is

    def as_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "setting"}
        return fields if self.setting is None else {**fields, "setting": self.setting}


def row_from_runs(engine: str, batch: str, tuples: int, runs: Sequence[Run], output_rows: int) -> Row:
    rates = [tuples / run.timing.seconds for run in runs]
    batch_ms = [ms for run in runs for ms in run.timing.batch_ms]
    return Row(
        engine=engine,
        batch=batch,
        tuples=tuples,
        tuples_per_second=round(median(rates)),
        spread=(round(min(rates)), round(max(rates))),
        p50_ms=round(float(np.percentile(batch_ms, 50)), 1),
        p99_ms=round(float(np.percentile(batch_ms, 99)), 1),
        peak_rss_mb=round(max(run.peak_mb for run in runs)),
        output_rows=output_rows,
        start_s=round(median(run.timing.start_seconds for run in runs), 2),
    )


def with_best_spark(rows: Sequence[Row]) -> list[Row]:
    """The rows and, for each batch size, one named `spark`: the fastest variant of native Spark."""
    best: dict[str, Row] = {}
    for row in rows:
        if row.engine in SPARK_VARIANTS and (
            row.batch not in best or row.tuples_per_second > best[row.batch].tuples_per_second
        ):
            best[row.batch] = row
    return [*rows, *(replace(row, engine="spark", setting=row.engine) for row in best.values())]


def ratios(rows: Sequence[Row]) -> dict[str, float]:
    """Throughput over throughput: on Spark batch by batch, in process against Spark's best and all that is not Spark.

    A peer that ran only the beginning of the input stands here with the rate it had on that.
    """
    spark = {row.batch: row for row in rows if row.engine == "spark"}
    best_spark = max((row.tuples_per_second for row in spark.values()), default=None)
    found: dict[str, float] = {}
    for row in rows:
        if row.engine in ("spark", *SPARK_VARIANTS):
            continue
        if ENGINES[row.engine].on_spark:
            if row.batch in spark:
                found[f"{row.engine}/spark@{row.batch}"] = row.tuples_per_second / spark[row.batch].tuples_per_second
            continue
        if best_spark is not None:
            found[f"{row.engine}/spark"] = row.tuples_per_second / best_spark
        if row.engine.startswith("tidegate"):
            others = [other for other in rows if other.engine == OTHER_INSTANCES.get(row.engine)]
            others += (other for other in rows if other.engine in JUDGES or ENGINES[_variant(other)].peer)
            found |= {f"{row.engine}/{it.engine}": row.tuples_per_second / it.tuples_per_second for it in others}
    return {name: round(ratio, 3) for name, ratio in found.items()}


def _variant(row: Row) -> str:
    return row.setting or row.engine


def table(rows: Sequence[Row], ratios_by_name: dict[str, float]) -> str:
    """The figures for a reader: a line per row, then a line per ratio."""
    titles = ("engine", "batch", "tuples", "tuples/s", "min – max", "batch p50 ms", "start s", "peak MB", "output rows")
    cells = [
        (
            row.engine if row.setting is None else f"{row.engine} ({row.setting.removeprefix('spark-')})",
            row.batch,
            f"{row.tuples:,}",
            f"{row.tuples_per_second:,}",
            f"{row.spread[0]:,} – {row.spread[1]:,}",
            f"{row.p50_ms:,.0f}",
            f"{row.start_s:.1f}",
            f"{row.peak_rss_mb:,}",
            f"{row.output_rows:,}",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (titles, *cells)) for column in range(len(titles))]
    lines = [
        "  ".join(text.ljust(width) if column < 2 else text.rjust(width) for column, (text, width) in enumerate(pairs))
        for pairs in (list(zip(line, widths, strict=True)) for line in (titles, *cells))
    ]
    ratio_lines = (f"{name} = {ratio:.2f}" for name, ratio in ratios_by_name.items())
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", *ratio_lines])


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
