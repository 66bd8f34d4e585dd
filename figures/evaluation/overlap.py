"""On the Semantic Overlap of Operators: figures 9 to 14 (§6)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from figures.evaluation.entry import OUT, Comparison, Entry, Kind, Paper
from figures.evaluation.reading import results, times

KINDS = (
    ("9", "map, low cost", "A+ 30–38 %, A 3–28 %, less for a higher selectivity"),
    ("9", "map, high cost", "A+ 98–100 %; A 90–96 % at low selectivity"),
    ("10, 11", "queries M", "A+ about 84 % (AHM) to 100 %; A 66 % (LLM), about 50 % (AHM), 10 % (HLM)"),
    ("12, 13", "joins", "A+ about 100 %; A less"),
)


def _within(folder: Path) -> Sequence[Comparison]:
    rows = results(folder, "overlap-intra")["rows"]
    found = []
    for figure, kind, paper in KINDS:
        shares = {
            operators: sorted(
                row["share_of_dedicated"] for row in rows if (row["kind"], row["operators"]) == (kind, operators)
            )
            for operators in ("multi", "single")
        }
        ours = ", ".join(f"`{name}` {every[0]:.0%} to {every[-1]:.0%}" for name, every in shares.items() if every)
        found.append(Comparison(figure, f"{kind}: throughput, of dedicated operators", paper, ours))
    for figure, name, paper in (
        ("11", "LLM", "A 66 %"),
        ("10", "AHM", "A+ about 84 %, A about 50 %"),
        ("11", "HLM", "A about 10 %"),
    ):
        of = {row["operators"]: row["share_of_dedicated"] for row in rows if row["case"] == name}
        found.append(
            Comparison(figure, name, paper, ", ".join(f"`{each}` {of[each]:.0%}" for each in ("multi", "single")))
        )
    late = {
        operators: sorted(row["p50_ms"] for row in rows if row["operators"] == operators and row["p50_ms"] is not None)
        for operators in ("dedicated", "multi", "single")
    }
    medians = ", ".join(f"`{name}` {every[len(every) // 2]:.0f} ms" for name, every in late.items())
    text = "always higher than dedicated, A's more than A+'s; A+ below a second"
    return [*found, Comparison("9–13", "latency: median over all cases of the p50", text, medians)]


def _between(folder: Path) -> Sequence[Comparison]:
    rows = results(folder, "overlap-inter")["rows"]
    found = []
    for kind, figure, paper in (
        ("M", "14, maps", "µSPE: +21 % beside Spark, +43 % beside Flink on average"),
        ("J", "14, joins", "µSPE: 20 times Spark, 2.6 times Flink on average"),
    ):
        for query in sorted({row["query"] for row in rows if row["query"].endswith(kind)}):
            rates = {
                row["engine"]: row.get("comparisons_per_second") or row["tuples_per_second"]
                for row in rows
                if row["query"] == query
            }
            native = max(rate for engine, rate in rates.items() if engine.startswith("spark"))
            ours = [
                f"{engine} {times(rate / native)}" for engine, rate in rates.items() if engine.startswith("tidegate")
            ]
            if "flink" in rates:
                ours.append(f"micro beside Flink {times(rates['tidegate-micro'] / rates['flink'])}")
            found.append(
                Comparison(figure, f"{query}: throughput beside native Spark's best form here", paper, ", ".join(ours))
            )
    return found


ENTRIES = (
    Entry(
        name="overlap-intra",
        paper=Paper.OVERLAP,
        covers="figures 9 to 13",
        shows="operators made of Aggregates beside dedicated ones, within one engine",
        kind=Kind.MEASURED,
        command=(
            *("benchmarks", "overlap-intra", "--tuples", "2000", "--runs", "1"),
            *("--span-seconds", "1", "--out", OUT),
        ),
        compare=_within,
        differs=(
            "`multi` is the paper's A+, `single` its A. Shares are of CPU seconds, in one process, on small inputs, "
            "so they scatter by tens of percents on a machine that is shared, also above 100 %. Ours lose less than "
            "Flink's where tuples are cheap, since batches go through the loops instead of tuples; the queries over "
            "laser scans (the Odroid's) are not run here."
        ),
        limit_seconds=260,
    ),
    Entry(
        name="overlap-inter",
        paper=Paper.OVERLAP,
        covers="figure 14",
        shows="an engine of one operator beside engines with all of them",
        kind=Kind.MEASURED,
        command=(
            *("benchmarks", "overlap-inter", "--of", "LLM,LLJ", "--tuples", "20000", "--runs", "1"),
            *("--engines", "spark-hdfs,flink,tidegate-local,tidegate-micro", "--out", OUT),
        ),
        compare=_between,
        differs=(
            "Two of the twelve queries, on a tenth of the benchmark's input. Our engine of one operator has its "
            "processes' work in Python, where Spark has built-in expressions for the maps, so a map can be slower "
            "than Spark's; latency is not compared."
        ),
        limit_seconds=150,
    ),
)
