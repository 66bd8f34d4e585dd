"""Draws a run: load, latency, use and instances over one time axis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidegate.errors import EnvironmentFault, UserError, choices
from tidegate.simulate.run import SimulatedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def plot_run(run: SimulatedRun, target_seconds: float) -> Figure:
    """A figure of the run, not tied to any screen."""
    row, figure = run.history, _figure_type()(figsize=(11, 9), layout="constrained")
    figure.suptitle(f"controller: {run.controller}")
    panels = {
        "tuples/s": {"offered": row.offered, "processed": row.processed},
        "mean latency, s": {
            "latency": np.maximum(row.latency, 1e-6),
            "target": np.full(len(run.times), target_seconds),
        },
        "share of time": {"utilisation": row.utilisation, "congestion": row.congestion},
        "instances": {"instances": row.instances, "paid for": row.paid},
    }
    every = figure.subplots(len(panels), 1, sharex=True)
    for axes, (label, lines) in zip(every, panels.items(), strict=True):
        for name, values in lines.items():
            axes.plot(run.times, values, linewidth=1.2, label=name, drawstyle="steps-pre")
        axes.set_ylabel(label)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        axes.grid(alpha=0.25)
        if label == "mean latency, s":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
    every[-1].set_xlim(0, float(run.times[-1]))
    every[-1].set_xlabel("time, s")
    return figure


def save_plot(run: SimulatedRun, path: str | Path, target_seconds: float) -> None:
    """Draw the run into a file; its suffix says the format: .png, .svg or .pdf."""
    check_plot_path(path)
    try:
        plot_run(run, target_seconds).savefig(Path(path), dpi=130)
    except OSError as error:
        raise EnvironmentFault(f"plot {path} cannot be written: {error}; choose another place") from error


def check_plot_path(path: str | Path) -> None:
    """Refuse what cannot be drawn into, before the run."""
    _figure_type()
    file = Path(path)
    if file.suffix not in FORMATS:
        raise UserError(f"plot {file}: the suffix must name a format; choose one of {choices(FORMATS)}")
    if not file.absolute().parent.is_dir():
        raise UserError(f"plot {file}: there is no folder {file.parent}; create it first")


def _figure_type() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EnvironmentFault("plots need matplotlib; install it with: pip install 'tidegate[plot]'") from error
    return Figure
