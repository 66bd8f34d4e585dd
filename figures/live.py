"""Runs in this process that follow their load, measured as they happen: what their ledger says, ready to be drawn."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidegate as tg
from figures.draw import BLUE, GREY, ORANGE, PURPLE, RED, Line, Panel
from lab.network import TakenDecision
from tidegate.control.controller import Action, Decision
from tidegate.control.rules import Rule
from tidegate.simulate.loads import Floats, Load
from tidegate.telemetry.read import decisions

TIME = pa.timestamp("us")
TICK_SECONDS = 0.01

Rows = Callable[[np.random.Generator, int], dict[str, pa.Array]]
"""So many rows of a stream, without their times."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run as its ledger has it, a row per look; rates in tuples per second, latencies in seconds, NaN where not known.

    `switch_seconds` are the times that the changes took.
    """

    times: Floats
    offered: Floats
    processed: Floats
    latency: Floats
    utilisation: Floats
    congestion: Floats
    instances: Floats
    decisions: tuple[TakenDecision, ...]
    switch_seconds: tuple[float, ...]

    @property
    def latency_ms(self) -> tuple[float, float]:
        """The mean over looks at which results came, and the highest."""
        known = self.latency[np.isfinite(self.latency)]
        return (float(known.mean()) * 1e3, float(known.max()) * 1e3) if len(known) else (float("nan"), float("nan"))

    @property
    def instance_seconds(self) -> float:
        return float((np.diff(self.times, prepend=0.0) * self.instances).sum())


def due(
    load: Load, seconds: float, rows: Rows, sent: list[pa.RecordBatch], *, seed: int = 1
) -> Iterator[tuple[float, pa.RecordBatch]]:
    """A load as a source: every tick the tuples that came due in it, with the times at which they did.

    What is delivered is also added to ``sent``.
    """
    random = np.random.default_rng(seed)
    begins = np.arange(round(seconds / TICK_SECONDS)) * TICK_SECONDS
    until = np.floor(np.cumsum(load.rate(begins) * TICK_SECONDS)).astype(np.int64)
    for begin, number in zip(begins, np.diff(until, prepend=0), strict=True):
        count = int(number)
        if not count:
            continue
        times = (begin + (np.arange(count) + 0.5) / count * TICK_SECONDS) * 1e6
        batch = pa.record_batch({"ts": pa.array(times.astype(np.int64)).cast(TIME), **rows(random, count)})
        sent.append(batch)
        yield float(begin + TICK_SECONDS), batch


def watch(
    query: tg.Stream,
    rule: Rule,
    to: Callable[[pa.Table], None],
    *,
    first: int = 1,
    period_seconds: float = 0.2,
    segment_rows: int = 65_536,
    waiting_rows: int | None = None,
) -> Measured:
    """Run a query to the end of its load under a rule, and read its ledger."""
    with tempfile.TemporaryDirectory(prefix="tidegate-figures-") as folder:
        path = Path(folder) / "run.ledger"
        job = tg.start(
            query,
            to=to,
            instances=(first, rule.limits.most),
            segment_rows=segment_rows,
            waiting_rows=waiting_rows,
            elastic=tg.Elastic(rule, period_seconds=period_seconds, ledger=path),
        )
        job.wait()
        steps = decisions(path, shadows=False)

    def column(name: str) -> Floats:
        return np.array(steps[name].to_pylist(), dtype=np.float64)

    acted = [row for row in steps.to_pylist() if row["result"] == "acted"]
    return Measured(
        column("time_seconds"),
        column("offered"),
        column("processed"),
        column("latency_seconds"),
        column("utilisation"),
        column("congestion"),
        column("instances_before"),
        tuple(
            TakenDecision(
                row["time_seconds"],
                Decision(row["subquery"], Action(row["action"]), row["instances"], row["why"]),
                True,
            )
            for row in acted
        ),
        tuple(row["takes_seconds"] for row in acted),
    )


def live_panels(run: Measured, *, handled: str = "processed", target_seconds: float | None = None) -> list[Panel]:
    """A measured run as panels: load, latency, use, and instances with the decisions taken."""
    times = run.times
    return [
        Panel(
            "tuples/s",
            (Line("offered", times, run.offered, GREY, width=2.4), Line(handled, times, run.processed, BLUE)),
        ),
        Panel(
            "latency, s",
            (Line("mean latency", times, run.latency, RED),),
            levels=() if target_seconds is None else (("target", target_seconds),),
            log=True,
            height=1.5,
        ),
        Panel(
            "share of time",
            (
                Line("utilisation", times, run.utilisation, BLUE),
                Line("sources blocked", times, run.congestion, ORANGE),
            ),
            top=1.05,
            height=1.5,
        ),
        Panel(
            "instances",
            (Line("instances", times, run.instances, PURPLE, steps=True, width=1.6),),
            decisions=run.decisions,
            whole=True,
        ),
    ]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def where() -> str:
    """What a picture of a live run is marked with."""
    return f"measured live, in one process on {cores()} cores"
