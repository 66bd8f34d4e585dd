"""SASO on the loads of Gedik et al., appendix B, live: the paper's rates in a twentieth of its time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidegate as tg
from figures.draw import Picture, save
from figures.gedik import TUPLES_PER_CHANNEL, turns
from figures.live import TIME, Measured, due, live_panels, watch, where
from figures.report import Page, Table, note, write_page
from tidegate.control.controller import Limits
from tidegate.control.controllers.saso import Saso
from tidegate.control.rules import Rule
from tidegate.simulate.loads import GEDIK_SINE, GEDIK_STEP, Floats, Load

FASTER = 20.0
"""How many times faster than in the paper the load changes, and SASO looks."""

CYCLE_SECONDS = 500.0 / FASTER
PERIOD_SECONDS = 5.0 / FASTER
CHANNELS = Limits(1, 16)
KEYS = 1_000
SEGMENT_ROWS = 20
WINDOW_US = 100_000
WAITING_ROWS = 1_000
"""The paper's sources block when transport buffers are full; here, when so many tuples wait."""


@dataclass(frozen=True, slots=True)
class Faster:
    """A load that changes so many times faster, at the same rates."""

    load: Load
    times: float

    def rate(self, times: Floats) -> Floats:
        return self.load.rate(times * self.times)


def waiting(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Work that needs no core, as a call to a service would, so that channels add up whatever the machine has."""
    time.sleep(batch.num_rows / TUPLES_PER_CHANNEL)
    return batch


def adapt(load: Load, seconds: float = CYCLE_SECONDS, threshold: float = 0.2) -> tuple[Measured, bool]:
    """SASO from one channel on; and whether each tuple was counted once."""
    sent: list[pa.RecordBatch] = []
    counts: list[pa.Table] = []
    source = due(
        Faster(load, FASTER), seconds, lambda random, rows: {"k": pa.array(random.integers(0, KEYS, rows))}, sent
    )
    stream = tg.stream(tg.paced(source), time="ts", schema={"ts": TIME, "k": pa.int64()}, name="load")
    query = stream.map_batches(waiting).key_by("k").window(f"{WINDOW_US}us").aggregate(n=tg.count(), name="region")
    rule = Rule(Saso(congestion_threshold=threshold), CHANNELS)
    run = watch(
        query,
        rule,
        counts.append,
        period_seconds=PERIOD_SECONDS,
        segment_rows=SEGMENT_ROWS,
        waiting_rows=WAITING_ROWS,
    )
    return run, each_once(sent, counts)


def each_once(sent: Sequence[pa.RecordBatch], counts: Sequence[pa.Table]) -> bool:
    """Whether each window and key was counted as often as it was sent."""
    times = np.concatenate([batch["ts"].cast(pa.int64()).to_numpy() for batch in sent])
    keys = np.concatenate([batch["k"].to_numpy() for batch in sent])
    places, expected = np.unique(times // WINDOW_US * KEYS + keys, return_counts=True)
    made = pa.concat_tables(counts)
    found = made["window_start"].cast(pa.int64()).to_numpy() // WINDOW_US * KEYS + made["k"].to_numpy()
    order = np.argsort(found)
    return np.array_equal(found[order], places) and np.array_equal(made["n"].to_numpy()[order], expected)


def draw(out: Path) -> list[Path]:
    """Run the sine and the step, and write their pictures and the page."""
    runs = {}
    for name, load, title in (
        ("sine", GEDIK_SINE, "SASO under the sine load (figures 13 and 14)"),
        ("step", GEDIK_STEP, "SASO under the step load (figures 15 and 16)"),
    ):
        note(f"{name} load, {CYCLE_SECONDS:.0f} s")
        runs[name] = title, *adapt(load)
    drawn = [
        save(
            Picture(f"{title}: {where()}", live_panels(run, handled="handled")),
            out / f"live_gedik-{name}.png",
        )
        for name, (title, run, _) in runs.items()
    ]
    page = Page(
        "Live: Gedik et al., appendix B, in one process",
        f"One region of threads under the paper's loads, changing {FASTER:g} times faster; SASO looks every "
        f"{PERIOD_SECONDS:g} s, α = 0.5, congestion threshold 0.2, from one channel on. Measured, not simulated; the "
        "simulated counterparts are in [gedik.md](gedik.md).",
        drawn,
        [_claims({name: (run, exact) for name, (_, run, exact) in runs.items()})],
        (
            f"A tuple waits 1/{TUPLES_PER_CHANNEL:g} s as for a service, the cost of the simulation, so that channels "
            "add up on any number of cores; nothing is said about how fast anything computes.",
            "Tuples are due by a schedule, and latency counts from there: a load that is not handled in time shows as "
            "latency, as nothing is dropped.",
            f"Sources are blocked when {WAITING_ROWS:,} tuples wait. A change is in force when every instance has come past "
            "the tuples before it, so the first ones, at one channel, take as long as what waits does.",
            "Figures are those of the run's ledger; no two runs are the same.",
        ),
        live=True,
    )
    return [*drawn, write_page(page, out / "live_gedik.md")]


def _claims(runs: dict[str, tuple[Measured, bool]]) -> Table:
    said = {
        "sine": "channels follow the load, no overshoot, good accuracy; small periods in which load is not handled",
        "step": "“able to adjust the number of channels”, handles all of the load most of the time",
    }
    rows = []
    for name, (run, exact) in runs.items():
        behind = np.nanmean(run.processed < 0.9 * run.offered)
        mean, worst = run.latency_ms
        rows.append(
            (
                f"{name} load",
                said[name],
                f"{int(run.instances.min())} to {int(run.instances.max())} channels, {len(run.decisions)} changes, "
                f"{turns(run.instances)} turns",
                f"{behind:.0%} of looks handled less than 90 % of what was offered",
                f"{mean:,.0f} ms, at most {worst:,.0f} ms",
                f"{max(run.switch_seconds, default=0.0) * 1e3:.1f} ms",
                "once" if exact else "NOT once",
            )
        )
    head = ("what", "the paper's text", "ours", "load not handled", "mean latency", "longest change", "tuples counted")
    return Table("Ours beside the paper's text", head, rows)
