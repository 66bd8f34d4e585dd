"""``tidegate ledger``, ``top`` and ``page``: what control loops decided, and how a query that is being scaled stands."""

from __future__ import annotations

import textwrap
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import flag, option, show
from tidegate.errors import UserError, choices

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

    from tidegate.telemetry.read import LedgerStatus

WIDTH = 110
PIPED_WIDTH = 200
LISTED = {
    "decision": "n",
    "run": "run",
    "subquery": "subquery",
    "time_seconds": "at s",
    "controller": "controller",
    "instances_before": "from",
    "instances": "to",
    "result": "result",
    "why": "why",
}
FIGURES = {
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
NOTICE = "{time_seconds:8.1f} s  {subquery}: {kind}: {text}"
UNKNOWN = "–"


def ledger(
    file: Annotated[str, typer.Argument(metavar="FILE", help="such as tidegate simulate --ledger FILE writes")],
    subquery: Annotated[str | None, option("NAME", "decisions for this subquery only")] = None,
    controller: Annotated[str | None, option("NAME", "of this controller only, driving or in the shadow")] = None,
    run: Annotated[int | None, option("N", "of this run only; a file may hold several", min=1)] = None,
    since: Annotated[float | None, option("SECONDS", "from this time of the run on")] = None,
    changes_only: Annotated[bool, flag("--changes-only", "leave out decisions to hold")] = False,
    shadows: Annotated[bool, flag("--shadows", "list what shadows would have done as well")] = False,
    last: Annotated[int, option("N", "how many to list", min=1)] = 40,
    explain: Annotated[int | None, option("N", "instead, explain decision N in sentences")] = None,
    notices: Annotated[bool, flag("--notices", "instead, list unplanned events")] = False,
    export: Annotated[str | None, option("PATH", "instead, write to PATH: .parquet, .csv or .jsonl")] = None,
) -> None:
    """See what controllers decided, why, and what came of it.

    Lists the decisions in a ledger, explains one of them in sentences, or
    exports them as a table. The run that writes the ledger may still be going
    on.

    Examples:
    tidegate ledger run.ledger --changes-only         where something was changed
    tidegate ledger run.ledger --subquery speed       one subquery
    tidegate ledger run.ledger --explain 17           decision 17 in sentences
    tidegate ledger run.ledger --controller ds2       also what it would have done
    tidegate ledger run.ledger --notices              instances lost, failures
    tidegate ledger run.ledger --export run.parquet   for pandas or polars
    """
    from tidegate.telemetry import read
    from tidegate.telemetry.explain import explain as explain_decision

    if sum((explain is not None, notices, export is not None)) > 1:
        raise UserError("ledger: --explain, --notices and --export do different things; choose one")
    if explain is not None:
        for paragraph in explain_decision(file, explain).splitlines():
            print(textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False))
    elif notices:
        for each in read.notices(file):
            print(f"run {each['run']}  {NOTICE.format(**each)}")
    else:
        table = read.decisions(
            file,
            subquery=subquery,
            controller=controller,
            run=run,
            since_seconds=since,
            changes_only=changes_only,
            shadows=shadows or export is not None,
        )
        if export is not None:
            read.export(table, export)
            print(f"{table.num_rows:,} decisions written to {export}")
        elif table.num_rows:
            _show_decisions(table, last)
        else:
            everything = read.decisions(file)
            subqueries, controllers = (
                choices(everything[name].unique().to_pylist()) for name in ("subquery", "controller")
            )
            print(
                f"no decision matches: the ledger has {everything.num_rows:,}, for the subqueries {subqueries}, by the "
                f"controllers {controllers}"
            )


def _show_decisions(table: pa.Table, most: int) -> None:
    """Print the last decisions of a table, and how many there are."""
    from tidegate.tables import rows_table, show_count

    last = table.slice(max(0, table.num_rows - most))
    single_run = len(set(table["run"].to_pylist())) == 1
    names = [name for name in LISTED if not (name == "run" and single_run)]
    show(rows_table(last.select(names).rename_columns([LISTED[name] for name in names])))
    print(show_count(table.num_rows, last.num_rows))


def top(
    file: Annotated[str, typer.Argument(metavar="LEDGER", help="the ledger that the run writes")],
    every: Annotated[float, option("SECONDS", "how often to read it")] = 1.0,
    once: Annotated[bool, flag("--once", "show one frame, and end")] = False,
) -> None:
    """Watch a query being scaled.

    Shows rates, what waits, lag, latency, instances or executors, and the last
    decisions with their reasons. Reads the ledger that tg.autoscale,
    elastic=tg.Elastic(ledger=...) or tidegate run --ledger writes, from any
    process of this machine. It ends with the run, or by Ctrl-C; where the
    output is no terminal it shows one frame.

    Examples:
    tidegate top run.ledger                 until the run ends
    tidegate top run.ledger --once > file   one frame
    """
    from rich.console import Console
    from rich.live import Live

    from tidegate.telemetry.read import RunState, ledger_status

    console = Console(highlight=False)
    if once or not console.is_terminal or console.is_dumb_terminal:
        show(status_view(ledger_status(file)), PIPED_WIDTH)
        return
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            status = ledger_status(file)
            live.update(status_view(status), refresh=True)
            if status is not None and status.state is not RunState.RUNNING:
                return
            time.sleep(max(every, 0.1))


def page(
    file: Annotated[str, typer.Argument(metavar="LEDGER", help="the ledger that a run writes, or has written")],
    port: Annotated[int, option("N", "where to serve it on 127.0.0.1; 0 takes a free port", min=0, max=65_535)] = 8787,
    run: Annotated[
        int | None, option("N", "this run only; without it, the last, or the one that is chosen there", min=1)
    ] = None,
) -> None:
    """See a run in the browser, while it goes on or afterwards.

    Serves a page on the loopback address and prints where: rates, busy shares,
    lag, instances, latency, shards, each decision with its reason, and what
    another controller would have done. Only the printed address, with its
    token, opens it. Ctrl-C ends it.

    Examples:
    tidegate page run.ledger            the last run
    tidegate page run.ledger --port 0   on a free port
    """
    from tidegate.page.server import PageServer

    with suppress(KeyboardInterrupt), closing(PageServer(file, port, run)):
        threading.Event().wait()


def status_view(status: LedgerStatus | None) -> RenderableType:
    """The status of a run as lines that are cut where the screen ends; what is not known is a dash."""
    from rich.console import Group
    from rich.text import Text

    from tidegate.tables import text_table

    if status is None:
        return Text("the ledger has no run yet")
    figures = [
        (
            heading,
            "left" if name == "subquery" else "right",
            [UNKNOWN if row[name] is None else form.format(row[name]) for row in status.subqueries],
        )
        for name, (heading, form) in FIGURES.items()
    ]
    lines = ["", "last changes"] if status.changes else []
    for change in status.changes:
        done = "" if change["result"] == "acted" else f" ({change['result']})"
        lines.append(
            f"{change['time_seconds']:8.1f} s  {change['subquery']}: {change['instances_before']} → "
            f"{change['instances']}{done}, {change['controller']}: {change['why']}"
        )
    lines += ["", "unplanned events"] if status.notices else []
    lines += [NOTICE.format(**each) for each in status.notices]
    head = f"run {status.run}{f' of {status.label}' if status.label else ''}: {status.state.value}"
    cut = (Text(line, no_wrap=True, overflow="ellipsis") for line in lines)
    return Group(Text(head, no_wrap=True, overflow="ellipsis"), text_table(*figures), *cut)
