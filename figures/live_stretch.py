"""STRETCH's elastic experiments, live at this machine's size: one reconfiguration (Q4), many (Q5), trades in bursts (Q6).

Every comparison is made: a join over all pairs that are near in time, on as many threads as there are cores. Times are a
hundredth to a tenth of the paper's, and rates are shares of what the threads of this machine sustain, which is measured
first.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidegate as tg
from figures.draw import Picture, save
from figures.live import TIME, Measured, Rows, cores, due, live_panels, watch, where
from figures.report import Page, Table, note, write_page
from tidegate.control.controller import Controller, Limits
from tidegate.control.controllers.predictive import Predictive
from tidegate.control.controllers.thresholds import Thresholds
from tidegate.control.rules import Rule
from tidegate.simulate.loads import ConstantLoad, Floats, Load, StepLoad, phases

PERIOD_SECONDS = 0.25
SEGMENT_ROWS = 2_000

Query = Callable[[tg.Stream, tg.Stream, bool], tg.Stream]
"""A join of two streams; the third says whether bands in its predicate may be served by sorting."""


@dataclass(frozen=True, slots=True)
class Join:
    """A join of two streams with the same load: their rows, windows of so many seconds, and the query."""

    left: Rows
    right: Rows
    window_seconds: float
    query: Query

    def over(self, left: object, right: object, bands: bool = False) -> tg.Stream:
        """The join over two sources."""
        sides = ((left, self.left, "left"), (right, self.right, "right"))
        first, second = (tg.stream(each, time="ts", schema=_schema(rows), name=name) for each, rows, name in sides)
        return self.query(first, second, bands)


@dataclass(frozen=True, slots=True)
class _Share:
    """A part of a load."""

    load: Load
    part: float

    def rate(self, times: Floats) -> Floats:
        return np.asarray(self.load.rate(times) * self.part)


@dataclass(frozen=True, slots=True)
class Bursts:
    """A rate that jumps, as trades do: a level drawn anew ten times a second around a mean that wanders, cut at a peak."""

    peak: float
    seconds: float
    seed: int

    def rate(self, times: Floats) -> Floats:
        random = np.random.default_rng(self.seed)
        steps = int(np.ceil(self.seconds * 10)) + 1
        wander = np.cumsum(random.normal(0, 0.25, steps))
        wander -= np.linspace(wander[0], wander[-1], steps)
        levels = np.exp(wander + random.normal(0, 0.45, steps))
        levels[:5] = levels.min()
        return np.asarray(self.peak * levels / levels.max())[np.minimum((times * 10).astype(int), steps - 1)]


def scalejoin(window_seconds: float) -> Join:
    """The benchmark of §8.3: |x - a| ≤ 10 and |y - b| ≤ 10 over uniform numbers from 1 to 10,000."""

    def left(random: np.random.Generator, rows: int) -> dict[str, pa.Array]:
        return {"x": pa.array(random.integers(1, 10_001, rows)), "y": pa.array(random.uniform(1, 10_000, rows))}

    def right(random: np.random.Generator, rows: int) -> dict[str, pa.Array]:
        return {"a": pa.array(random.integers(1, 10_001, rows)), "b": pa.array(random.uniform(1, 10_000, rows))}

    def near(l: Any, r: Any) -> Any:
        return (abs(l.x - r.a) <= 10) & (abs(l.y - r.b) <= 10)

    within = timedelta(seconds=window_seconds)
    return Join(
        left, right, window_seconds, lambda l, r, bands: l.join(r, within=within, where=near, bands=bands, name="join")
    )


def hedge(window_seconds: float) -> Join:
    """§8.6's pairs of trades of different companies whose distances from the average price are opposite."""

    def trades(random: np.random.Generator, rows: int) -> dict[str, pa.Array]:
        return {"id": pa.array(random.integers(0, 10, rows)), "nd": pa.array(random.normal(0, 0.02, rows))}

    def opposite(l: Any, r: Any) -> Any:
        return (l.id != r.id) & (r.nd / l.nd >= -1.05) & (r.nd / l.nd <= -0.95) & (abs(l.nd) > 0.06)

    within = timedelta(seconds=window_seconds)
    return Join(
        trades,
        trades,
        window_seconds,
        lambda l, r, bands: l.join(r, within=within, where=opposite, bands=bands, name="join"),
    )


@dataclass(frozen=True, slots=True)
class Played:
    """A live run of a join, and whether it found the pairs that a run with a fixed number of threads finds."""

    run: Measured
    pairs: int
    same: bool


def play(join: Join, load: Load, seconds: float, controller: Controller) -> Played:
    """Run a join under a load, half of it on either side, from one thread to as many as there are cores."""
    sent: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = [], []
    found: list[pa.Table] = []
    sources = (
        due(_Share(load, 0.5), seconds, rows, sent[side], seed=side + 1)
        for side, rows in enumerate((join.left, join.right))
    )
    run = watch(
        join.over(*map(tg.paced, sources)),
        Rule(controller, Limits(1, cores())),
        found.append,
        period_seconds=PERIOD_SECONDS,
        segment_rows=SEGMENT_ROWS,
    )
    again, _ = at_full_speed(join, sent, cores(), bands=True)
    return Played(run, again.num_rows, _sorted(pa.concat_tables(found)).equals(_sorted(again)))


def at_full_speed(
    join: Join, sent: Sequence[list[pa.RecordBatch]], instances: int, *, bands: bool = False
) -> tuple[pa.Table, float]:
    """All pairs of what was sent, found by a fixed number of threads, and the seconds it took."""
    found: list[pa.Table] = []
    began = time.perf_counter()
    tg.start(join.over(*sent, bands), to=found.append, instances=instances, segment_rows=SEGMENT_ROWS).wait()
    return pa.concat_tables(found), time.perf_counter() - began


def sustained(join: Join, rate: float = 30_000.0) -> float:
    """The comparisons a second of one thread, at work without a pause on batches as a load brings them."""
    seconds = 2 * join.window_seconds
    sent: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = [], []
    for side, rows in enumerate((join.left, join.right)):
        deque(due(_Share(ConstantLoad(rate), 0.5), seconds, rows, sent[side], seed=side + 1), maxlen=0)
    at_full_speed(join, sent, 1)  # compiles the loop
    return _comparisons(rate, join.window_seconds, seconds) / at_full_speed(join, sent, 1)[1]


def _comparisons(rate: float, window: float, seconds: float) -> float:
    """Pairs near in time of two streams of half the rate: one side against all within a window before it, and back."""
    half = rate / 2
    return 2 * half * half * (window * seconds - window * window / 2)


def highest_rate(comparisons: float, window_seconds: float) -> float:
    """The rate of both streams together at which full windows take so many comparisons a second."""
    return float(np.sqrt(2 * comparisons / window_seconds))


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def _schema(rows: Rows) -> pa.Schema:
    some = rows(np.random.default_rng(0), 1)
    return pa.schema([("ts", TIME), *((name, column.type) for name, column in some.items())])


Q4_WINDOW_SECONDS, Q4_STEP_SECONDS = 3.0, 8.0
Q5_WINDOW_SECONDS, Q5_SECONDS = 2.0, 26.0
Q5_PAPER_SECONDS, Q5_PAPER_MOST = 1_200.0, 8_000.0
Q6_WINDOW_SECONDS, Q6_SECONDS = 1.0, 24.0
THRESHOLDS = Thresholds(lower=0.45, target=0.7, upper=0.9, balancer=None)
PREDICTIVE = Predictive(lower=0.7, target_utilisation=0.75, upper=0.8)


def one_reconfiguration(comparisons: float) -> Played:
    """Q4: 70 % of the highest rate of one thread, then 120 %; then 30 % of what all threads sustain."""
    alone = highest_rate(comparisons, Q4_WINDOW_SECONDS)
    every = highest_rate(cores() * comparisons, Q4_WINDOW_SECONDS)
    load = StepLoad(tuple((Q4_STEP_SECONDS, rate) for rate in (0.7 * alone, 1.2 * alone, 0.3 * every)), repeats=False)
    return play(scalejoin(Q4_WINDOW_SECONDS), load, load.seconds, THRESHOLDS)


def many_reconfigurations(comparisons: float) -> Played:
    """Q5: the paper's kind of phases in less time, up to 85 % of the highest rate of all threads."""
    most = 0.85 * highest_rate(cores() * comparisons, Q5_WINDOW_SECONDS)
    return play(scalejoin(Q5_WINDOW_SECONDS), q5_load(most), Q5_SECONDS, PREDICTIVE)


def q5_load(most: float) -> StepLoad:
    """Phases of §8.5, their twenty minutes in `Q5_SECONDS` and their 8,000 tuples/s as the rate given."""
    faster = Q5_PAPER_SECONDS / Q5_SECONDS
    levels = phases(5, total_seconds=Q5_PAPER_SECONDS).levels
    return StepLoad(tuple((seconds / faster, rate / Q5_PAPER_MOST * most) for seconds, rate in levels))


def bursts(comparisons: float) -> Played:
    """Q6: trades that come in bursts."""
    peak = 1.2 * highest_rate(cores() * comparisons, Q6_WINDOW_SECONDS)
    return play(hedge(Q6_WINDOW_SECONDS), Bursts(peak, Q6_SECONDS, seed=6), Q6_SECONDS, PREDICTIVE)


def draw(out: Path) -> list[Path]:
    """Measure what a thread sustains, run the three, and write their pictures and the page."""
    note("what one thread sustains")
    near, opposite = sustained(scalejoin(Q4_WINDOW_SECONDS)), sustained(hedge(Q6_WINDOW_SECONDS))
    played: dict[str, tuple[str, Played]] = {}
    for name, title, run in (
        ("q4", "One reconfiguration up and one down (figure 10)", lambda: one_reconfiguration(near)),
        ("q5", "Phases of random rates (figure 11)", lambda: many_reconfigurations(near)),
        ("q6", "Trades in bursts (figure 13)", lambda: bursts(opposite)),
    ):
        note(title)
        played[name] = title, run()
    drawn = [
        save(Picture(f"{title}: {where()}", live_panels(each.run)), out / f"live_stretch-{name}.png")
        for name, (title, each) in played.items()
    ]
    page = Page(
        "Live: STRETCH, §8.4 to §8.6, in one process",
        f"Joins over all pairs near in time on 1 to {cores()} threads, under controllers that look every "
        f"{PERIOD_SECONDS:g} s. Measured, not simulated; the simulated counterparts, at the paper's size, are in "
        "[stretch.md](stretch.md).",
        drawn,
        [_table(played)],
        (
            f"One thread makes {near / 1e9:.1f} G comparisons a second of the benchmark of §8.3 and {opposite / 1e9:.1f} G "
            "of the hedge predicate, measured first on batches as the load brings them; rates are shares of what that "
            "sustains.",
            f"Windows are {Q4_WINDOW_SECONDS:g}, {Q5_WINDOW_SECONDS:g} and {Q6_WINDOW_SECONDS:g} s, where the paper has 5 "
            "minutes, 1 minute and 30 s; phases are 2 to 7 s, where it has 100 to 300 s.",
            "Q4 has the paper's thresholds of 45, 70 and 90 %. Q5 and Q6 have its range of 70 to 80 % with pending and "
            "predicted work; windows are not observed in process, so what is predicted is the rate, not their filling.",
            "The trades of Q6 are generated: ten companies, and a rate that is drawn anew ten times a second. The paper's "
            "data is not public. Its predicate is printed without its upper end; ours is −0.95.",
            "Pairs are compared with those that a fixed number of threads finds in the same tuples, by sorting if it can.",
        ),
        live=True,
    )
    return [*drawn, write_page(page, out / "live_stretch.md")]


def _table(played: dict[str, tuple[str, Played]]) -> Table:
    said = {
        "q4": "reconfigurations take less than 40 ms; higher throughput without affecting the latency",
        "q5": "about 20 ms on average; spikes at abrupt rises, handled within 10 s",
        "q6": "a small number of threads most of the time; 21 ms on average at the highest peak, 1 ms in all",
    }
    rows = []
    for name, (_, each) in played.items():
        run = each.run
        mean, worst = run.latency_ms
        rows.append(
            (
                name.upper(),
                said[name],
                len(run.decisions),
                f"{1e3 * max(run.switch_seconds, default=0.0):.1f} ms",
                f"{mean:,.0f} ms, at most {worst:,.0f} ms",
                f"{run.instance_seconds:.0f} of {cores() * run.times[-1]:.0f}",
                f"{each.pairs:,}, {'the same' if each.same else 'NOT THE SAME'}",
            )
        )
    head = ("what", "the paper's text", "changes", "longest change", "mean latency", "thread-seconds", "pairs found")
    return Table("Ours beside the paper's text", head, rows)
