"""StreamCloud: figures 14 to 21 and table I (§VI)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from figures.evaluation.entry import OUT, Comparison, Entry, Kind, Paper
from figures.evaluation.reading import claims, count, results, times
from figures.report import read_tables

OPERATORS = {
    "calls_map": ("Map", "230,000 tuples/s with 20 instances, 450,000 with 40"),
    "calls_aggregate": ("Aggregate, 60 s every 10 s", "200,000 tuples/s with 20 instances, 400,000 with 40"),
    "calls_join": ("Join of one number's calls", "almost doubles from 20 to 40 instances"),
    "calls_product": ("Cartesian product", "almost doubles, 2 G comparisons/s with 20 instances, 4 G with 40"),
}


def _strategies(folder: Path) -> Sequence[Comparison]:
    names = ("query-cloud", "operator-cloud", "operator-set")
    return claims(folder / "strategies.md", dict.fromkeys(names, "14, 15"))


def _operators(folder: Path) -> Sequence[Comparison]:
    rows = results(folder, "applications")["rows"]
    found = []
    for name, (what, paper) in OPERATORS.items():
        one, two = (row for row in rows if row["application"] == name)
        ours = (
            f"{count(one['tuples_per_second'])} tuples/s with one instance, {times(two['speedup'])} with two; "
            f"{count(one['tuples_per_cpu_second'])} per CPU second"
        )
        found.append(Comparison("16", what, paper, ours))
    return found


def _instances(folder: Path) -> Sequence[Comparison]:
    rows = results(folder, "cell-instances")["rows"]
    shown = ", ".join(f"{row['cells']} × {row['instances']}: {times(row['ratio'])}" for row in rows)
    return [
        Comparison(
            "18",
            "throughput by cells × instances, against 1 × 1",
            "linear in the instances of a node, up to its 4 cores",
            shown,
        )
    ]


def _moves(folder: Path) -> Sequence[Comparison]:
    row = results(folder, "move-state")["rows"][0]
    adopted = ", ".join(f"{name} {value:,}" for name, value in row["adopted"].items())
    quiet = row["ratio"]
    return [
        Comparison(
            "19",
            f"half of {count(row['state_bytes'])}B of windows to another cell",
            (
                "state recreation: grows linearly with the windows that move, all of which are sent; window "
                "recreation: as long as a window"
            ),
            (
                f"the first batch takes {'–' if quiet is None else times(quiet)} the time of its neighbours; adopted: "
                f"{adopted}"
            ),
        ),
        Comparison(
            "19",
            "data sent between instances",
            "linear in the windows (state recreation), none (window recreation)",
            (
                f"none: files are listed anew; the batch of the move put {times(row['put_ratio'])} the bytes of its "
                "neighbours"
            ),
        ),
    ]


def _elasticity(folder: Path) -> Sequence[Comparison]:
    page = folder / "streamcloud.md"
    table_one = next(rows for title, rows in read_tables(page).items() if title.startswith("Table I"))
    found = claims(
        page,
        {
            "average busy": "20",
            "20.a": "20.a",
            "20.b": "20.b",
            "individual": "21.a",
            "load-aware, up": "21.b",
            "load-aware, down": "21.c",
        },
    )
    return [
        *found,
        *(
            Comparison(
                "table I", f"{instances} instances: busy share, tuples/s", f"static {static}; elastic {elastic}", ours
            )
            for instances, static, elastic, ours in table_one
        ),
    ]


ENTRIES = (
    Entry(
        name="streamcloud-strategies",
        paper=Paper.STREAMCLOUD,
        covers="figures 14 and 15",
        shows="three ways to spread a query over instances",
        kind=Kind.COMPUTED,
        command=("figures", "strategies", "--out", OUT),
        compare=_strategies,
        differs=(
            "Not run: the compiler splits queries in the third way only, as the paper does, and the other two are "
            "there as prices in `explain`. The model gives channels and hops; shares of CPU and throughput would need "
            "a cluster and the two other compilers."
        ),
        limit_seconds=15,
    ),
    Entry(
        name="streamcloud-operators",
        paper=Paper.STREAMCLOUD,
        covers="figure 16",
        shows="the four operators over call records",
        kind=Kind.MEASURED,
        command=("benchmarks", "applications", "--of", ",".join(OPERATORS), "--runs", "1", "--out", OUT),
        compare=_operators,
        differs=(
            "The paper scales from 20 to 40 instances on 40 nodes; here are one and two threads on two cores, so what "
            "can be seen is what one instance does. A run includes starting and ending the query. Queue "
            "lengths and CPU usage over the load are not drawn."
        ),
        limit_seconds=90,
    ),
    Entry(
        name="streamcloud-instances",
        paper=Paper.STREAMCLOUD,
        covers="figure 18",
        shows="instances in a cell on Spark",
        kind=Kind.MEASURED,
        command=("benchmarks", "cell-instances", "--of", "paircount-l", "--runs", "1", "--out", OUT),
        compare=_instances,
        differs=(
            "The paper's nodes have four cores, ours has two, which Spark's own processes use as well; two cells on "
            "them are slower than one, as an exchange costs more than it gives. The workload counts pairs of words "
            "instead of joining calls."
        ),
        limit_seconds=150,
    ),
    Entry(
        name="streamcloud-moves",
        paper=Paper.STREAMCLOUD,
        covers="figure 19",
        shows="state that goes to another cell while the query runs on Spark",
        kind=Kind.MEASURED,
        command=(
            *("benchmarks", "move-state", "--tuples", "400000", "--of", "windows"),
            *("--engines", "tidegate-spark-df", "--out", OUT),
        ),
        compare=_moves,
        differs=(
            "State lies in files that every cell can read, so a move is another list of files, and what the new cell "
            "needs of them it reads, which the first batch pays for. One small size is measured, so nothing is said "
            "about how that grows with the windows; `move-state` without `--tuples` moves a gigabyte. The paper's "
            "times are only in its figure."
        ),
        limit_seconds=150,
    ),
    Entry(
        name="streamcloud-elasticity",
        paper=Paper.STREAMCLOUD,
        covers="figures 20 and 21, table I",
        shows="balancing under shifting keys, and provisioning under a ramp",
        kind=Kind.SIMULATED,
        command=("figures", "streamcloud", "--out", OUT),
        compare=_elasticity,
        differs=(
            "The imbalance thresholds, the periods and the slope of the load are not printed and are chosen here; we "
            "end at 26 instances where the paper has 27. Table I calibrates the model, so it confirms nothing. Going "
            "down takes 14 steps; the paper does not say how many it took."
        ),
        limit_seconds=40,
        picture="streamcloud-aware.png",
    ),
)
