"""Gedik et al.: figures 5 to 8, of the applications (§7.2), and 9 to 19, of the micro-benchmarks (appendix B)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from figures.evaluation.entry import OUT, Comparison, Entry, Kind, Paper
from figures.evaluation.reading import claims, count, results, times
from figures.report import read_tables

APPLICATIONS = {
    "bargain_index": ("5", "Finance", "3.1× with the best fixed number of channels, 3.6× elastic"),
    "twitter": ("6", "Twitter", "about 12× with 16 channels, about 10× elastic with 22"),
    "pagerank": ("7", "PageRank", "about 6.5× with 16 channels, about 5× elastic with 27"),
    "network_monitoring": ("8", "network monitoring", "3.8× fixed, 2.8× elastic"),
}


def _applications(folder: Path) -> Sequence[Comparison]:
    rows = results(folder, "applications")["rows"]
    found = []
    for name, (figure, what, paper) in APPLICATIONS.items():
        one, two = (row for row in rows if row["application"] == name)
        cpu = " and ".join(count(row["tuples_per_cpu_second"]) for row in (one, two))
        ours = f"{times(two['speedup'])} with two instances; {cpu} tuples a CPU second with one and with two"
        found.append(Comparison(figure, f"{what}: speedup", paper, ours))
    return found


def _adaptation(folder: Path) -> Sequence[Comparison]:
    page = folder / "gedik.md"
    found = claims(
        page,
        {
            "channels by cost": "10, 12",
            "dear tuples": "9, 11",
            "sine load": "13, 14",
            "step load": "15, 16",
            "threshold 0": "17",
            "threshold 0.9": "18",
        },
    )
    moved = next(rows for title, rows in read_tables(page).items() if title.startswith("Keys that move"))
    shares = ", ".join(f"{channels}: {ten_thousand} (M/N is {paper})" for channels, paper, _, ten_thousand in moved)
    text = "the time is linear in the keys, falls with the channels, and flattens where the protocol's own cost is left"
    return [*found, Comparison("19", "share of 10,000 keys that a new channel takes over", text, shares)]


def _live(folder: Path) -> Sequence[Comparison]:
    rows = next(iter(read_tables(folder / "live_gedik.md").values()))
    return [
        Comparison(
            "13, 14" if what.startswith("sine") else "15, 16",
            what,
            paper,
            (
                f"{ours}; {behind}; latency {latency} (means of looks); the longest change took {longest}; every tuple "
                f"counted {once}"
            ),
        )
        for what, paper, ours, behind, latency, longest, once in rows
    ]


ENTRIES = (
    Entry(
        name="gedik-applications",
        paper=Paper.GEDIK,
        covers="figures 5 to 8",
        shows="the four applications, with more than one channel",
        kind=Kind.MEASURED,
        command=("benchmarks", "applications", "--of", ",".join(APPLICATIONS), "--runs", "1", "--out", OUT),
        compare=_applications,
        differs=(
            "The paper has 32 to 64 cores and up to 32 channels; here are two cores, so the most that can be had is 2×, and "
            "nothing is elastic. Functions in Python that take one tuple at a time hold the interpreter, and then a second "
            "instance brings little. Where a tuple costs little, as in Finance, two instances cost more CPU time for it "
            "than one. The inputs are generated."
        ),
        limit_seconds=120,
    ),
    Entry(
        name="gedik-adaptation",
        paper=Paper.GEDIK,
        covers="figures 9 to 19",
        shows="channels that settle, follow a sine and a step, and miss under wrong thresholds",
        kind=Kind.SIMULATED,
        command=("figures", "gedik", "--out", OUT),
        compare=_adaptation,
        differs=(
            "The controller is the paper's, the region is a model: the cost of cheap tuples that the paper's splitter "
            "adds in figures 9 and 11 and the sub-second spikes of figure 18 are not in it. Under a threshold of 0 "
            "ours does leave a level that brought nothing (rule P5), where the paper says that it never goes down. "
            "Figure 19's seconds are not in the text; in process no state moves at all (see STRETCH, figure 9)."
        ),
        limit_seconds=40,
        picture="gedik-step.png",
    ),
    Entry(
        name="gedik-live",
        paper=Paper.GEDIK,
        covers="figures 13 to 16, live",
        shows="the same controller on threads of this process",
        kind=Kind.LIVE,
        command=("figures", "live_gedik", "--out", OUT),
        compare=_live,
        differs=(
            "The paper's rates in a twentieth of its time; tuples wait as for a service, so that 16 threads add up on "
            "any number of cores. A busy machine delays the clock by which tuples are due, and shows as load that is "
            "not handled."
        ),
        limit_seconds=100,
        picture="live_gedik-step.png",
    ),
)
