"""A day of load on up to 1,000 instances, and how long it takes to simulate."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from figures.draw import BLUE, GREY, ORANGE, PURPLE, RED, Line, Panel, Picture, save
from figures.report import Page, Table, note, write_page
from lab.merits import Merits, merits
from lab.network import Run, one, simulate
from tidegate.control.controller import Controller, Limits
from tidegate.control.controllers import CONTROLLERS, RECOMMENDED
from tidegate.control.controllers.thresholds import Thresholds
from tidegate.control.rules import Rule
from tidegate.simulate.loads import DAY_SECONDS, DayLoad
from tidegate.simulate.model import Noise, ReconfigurationCost, SubqueryModel, ZipfKeys
from tidegate.simulate.run import SimulationSettings

MOST = 1_000
TUPLES_PER_INSTANCE = 1_000.0
TARGET_SECONDS = 0.5
PERIOD_SECONDS = 10.0
LATE_SECONDS = 60.0
SHARDS = 4_096


@dataclass(frozen=True, slots=True)
class Simulated:
    """A run, its merits and the seconds it took."""

    run: Run
    merits: Merits
    seconds: float


def play(controller: Controller, *, seconds: float = DAY_SECONDS, most: int = MOST, keyed: bool = False) -> Simulated:
    """A day between a tenth and 0.7 of what all instances carry, instances 60 s late, 1 % noise in all observations."""
    subquery = SubqueryModel(
        "subquery",
        1 / TUPLES_PER_INSTANCE,
        keys=ZipfKeys(1_000_000, 0.3) if keyed else None,
        shards=SHARDS,
        cost=ReconfigurationCost(0.1, start_seconds=LATE_SECONDS),
    )
    peak = 0.7 * most * TUPLES_PER_INSTANCE
    network = one(subquery, DayLoad(peak / 7, peak), noise=Noise(0.01, 0.01, 0.01, 0.01, 1.0))
    limits = Limits(1, most)
    rule = Rule(controller, limits, cooldown_seconds=LATE_SECONDS + PERIOD_SECONDS)
    begun = time.perf_counter()
    run = simulate(network, rule, SimulationSettings(seconds, start=max(most // 4, 1), period_seconds=PERIOD_SECONDS))
    took = time.perf_counter() - begun
    return Simulated(run, merits(run, TARGET_SECONDS, limits), took)


def draw(out: Path, *, seconds: float = DAY_SECONDS, most: int = MOST) -> list[Path]:
    """Simulate the day and write its picture and page."""
    runs = {}
    for name, controller, keyed in (
        (RECOMMENDED, CONTROLLERS[RECOMMENDED](), False),
        ("thresholds", Thresholds(), False),
        (f"thresholds, keys on {SHARDS:,} shards", Thresholds(), True),
    ):
        runs[name] = play(controller, seconds=seconds, most=most, keyed=keyed)
        note(f"{name}: {seconds:,.0f} s in {runs[name].seconds:.1f} s")
    drawn = [_picture(next(iter(runs)), next(iter(runs.values())).run, out / "day.png")]
    rows = [
        (
            name,
            f"{each.seconds:.1f}",
            f"{int(each.run.instances.max()):,}",
            f"{each.merits.instance_seconds / 3600:,.0f}",
            f"{each.merits.late_tuples:.3%}",
            each.merits.oscillations,
            each.merits.changes,
        )
        for name, each in runs.items()
    ]
    head = (
        "controller",
        "wall time, s",
        "most instances",
        "instance-hours",
        "tuples above 0.5 s",
        "oscillations",
        "changes",
    )
    page = Page(
        f"A day with up to {most:,} instances",
        f"{seconds:,.0f} s in ticks of 1 s, a decision every {PERIOD_SECONDS:g} s; instances come {LATE_SECONDS:g} s "
        "late, and a change stops the subquery for 0.1 s. "
        "The day must take less than a minute to simulate.",
        drawn,
        [Table("What the day took and cost, on this machine", head, rows)],
        (
            f"An instance completes {TUPLES_PER_INSTANCE:,.0f} tuples/s; the load goes from a tenth to 0.7 of what all of "
            "them carry. Arrivals are Poisson and everything observed is 1 % off.",
            "After a change nothing is decided until one whole period with the new instances has been seen: a new order "
            "before they are there would replace the old one and wait anew.",
            f"With keys: a million, Zipf 0.3, on {SHARDS:,} shards that are balanced as well.",
        ),
    )
    return [*drawn, write_page(page, out / "day.md")]


def _picture(name: str, run: Run, path: Path) -> Path:
    hours, history = run.times / 3600, run.only
    needed = run.entering / TUPLES_PER_INSTANCE
    panels = (
        Panel(
            "tuples/s",
            (Line("offered", hours, run.entering, GREY, width=2.4), Line("processed", hours, run.processed, BLUE)),
        ),
        Panel(
            "instances",
            (
                Line("instances", hours, run.instances, PURPLE, steps=True),
                Line("load / capacity of one", hours, needed, ORANGE, width=0.8),
            ),
        ),
        Panel("utilisation", (Line("average", hours, history.utilisation, BLUE, width=0.8),), top=1.05, height=1.4),
        Panel(
            "latency, s",
            (Line("mean latency", hours, np.maximum(run.latency, 1e-5), RED, width=0.8),),
            levels=(("target", TARGET_SECONDS),),
            log=True,
            height=1.4,
        ),
    )
    return save(Picture(f"A simulated day, controller: {name}", panels, "time, h"), path)
