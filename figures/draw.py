"""Pictures: panels above each other that share one axis, mostly time, with legends beside the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lab.network import Run, TakenDecision
from tidegate.control.controller import Action

GREY, BLUE, RED, GREEN, ORANGE, PURPLE = "#8c8c8c", "#1f6f8b", "#d1495b", "#2e8b57", "#e08e2b", "#7a5195"
COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, GREY)
MARKS = {Action.PROVISION: ("^", RED), Action.DECOMMISSION: ("v", GREEN), Action.BALANCE: ("o", ORANGE)}
MOST_POINTS = 4_000


@dataclass(frozen=True, slots=True)
class Line:
    """One curve; `steps` holds each value until the next, `marker` alone (with an empty `style`) makes a scatter."""

    label: str
    x: ArrayLike
    y: ArrayLike
    colour: str = BLUE
    style: str = "-"
    width: float = 1.2
    steps: bool = False
    marker: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A set of axes: curves, horizontal levels with a name, and the decisions of a run as marks at their instances.

    A panel of `whole` numbers has no ticks between them.
    """

    label: str
    lines: Sequence[Line]
    levels: Sequence[tuple[str, float]] = ()
    decisions: Sequence[TakenDecision] = ()
    log: bool = False
    bottom: float | None = 0.0
    top: float | None = None
    height: float = 2.0
    title: str = ""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels over a common axis. `dividers` are positions of vertical lines, each with a text above the first panel."""

    title: str
    panels: Sequence[Panel]
    x_label: str = "time, s"
    x_log: bool = False
    dividers: Sequence[tuple[float, str]] = ()
    width: float = 11.0
    ticks: Sequence[float] = field(default=())
    tick_names: Sequence[str] = field(default=())


def save(picture: Picture, path: Path) -> Path:
    """Draw the picture into a PNG; returns where."""
    from matplotlib.figure import Figure

    heights = [panel.height for panel in picture.panels]
    figure = Figure(figsize=(picture.width, 1.1 + 1.05 * sum(heights)), layout="constrained")
    figure.suptitle(picture.title, fontsize=12)
    grid = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
    every = grid[:, 0]
    for axes, panel in zip(every, picture.panels, strict=True):
        axes.margins(x=0.01)
        _fill(axes, panel)
        for at, _ in picture.dividers:
            axes.axvline(at, color="black", linewidth=0.6, alpha=0.5, linestyle=(0, (4, 3)))
    for at, text in picture.dividers:
        if text:
            place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            every[0].annotate(text, (at, 1.0), xytext=(2, 3), fontsize=7.5, va="bottom", **place)
    last = every[-1]
    if picture.x_log:
        last.set_xscale("log")
    if len(picture.ticks):
        names = picture.tick_names or [f"{tick:g}" for tick in picture.ticks]
        last.set_xticks(list(picture.ticks), names)
    last.set_xlabel(picture.x_label)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def run_panels(run: Run, *, handled: str = "processed", target_seconds: float | None = None) -> list[Panel]:
    """A run as panels: load, latency, use, and instances with the decisions taken."""
    times, histories = run.times, run.subqueries.values()
    blocked = np.mean([history.congestion for history in histories], axis=0)
    use = np.mean([history.utilisation for history in histories], axis=0)
    latency = [Line("mean latency", times, np.maximum(run.latency, 1e-5), RED)]
    return [
        Panel(
            "tuples/s",
            (Line("offered", times, run.entering, GREY, width=2.4), Line(handled, times, run.processed, BLUE)),
        ),
        Panel(
            "latency, s",
            latency,
            levels=() if target_seconds is None else (("target", target_seconds),),
            log=True,
            height=1.5,
        ),
        Panel(
            "share of time",
            (Line("utilisation", times, use, BLUE), Line("sources blocked", times, blocked, ORANGE)),
            top=1.05,
            height=1.5,
        ),
        Panel(
            "instances",
            (Line("instances", times, run.instances, PURPLE, steps=True, width=1.6),),
            decisions=[each for each in run.decisions if each.accepted],
        ),
    ]


def _fill(axes: Any, panel: Panel) -> None:
    for line in panel.lines:
        x, y = _thinned(line.x, line.y)
        axes.plot(
            x, y, label=line.label, color=line.colour, linestyle=line.style or "none", linewidth=line.width,
            marker=line.marker or None, markersize=4, drawstyle="steps-post" if line.steps else "default",
        )  # fmt: skip
    for (name, level), style in zip(panel.levels, (":", "--", "-.", ":", "--"), strict=False):
        axes.axhline(level, color="black", linewidth=1, linestyle=style, label=f"{name}: {level:,g}")
    for action, (mark, colour) in MARKS.items():
        taken = [each for each in panel.decisions if each.decision.action is action]
        if taken:
            times, places = [each.time_seconds for each in taken], [each.decision.instances for each in taken]
            axes.plot(times, places, linestyle="none", marker=mark, markersize=4.5, color=colour, label=action.value)
    if panel.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=panel.bottom, top=panel.top or max(axes.dataLim.y1 * 1.08, 1e-9))
        axes.yaxis.set_major_formatter(_thousands)
    if panel.whole:
        axes.yaxis.get_major_locator().set_params(integer=True)
    if panel.title:
        axes.set_title(panel.title, fontsize=9, loc="left", pad=14)
    axes.set_ylabel(panel.label)
    axes.grid(alpha=0.25)
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), fontsize=8, frameon=False, borderaxespad=0.2)


def _thousands(value: float, position: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:g}"


def _thinned(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """The curve with no more points than can be seen: of each group the highest and the lowest, in order."""
    across, up = np.asarray(x), np.asarray(y)
    group = len(across) // (MOST_POINTS // 2)
    if group < 2:
        return across, up
    rows = len(across) // group
    parts = up[: rows * group].reshape(rows, group)
    pairs = np.sort(np.stack([parts.argmin(axis=1), parts.argmax(axis=1)], axis=1), axis=1)
    places = (np.arange(rows)[:, None] * group + pairs).reshape(-1)
    return across[places], up[places]
