"""``tidegate top``: a live view of a query that is being scaled, from its ledger."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.telemetry.read import LedgerStatus

DESCRIPTION = """\
Show how a query that is being scaled stands: rates, what waits, lag, latency, instances or executors, and the last decisions
with their reasons. Reads the ledger that tg.autoscale, elastic=tg.Elastic(ledger=...) or tidegate run --ledger writes, from
any process of this machine. It ends with the run, or by Ctrl-C; where the output is no terminal it shows things once.
"""
COLUMNS = {
    "subquery": ("subquery", "{}"),
    "instances": ("inst", "{:,}"),
    "offered": ("offered/s", "{:,.0f}"),
    "processed": ("done/s", "{:,.0f}"),
    "backlog": ("waiting", "{:,.0f}"),
    "utilisation": ("busy", "{:.0%}"),
    "congestion": ("blocked", "{:.0%}"),
    "latency_seconds": ("latency s", "{:.3g}"),
    "watermark_lag_seconds": ("lag s", "{:.3g}"),
    "time_seconds": ("at s", "{:,.1f}"),
}
UNKNOWN = "–"


def add_to(commands: Any) -> None:
    """Add the command to the command line."""
    made = commands.add_parser(
        "top",
        help="watch a query being scaled",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("file", metavar="LEDGER", help="the ledger that the run writes")
    made.add_argument("--every", metavar="SECONDS", type=float, default=1.0, help="how often to look (default: 1)")
    made.add_argument("--once", action="store_true", help="show it once, and end")
    made.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Carry the command out."""
    from tidegate.telemetry.read import RunState, ledger_status

    live = not chosen.once and sys.stdout.isatty()
    while True:
        seen = ledger_status(chosen.file)
        text = show_now(seen, shutil.get_terminal_size().columns if sys.stdout.isatty() else 200)
        print(f"\x1b[H\x1b[2J{text}" if live else text, flush=True)
        if not live or (seen is not None and seen.state is not RunState.RUNNING):
            return
        try:
            time.sleep(max(chosen.every, 0.1))
        except KeyboardInterrupt:
            return


def show_now(seen: LedgerStatus | None, width: int = 200) -> str:
    """How things stand as lines of at most ``width`` characters; what is not known is a dash."""
    if seen is None:
        return "the ledger has no run yet"
    rows = [[head for head, _ in COLUMNS.values()]]
    for each in seen.subqueries:
        rows.append([UNKNOWN if each[name] is None else form.format(each[name]) for name, (_, form) in COLUMNS.items()])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"run {seen.run}{f' of {seen.label}' if seen.label else ''}: {seen.state.value}"]
    for row in rows:
        first, rest = f"{row[0]:<{widths[0]}}", zip(row[1:], widths[1:], strict=True)
        lines.append("  ".join([first, *(f"{cell:>{size}}" for cell, size in rest)]))
    if seen.changes:
        lines += ["", "last changes"]
    for change in seen.changes:
        done = "" if change["result"] == "acted" else f" ({change['result']})"
        lines.append(
            f"{change['time_seconds']:8.1f} s  {change['subquery']}: {change['instances_before']} → {change['instances']}"
            f"{done}, {change['controller']}: {change['why']}"
        )
    if seen.notices:
        lines += ["", "noticed"]
    lines += [f"{each.time_seconds:8.1f} s  {each.subquery}: {each.kind}: {each.text}" for each in seen.notices]
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in lines)
