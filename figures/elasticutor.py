"""Elasticutor's micro-benchmark (§5.1): four paradigms under ω key shuffles a minute; and its scheduling times (§5.4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from sys import stderr
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benchmarks import scheduling
from benchmarks.options import Options
from figures import paradigms
from figures.cores import Cores, Floats
from figures.draw import BLUE, GREY, ORANGE, RED, Line, Panel, Picture, save
from figures.paradigms import ExecutorCentric, Paradigm, ResourceCentric, Static
from figures.report import NOT_GIVEN, Page, Table, note, write_page
from tidegate.simulate.model import ZipfKeys, shard_shares

OFFERED = 180_000.0
SECONDS, WARM_SECONDS, TICK_SECONDS, DECIDE_SECONDS = 150.0, 30.0, 0.1, 1.0
BUFFER_TUPLES = 1_000.0
UPSTREAM_SECONDS = 1.0
OMEGAS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
SHOWN_OMEGA = 2.0
NEAR = 0.95
"""The share of the offered load below which a second counts as degraded."""

PARADIGMS: dict[str, tuple[Callable[[], Paradigm], str]] = {
    "static": (Static, GREY),
    "resource-centric": (ResourceCentric, RED),
    "naive executor-centric": (lambda: ExecutorCentric(naive=True), ORANGE),
    "executor-centric": (lambda: ExecutorCentric(naive=False), BLUE),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One paradigm under one ω: a value per second, and means after the warm-up."""

    paradigm: str
    omega: float
    times: Floats
    throughput: Floats
    waiting: Floats
    state_mb_per_second: float
    remote_mb_per_second: float

    @property
    def mean_throughput(self) -> float:
        return float(self.throughput[self._warm].mean())

    @property
    def mean_latency(self) -> float:
        """By Little's law over the whole time: tuples inside and upstream over tuples per second."""
        held = float(self.waiting[self._warm].sum() / self.throughput[self._warm].sum())
        return held + 1 / paradigms.TUPLES_PER_CORE

    @property
    def degraded_seconds(self) -> float:
        """Seconds below 95 % of the offered load after a shuffle, on average."""
        degraded = int((self.throughput[self._warm] < NEAR * OFFERED).sum())
        shuffles = self.omega / 60.0 * (self.times[-1] - WARM_SECONDS)
        return degraded / shuffles if shuffles else float(degraded)

    @property
    def _warm(self) -> slice:
        return slice(min(round(WARM_SECONDS), len(self.times) // 2), None)


def play(paradigm: Paradigm, omega: float, *, seconds: float = SECONDS, seed: int = 1) -> Outcome:
    """Run a paradigm under ω shuffles a minute."""
    keys = ZipfKeys(shuffles_per_minute=omega, seed=seed)
    cores = Cores(paradigms.CORES, paradigm.first(), paradigms.TUPLES_PER_CORE, BUFFER_TUPLES)
    ticks, per_decision = round(seconds / TICK_SECONDS), round(DECIDE_SECONDS / TICK_SECONDS)
    done, inside = np.zeros(ticks), np.zeros(ticks)
    seen, upstream, remote, era = np.zeros(paradigms.SHARDS), 0.0, [], -1
    shares: Floats = seen
    for index in range(ticks):
        now = index * TICK_SECONDS
        if keys.era(now) != era:
            era = keys.era(now)
            shares = shard_shares(keys, paradigms.SHARDS, era)
        if index and index % per_decision == 0 and seen.sum() > 0:
            loads = seen / DECIDE_SECONDS
            remote.append(paradigm.remote(loads, cores))
            paradigm.decide(now, loads, cores)
            seen = np.zeros(paradigms.SHARDS)
        waiting = upstream + OFFERED * TICK_SECONDS
        came, completed = cores.tick(now, TICK_SECONDS, waiting, shares)
        upstream = min(waiting - came, OFFERED * UPSTREAM_SECONDS)
        seen = seen + came * shares
        done[index], inside[index] = completed / TICK_SECONDS, cores.waiting + upstream
    every = round(1 / TICK_SECONDS)
    throughput, held = done.reshape(-1, every).mean(axis=1), inside.reshape(-1, every).mean(axis=1)
    times = np.arange(1, len(throughput) + 1, dtype=np.float64)
    moved = paradigm.state_bytes / seconds / 1e6
    return Outcome(paradigm.name, omega, times, throughput, held, moved, float(np.mean(remote)) / 1e6)


def compare(omegas: Sequence[float] = OMEGAS, *, seconds: float = SECONDS) -> dict[str, list[Outcome]]:
    """All paradigms under all ω."""
    found: dict[str, list[Outcome]] = {name: [] for name in PARADIGMS}
    for omega in omegas:
        for name, (make, _) in PARADIGMS.items():
            found[name].append(play(make(), omega, seconds=seconds))
    return found


def scheduling_rows() -> list[dict[str, Any]]:
    """The rows of the scheduling benchmark, timed now on this machine."""
    with TemporaryDirectory() as folder, redirect_stdout(stderr):
        scheduling.run(Options(out=Path(folder)))
        rows: list[dict[str, Any]] = json.loads((Path(folder) / "scheduling.json").read_text())["rows"]
    return rows


def draw(out: Path, *, omegas: Sequence[float] = OMEGAS, seconds: float = SECONDS) -> list[Path]:
    """Simulate figures 6 and 7 with the naive scheduler beside, time the scheduler, and write pictures and page."""
    note("paradigms under key shuffles")
    found = compare(omegas, seconds=seconds)
    drawn = [_by_omega(found, out / "elasticutor-shuffles.png"), _over_time(found, out / "elasticutor-throughput.png")]
    note("scheduling times")
    page = Page(
        "Elasticutor, §5: paradigms under key shuffles, and scheduling times",
        f"{paradigms.NODES} nodes of {paradigms.CORES_A_NODE} cores, 1 ms and 128 B a tuple, 10,000 keys, Zipf 0.5, 32 KB "
        f"a shard, 256 shards for each of {paradigms.EXECUTORS} executors; {OFFERED:,.0f} tuples/s are offered.",
        drawn,
        [_claims(found), _figures(found), _scheduling(scheduling_rows())],
        (
            "Resource-centric: a repartition takes T = drain + m·s + b/β with all sources paused; s = 2 ms · 10^2.5 = 0.63 "
            "s (the text: two to three orders of magnitude above 2 ms), m the most shards that one executor gives away, b "
            "the bytes leaving the busiest node, β = 1 Gb/s. The drain is simulated.",
            "Executor-centric: each shard in turn takes T = queue of its core + 2 ms + b/β, b = 0 inside a node; nothing "
            "else stops. Cores: queueing model over executors, then algorithm 1, or any spare core if naive.",
            "All balance to δ ≤ θ = 1.2 with the minimal-movement rule, once a second (the text does not say how often).",
            f"A core's queue holds {BUFFER_TUPLES:,.0f} tuples, a full one stops the sources, and {UPSTREAM_SECONDS:g} s of "
            "load can wait upstream. Latency is all that waits over what is completed (Little), plus 1 ms; queueing by "
            "chance is left out. The static latency is therefore that of the upstream queue.",
            "The resource-centric transients are shorter than the paper's: ours has no cost of processes, of the JVM or of "
            "routing tables beyond s, which the text gives per shard only.",
            "Not reproduced: the stock exchange data of figure 16 and tables 2 and 3 (not public); their rates are shown "
            "beside those of the micro-benchmark, which moves other amounts. Figures 10 to 13 are left out.",
        ),
    )
    return [*drawn, write_page(page, out / "elasticutor.md")]


def _line(name: str, x: ArrayLike, y: ArrayLike, marker: str = "") -> Line:
    """A paradigm's curve; the naive one is broader, as the optimised one often lies upon it."""
    return Line(name, x, y, PARADIGMS[name][1], width=3.6 if "naive" in name else 1.3, marker=marker)


def _by_omega(found: dict[str, list[Outcome]], path: Path) -> Path:
    def lines(value: Callable[[Outcome], float]) -> list[Line]:
        return [
            _line(name, [max(each.omega, 0.5) for each in rows], [value(each) for each in rows], marker="o")
            for name, rows in found.items()
        ]

    panels = (
        Panel("tuples/s", lines(lambda each: each.mean_throughput), levels=(("offered", OFFERED),), title="throughput"),
        Panel("latency, ms", lines(lambda each: each.mean_latency * 1e3), log=True, title="mean latency"),
        Panel(
            "MB/s",
            [line for line in lines(lambda each: each.state_mb_per_second) if line.label != "static"],
            title="state moved between nodes",
            height=1.5,
        ),
    )
    ticks = tuple(each.omega for each in found["static"] if each.omega > 0)
    title = "Paradigms under ω key shuffles a minute (figure 6)"
    names = ("0", *(f"{tick:g}" for tick in ticks))
    axis = "key shuffles a minute, ω"
    return save(Picture(title, panels, axis, x_log=True, ticks=(0.5, *ticks), tick_names=names), path)


def _over_time(found: dict[str, list[Outcome]], path: Path) -> Path:
    shown = {name: min(rows, key=lambda each: abs(each.omega - SHOWN_OMEGA)) for name, rows in found.items()}
    omega = shown["static"].omega
    panels = [
        Panel(
            "tuples/s",
            [_line(name, each.times, each.throughput) for name, each in shown.items()],
            levels=(("offered", OFFERED),),
            height=2.6,
        ),
        Panel(
            "tuples waiting",
            [_line(name, each.times, np.maximum(each.waiting, 1.0)) for name, each in shown.items()],
            log=True,
        ),
    ]
    last = float(shown["static"].times[-1])
    shuffles = [(60 * n / omega, "") for n in range(1, int(last * omega / 60) + 1)] if omega else []
    return save(Picture(f"Throughput second by second, ω = {omega:g} (figure 7)", panels, dividers=shuffles), path)


def _claims(found: dict[str, list[Outcome]]) -> Table:
    shown = {name: min(rows, key=lambda each: abs(each.omega - SHOWN_OMEGA)) for name, rows in found.items()}
    last = {name: rows[-1] for name, rows in found.items()}
    first = {name: rows[0] for name, rows in found.items()}
    static, central = "static", "resource-centric"
    naive, elastic = "naive executor-centric", "executor-centric"

    def loss(name: str) -> str:
        lost = max(1 - last[name].mean_throughput / first[name].mean_throughput, 0.0)
        before, after = first[name].mean_latency * 1e3, last[name].mean_latency * 1e3
        return f"{lost:.1%} (latency {before:,.1f} → {after:,.1f} ms)"

    return Table(
        "Ours beside the paper's text",
        ("what", "the paper's text", "ours"),
        (
            (
                "static",
                "poor, because of the skew, but stable over ω",
                f"{min(each.mean_throughput for each in found[static]):,.0f} to "
                f"{max(each.mean_throughput for each in found[static]):,.0f} tuples/s of {OFFERED:,.0f}",
            ),
            (
                "small ω",
                "resource-centric and Elasticutor considerably better than static",
                ", ".join(f"{name} {first[name].mean_throughput:,.0f}" for name in found),
            ),
            (
                f"from ω = {first[static].omega:g} to {last[static].omega:g}",
                "Elasticutor loses marginally, resource-centric 2–3 orders of magnitude more; useless at 16",
                f"executor-centric loses {loss(elastic)}, resource-centric {loss(central)}: "
                f"{last[central].mean_throughput:,.0f} tuples/s, where static has {last[static].mean_throughput:,.0f}",
            ),
            (
                f"degraded after a shuffle, ω = {shown[static].omega:g}",
                "resource-centric 10 to 20 s, Elasticutor 1 to 3 s",
                f"resource-centric {shown[central].degraded_seconds:.1f} s, executor-centric "
                f"{shown[elastic].degraded_seconds:.1f} s (seconds below 95 % of the load)",
            ),
            (
                "naive scheduler",
                "small gap to Elasticutor in performance (figure 16, other workload)",
                f"{last[naive].mean_throughput:,.0f} against {last[elastic].mean_throughput:,.0f} tuples/s at ω = "
                f"{last[naive].omega:g}",
            ),
            (
                "state moved by naive / optimised",
                "13.9 / 2.4 MB/s, 5× (table 2, other workload)",
                f"{last[naive].state_mb_per_second:.2f} / {last[elastic].state_mb_per_second:.2f} MB/s at ω = "
                f"{last[naive].omega:g}, {shown[naive].state_mb_per_second:.2f} / {shown[elastic].state_mb_per_second:.2f} "
                f"at ω = {shown[naive].omega:g}",
            ),
            (
                "data to remote cores by naive / optimised",
                "235.3 / 21.6 MB/s, 10× (table 2, other workload)",
                f"{shown[naive].remote_mb_per_second:.1f} / {shown[elastic].remote_mb_per_second:.1f} MB/s at "
                f"ω = {shown[naive].omega:g}",
            ),
        ),
    )


def _figures(found: dict[str, list[Outcome]]) -> Table:
    return Table(
        "All runs",
        ("paradigm", "ω", "tuples/s", "mean latency, ms", "degraded s a shuffle", "state MB/s", "remote data MB/s"),
        [
            (
                each.paradigm,
                f"{each.omega:g}",
                f"{each.mean_throughput:,.0f}",
                f"{each.mean_latency * 1e3:,.1f}",
                f"{each.degraded_seconds:.1f}" if each.omega else "–",
                f"{each.state_mb_per_second:.2f}",
                f"{each.remote_mb_per_second:.1f}",
            )
            for rows in found.values()
            for each in rows
        ],
    )


def _scheduling(rows: Sequence[dict[str, Any]]) -> Table:
    return Table(
        "Table 3: time to schedule, on this machine",
        (
            "nodes of 8 cores",
            "cells",
            "paper, ms",
            "ours, ms (median)",
            "of it the model",
            "assignment",
            "least – most",
        ),
        [
            (
                f"{row['nodes']:,}",
                f"{row['cells']:,}",
                row.get("paper_ms", NOT_GIVEN),
                f"{row['both_ms']:.2f}",
                f"{row['model_ms']:.2f}",
                f"{row['assign_ms']:.2f}",
                f"{row['spread'][0]:.2f} – {row['spread'][1]:.2f}",
            )
            for row in rows
        ],
    )
