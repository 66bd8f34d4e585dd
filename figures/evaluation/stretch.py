"""STRETCH: figures 6 to 13 and 16 to 19, and table 4 (§8 and appendix F)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from figures.evaluation.entry import OUT, Comparison, Entry, Kind, Paper
from figures.evaluation.reading import claims, count, results, times
from figures.report import read_tables

GAINS = {"wordcount": "+17 %", "paircount-l": "+137 %", "paircount-m": "+237 %", "paircount-h": "+283 %"}
"""The throughput of STRETCH beside Flink's, by the copies of a tuple that shared-nothing parallelism makes."""


def _beside(name: str) -> Callable[[Path], Sequence[Comparison]]:
    def compare(folder: Path) -> Sequence[Comparison]:
        made = results(folder, name)
        rates = {row["engine"]: row["tuples_per_second"] for row in made["rows"]}
        found = [Comparison("6", f"{name}: beside shared-nothing Flink", GAINS[name], "Flink was not installed")]
        if "flink" in rates:
            ratio = rates["tidegate-local"] / rates["flink"]
            found = [Comparison("6", f"{name}: beside shared-nothing Flink", GAINS[name], times(ratio))]
        ratio = made["ratios"]["tidegate-local/spark"]
        rate = f"{count(rates['tidegate-local'])} tuples/s"
        return [*found, Comparison("6", f"{name}: beside native Spark", "not compared", f"{times(ratio)}; {rate}")]

    return compare


def _forward(folder: Path) -> Sequence[Comparison]:
    rows = results(folder, "forward")["rows"]
    rates = " → ".join(
        count(row["tuples_per_second"]) if row["tuples_per_second"] else "none sustained" for row in rows
    )
    late = [f"{row['at_share']['p50_ms']:.0f} / {row['at_share']['p99_ms']:.0f} ms" for row in rows if row["at_share"]]
    instances = ", ".join(str(row["copies"]) for row in rows)
    return [
        Comparison(
            "7",
            f"tuples/s with {instances} instances, each handing out every tuple",
            "about 120 k → 100 k tuples/s with more threads; Flink 40 k → 2 k",
            rates,
        ),
        Comparison("7", "latency (p50 / p99 at half of that rate)", "below 30 ms; Flink above 100 ms", ", ".join(late)),
    ]


def _scalejoin(folder: Path) -> Sequence[Comparison]:
    made = results(folder, "scalejoin")
    rates = {row["engine"]: row["comparisons_per_second"] for row in made["rows"]}
    ratios = made["ratios"]
    found = [
        Comparison(
            "8",
            "one thread, against a single-threaded implementation",
            "about the same throughput as 1T",
            (
                f"{times(ratios['tidegate-local-1/bare-loop'])} of the bare loop, {count(rates['tidegate-local-1'])} "
                "comparisons/s"
            ),
        ),
        Comparison(
            "8",
            "more threads",
            "grows linearly with the threads",
            f"two threads: {times(rates['tidegate-local'] / rates['tidegate-local-1'])} one, "
            f"{count(rates['tidegate-local'])} comparisons/s",
        ),
    ]
    spent = {row["engine"]: row["comparisons_per_cpu_second"] for row in made["rows"]}
    shares = ", ".join(
        f"{name} {spent[engine] / spent['bare-loop']:.0%}"
        for name, engine in (("one thread", "tidegate-local-1"), ("two threads", "tidegate-local"))
    )
    found.append(Comparison("8", "comparisons a CPU second, of the bare loop's", "not in the text", shares))
    below = made["under_load"]["at_share"]
    ours = "no rate was sustained"
    if below is not None:
        highest = count(made["under_load"]["tuples_per_second"])
        ours = f"p50 {below['p50_ms']:.0f} ms, p99 {below['p99_ms']:.0f} ms at 70 % of {highest} tuples/s"
    return [*found, Comparison("8", "latency under load", "in the order of 10 ms above ScaleJoin's", ours)]


def _reconfigure(folder: Path) -> Sequence[Comparison]:
    rows = results(folder, "reconfigure")["rows"]
    shown = ", ".join(
        f"{row['engine'].split()[-1]}: {row['p50_ms']:.1f} ms, at most {row['max_ms']:.0f}" for row in rows
    )
    moved = sum(row["state_bytes_moved"] for row in rows)
    few = [row for row in rows if row["changes"] >= 100]
    least = max(row["p50_ms"] for row in few)
    return [
        Comparison(
            "9",
            "time of a reconfiguration under 70 % load, median",
            "below 40 ms; 30 → 52 threads in about 12 ms",
            shown,
        ),
        Comparison("9", "the slowest of the medians up to 4 instances", "below 40 ms", f"{least:.1f} ms"),
        Comparison("9", "state moved", "none, threads share it", f"{moved} bytes"),
    ]


def _phases(folder: Path) -> Sequence[Comparison]:
    page = folder / "stretch.md"
    tables = read_tables(page)
    threads = next(rows for title, rows in tables.items() if title.startswith("Table 4"))
    means = next(rows for title, rows in tables.items() if title.startswith("Means over"))
    ups = ", ".join(f"{start}: {ours} ({paper})" for start, paper, ours, _, _ in threads if ours != "–")
    downs = ", ".join(f"{start}: {ours} ({paper})" for start, _, _, paper, ours in threads if ours != "–")
    others = "; ".join(
        f"{name}: {changes} changes, mean {mean} ms, longest spike {spike} s"
        for name, changes, _, mean, _, spike in means
    )
    return [
        Comparison("table 4", "threads after a rise to 120 %, from: ours (the paper's)", "in brackets", ups),
        Comparison("table 4", "threads after a fall to 30 %, from: ours (the paper's)", "in brackets", downs),
        *claims(page, {"threads follow": "11", "latency": "11", "spikes": "11", "gradual": "12"}),
        Comparison(
            "16–19", "five other sequences of phases", "more runs of the same kind, without figures in the text", others
        ),
    ]


def _live(folder: Path) -> Sequence[Comparison]:
    rows = next(iter(read_tables(folder / "live_stretch.md").values()))
    figures = {"Q4": "10", "Q5": "11", "Q6": "13"}
    return [
        Comparison(
            figures[what],
            f"{what}: latency and threads",
            paper,
            f"{changes} changes, the longest {longest}; mean latency {latency}; {seconds} thread-seconds; pairs: {pairs}",
        )
        for what, paper, changes, longest, latency, seconds, pairs in rows
    ]


def _counting(name: str, tuples: int, limit_seconds: float, differs: str) -> Entry:
    batch, per_second = str(tuples // 2), str(max(tuples // 200, 10))
    sizes = ("--tuples", str(tuples), "--batch-rows", batch, "--tuples-per-second", per_second, "--runs", "1")
    return Entry(
        name=f"stretch-{name}",
        paper=Paper.STRETCH,
        covers=f"figure 6, {name}",
        shows="one copy of a tuple for all its keys, beside a copy for each",
        kind=Kind.MEASURED,
        command=("benchmarks", name, *sizes, "--engines", "tidegate-local,spark-rocksdb,flink", "--out", OUT),
        compare=_beside(name),
        differs=differs,
        limit_seconds=limit_seconds,
    )


ENTRIES = (
    _counting(
        "wordcount",
        50_000,
        110,
        "The paper compares with Flink 1.6 on 36 cores; ours is beside native Spark, and beside Flink where `make "
        "peers` could install it. The input is small, so fixed costs of a micro-batch weigh on Spark's side; the "
        "larger runs in the README have less of that.",
    ),
    _counting("paircount-l", 20_000, 100, "As above. More copies make the distance greater, as in the paper."),
    _counting(
        "paircount-h",
        4_000,
        120,
        "As above, on a very small input: native Spark makes every pair of words of a tweet a row of its own, and "
        "takes minutes on more. `paircount-m` lies between the two and is left out for its time.",
    ),
    Entry(
        name="stretch-forward",
        paper=Paper.STRETCH,
        covers="figure 7",
        shows="the cost of sharing and ordering tuples alone",
        kind=Kind.MEASURED,
        command=("benchmarks", "forward", "--span-seconds", "2", "--out", OUT),
        compare=_forward,
        differs=(
            "Ours works on batches of a millisecond, the paper's tuple by tuple, so rates are not of one kind. Ours "
            "falls faster with instances, since here n instances hand out n copies and share two cores. Spans are two "
            "seconds, so the rates are coarse."
        ),
        limit_seconds=200,
    ),
    Entry(
        name="stretch-scalejoin",
        paper=Paper.STRETCH,
        covers="figure 8",
        shows="all pairs within the window, against a bare loop",
        kind=Kind.MEASURED,
        command=("benchmarks", "scalejoin", "--tuples", "60000", "--runs", "2", "--span-seconds", "5", "--out", OUT),
        compare=_scalejoin,
        differs=(
            "Windows hold 30,000 tuples a side instead of five minutes of them, and there are two cores, so linear "
            "growth is seen from one thread to two only. The bare loop writes nothing and merges nothing."
        ),
        limit_seconds=120,
    ),
    Entry(
        name="stretch-reconfigure",
        paper=Paper.STRETCH,
        covers="figure 9",
        shows="how long a change of instances takes",
        kind=Kind.MEASURED,
        command=("benchmarks", "reconfigure", "--out", OUT),
        compare=_reconfigure,
        differs=(
            "The workload is a count by key, not a join. From 8 instances on there are many more threads than cores, "
            "and what is timed is mostly their waiting for a core. The paper's coefficient of variation of the load "
            "(right side of figure 9) is not measured here."
        ),
        limit_seconds=110,
    ),
    Entry(
        name="stretch-phases",
        paper=Paper.STRETCH,
        covers="table 4, figures 11, 12 and 16 to 19",
        shows="one reconfiguration, and phases of random rates on up to 72 threads",
        kind=Kind.SIMULATED,
        command=("figures", "stretch", "--out", OUT),
        compare=_phases,
        differs=(
            "Going down, the paper rounds the number of threads down and so exceeds its own target of 70 %; ours "
            "rounds up. The phases are drawn at random in the paper too, so ours are others. The cost of a comparison "
            "is chosen so that 8,000 tuples/s need most of 72 threads; the paper prints none."
        ),
        limit_seconds=40,
        picture="stretch-phases.png",
    ),
    Entry(
        name="stretch-live",
        paper=Paper.STRETCH,
        covers="figures 10, 11 and 13, live",
        shows="joins that are resized under load, on as many threads as there are cores",
        kind=Kind.LIVE,
        command=("figures", "live_stretch", "--out", OUT),
        compare=_live,
        differs=(
            "Windows and phases are a hundredth to a tenth of the paper's, threads are at most the cores there are, "
            "and the trades are generated, as the exchange's data is not public. Latency is worse than the paper's "
            "where the load asks for more than the cores of this machine can give at that moment."
        ),
        limit_seconds=150,
        picture="live_stretch-q5.png",
    ),
)
