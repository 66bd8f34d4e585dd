"""``tidegate ledger``: what control loops decided, why, and what came of it."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from tidegate.cli.run import positive
from tidegate.errors import choices

if TYPE_CHECKING:
    import pyarrow as pa

DESCRIPTION = """\
List the decisions in a ledger, explain one of them in sentences, or take them away as a table. The run that writes the
ledger may still be going on.
"""
EXAMPLES = """\
examples:
  tidegate ledger run.ledger --changes-only                 where something was changed
  tidegate ledger run.ledger --subquery speed --since 600   one subquery, from 600 s on
  tidegate ledger run.ledger --explain 17                   decision 17 in sentences
  tidegate ledger run.ledger --controller ds2               what ds2 decided, driving or in the shadow
  tidegate ledger run.ledger --notices                      instances lost, requests overdue, failures
  tidegate ledger run.ledger --export run.parquet           everything, for pandas or polars; also .csv and .jsonl
"""
SHOWN = 40
WIDTH = 110


def add_to(commands: Any) -> None:
    """Add the command to the command line."""
    made = commands.add_parser(
        "ledger",
        help="see what controllers decided, why, and what came of it",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("file", metavar="FILE", help="a ledger, such as tidegate simulate --ledger FILE writes")
    made.add_argument("--subquery", metavar="NAME", help="decisions for this subquery only")
    made.add_argument("--controller", metavar="NAME", help="of this controller only, driving or in the shadow")
    made.add_argument("--run", metavar="N", type=positive, help="of this run only; a file may hold several")
    made.add_argument("--since", metavar="SECONDS", type=float, help="from this time of the run on")
    made.add_argument("--changes-only", action="store_true", help="leave out decisions to hold")
    made.add_argument("--shadows", action="store_true", help="list what shadows would have done as well")
    made.add_argument("--last", metavar="N", type=positive, default=SHOWN, help=f"how many to list (default: {SHOWN})")
    instead = made.add_mutually_exclusive_group()
    instead.add_argument("--explain", metavar="N", type=int, help="explain decision N in sentences")
    instead.add_argument("--notices", action="store_true", help="list what happened that nobody decided")
    instead.add_argument("--export", metavar="PATH", help="write to PATH: .parquet, .csv or .jsonl")
    made.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Carry the command out."""
    # Arrow takes a while to load, and the other commands do without these parts.
    from tidegate.telemetry.explain import explain
    from tidegate.telemetry.read import DecisionFilter, decisions, export, notices

    if chosen.explain is not None:
        for paragraph in explain(chosen.file, chosen.explain).splitlines():
            print(textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False))
        return
    if chosen.notices:
        for each in notices(chosen.file):
            print(f"run {each.run}  {each.time_seconds:8.1f} s  {each.subquery}: {each.kind}: {each.text}")
        return
    table = decisions(
        chosen.file,
        DecisionFilter(
            subquery=chosen.subquery,
            controller=chosen.controller,
            changes_only=chosen.changes_only,
            since_seconds=chosen.since,
            run=chosen.run,
            shadows=chosen.shadows or chosen.export is not None,
        ),
    )
    if chosen.export is not None:
        export(table, chosen.export)
        print(f"{table.num_rows:,} decisions written to {chosen.export}")
        return
    print(show_decisions(table, chosen.last) if table.num_rows else show_choices(decisions(chosen.file)))


def show_choices(everything: pa.Table) -> str:
    """What there is to choose from, for whoever chose what is not there."""
    subqueries, controllers = (choices(everything[name].unique().to_pylist()) for name in ("subquery", "controller"))
    return (
        f"no decision matches: the ledger has {everything.num_rows:,}, for the subqueries {subqueries}, by the "
        f"controllers {controllers}"
    )


def show_decisions(table: pa.Table, most: int) -> str:
    """The last decisions of a table in aligned columns, and how many there are."""
    from tidegate.results import show_count, show_rows

    last = table.slice(max(0, table.num_rows - most))
    names = [
        "decision",
        "run",
        "subquery",
        "time_seconds",
        "controller",
        "instances_before",
        "instances",
        "result",
        "why",
    ]
    if len(set(table["run"].to_pylist())) == 1:
        names.remove("run")
    short = {"decision": "n", "time_seconds": "at s", "instances_before": "from", "instances": "to"}
    shown = last.select(names).rename_columns([short.get(name, name) for name in names])
    return f"{show_rows(shown)}\n{show_count(table.num_rows, last.num_rows)}"
