"""Draws a run: load, throughput, latency, utilisation, instances and decisions over one time axis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.control.decision import Action
from tidegate.errors import EnvironmentFault, UserError, choices
from tidegate.simulate.history import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OFFERED, PROCESSED, WAITING, DOWN = "#8c8c8c", "#1f6f8b", "#d1495b", "#2e8b57"
MOST_MARKS = 400
FORMATS = (".png", ".svg", ".pdf")
BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.09, 1.0), "fontsize": 8, "frameon": False}


def plot_run(run: Run, *, target_seconds: float | None = None, title: str | None = None) -> Figure:
    """A figure of the run, not tied to any screen; four panels, all with the same time axis.

    Needs matplotlib, which is not installed with tidegate: `pip install 'tidegate[plot]'`.
    """
    figure_type = _figure_type()
    figure = figure_type(figsize=(11, 9), layout="constrained")
    flow, latency, use, count = figure.subplots(4, 1, sharex=True, height_ratios=(3, 2, 2, 3))
    times = run.times
    figure.suptitle(title or f"controller: {run.controller}")
    _flow(flow, run)
    latency.plot(times, np.maximum(run.latency, 1e-6), color=WAITING, linewidth=1)
    latency.set_yscale("log")
    latency.set_ylabel("mean latency, s")
    if target_seconds is not None:
        latency.axhline(target_seconds, color="black", linestyle=":", linewidth=1, label="target")
        latency.legend(**BESIDE)
    for name, history in run.subqueries.items():
        use.plot(times, history.utilisation, linewidth=1, label=f"{name}: utilisation")
        use.plot(times, history.congestion, linewidth=1, linestyle="--", label=f"{name}: congestion")
        count.step(times, history.instances, where="post", linewidth=1.2, label=name)
    use.set_ylim(0, 1.05)
    use.set_ylabel("share of time")
    use.legend(**BESIDE)
    _decisions(count, run)
    count.set_ylim(bottom=0)
    count.set_ylabel("instances")
    count.set_xlabel("time, s")
    count.set_xlim(0, float(times[-1]))
    count.legend(**BESIDE)
    for each in (flow, latency, use, count):
        each.grid(alpha=0.25)
    return figure


def save_plot(run: Run, path: str | Path, *, target_seconds: float | None = None, title: str | None = None) -> None:
    """Draw the run into a file; its suffix says the format: .png, .svg or .pdf."""
    check_plot_path(path)
    try:
        plot_run(run, target_seconds=target_seconds, title=title).savefig(Path(path), dpi=130)
    except OSError as error:
        raise EnvironmentFault(f"plot {path} cannot be written: {error}; choose another place") from error


def check_plot_path(path: str | Path) -> None:
    """Refuse what cannot be drawn into, before a long run has been for nothing."""
    _figure_type()
    file = Path(path)
    if file.suffix not in FORMATS:
        raise UserError(f"plot {file}: the suffix must name a format; choose one of {choices(FORMATS)}")
    if not file.absolute().parent.is_dir():
        raise UserError(f"plot {file}: there is no folder {file.parent}; make it first")
    if file.is_dir():
        raise UserError(f"plot {file}: is a folder; name a file in it")


def _figure_type() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EnvironmentFault("plots need matplotlib; install it with: pip install 'tidegate[plot]'") from error
    return Figure


def _flow(axes: Any, run: Run) -> None:
    axes.plot(run.times, run.entering, color=OFFERED, linewidth=2, label="offered")
    axes.plot(run.times, run.processed, color=PROCESSED, linewidth=1, label="processed")
    axes.set_ylabel("tuples/s")
    axes.set_ylim(bottom=0)
    backlog = np.sum([history.backlog for history in run.subqueries.values()], axis=0)
    if backlog.max() > 0:
        waiting = axes.twinx()
        waiting.fill_between(run.times, backlog, color=WAITING, alpha=0.2, linewidth=0)
        waiting.set_ylabel("tuples waiting", color=WAITING)
        waiting.set_ylim(bottom=0)
    axes.legend(**BESIDE)


def _decisions(axes: Any, run: Run) -> None:
    """A mark for each decision that was carried out: up, down or, for a new mapping, a dot."""
    marks = {Action.PROVISION: ("^", WAITING), Action.DECOMMISSION: ("v", DOWN), Action.BALANCE: ("o", OFFERED)}
    for action, (mark, colour) in marks.items():
        taken = [each for each in run.decisions if each.accepted and each.decision.action is action][:MOST_MARKS]
        if taken:
            axes.plot(
                [each.time_seconds for each in taken],
                [each.decision.instances for each in taken],
                linestyle="none",
                marker=mark,
                markersize=4,
                color=colour,
                label=action.value,
            )
