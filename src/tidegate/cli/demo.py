"""``tidegate demo``: one query of a paper, on local Spark, from nothing to results."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from tidegate.cli.run import positive
from tidegate.errors import InternalError

DESCRIPTION = """\
Make some hours of phone calls, find the customers whose calls are long on average (StreamCloud's running example: one
hour of calls, every minute) on local Spark, and show who they are. Then let the load of a query in process rise and fall,
and show what was decided and why. Takes about a minute.
"""
ROWS = 200_000
SHOWN = 10
MOST_FILES, ROWS_PER_FILE = 12, 500


def add_to(commands: Any) -> None:
    """Add the command to the command line."""
    made = commands.add_parser(
        "demo",
        help="see a query run on local Spark, on made-up data",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--rows", metavar="N", type=positive, default=ROWS, help=f"how many calls (default: {ROWS})")
    made.add_argument(
        "--to", metavar="DIR", default="demo-out", help="folder for calls and results (default: demo-out)"
    )
    made.add_argument("--seed", metavar="N", type=int, default=1, help="another seed makes other calls (default: 1)")
    made.add_argument("--spark-only", action="store_true", help="leave out the rising load")
    made.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Carry the command out."""
    # What the demo needs takes a while to load, and the other commands do without it.
    import pyarrow as pa
    import pyarrow.compute as pc

    from tidegate.compile.show_query import show_query
    from tidegate.demo.calls import END, calls
    from tidegate.demo.heavy_customers import heavy_customers
    from tidegate.results import show_rows
    from tidegate.run import run

    root = Path(chosen.to)
    files = max(1, min(MOST_FILES, chosen.rows // ROWS_PER_FILE))
    data = calls(root / f"calls-{chosen.rows}-{chosen.seed}", rows=chosen.rows, seed=chosen.seed, files=files)
    query = heavy_customers(data)
    print(f"{chosen.rows:,} calls are in {data}. The query:\n")
    print(show_query(query.node, "  "))
    print("\nIt runs on a local Spark, which takes some seconds to start.\n", flush=True)
    result = run(query, to=_fresh(root / "heavy-customers"))
    found = result.read()
    if result.to is None:
        raise InternalError("the demo's results have no folder")
    print(
        f"\n{result.rows:,} calls gave {result.results:,} results in {result.seconds:.0f} s, {result.late:,} were late."
    )
    if found.num_rows:
        whole = found.filter(pc.less_equal(found["window_end"], pa.scalar(END, found["window_end"].type)))
        last = pc.max(whole["window_end"])
        hour = found.filter(pc.equal(found["window_end"], last)).sort_by([("avg_duration", "descending")])
        shown = hour.select(["src", "window_start", "window_end", "calls", "avg_duration"]).slice(0, SHOWN)
        print(f"Heavy customers of the last whole hour:\n\n{textwrap.indent(show_rows(shown), '  ')}\n")
    print(f"All results are in {result.to}, as parquet. Another run of the demo makes another folder.")
    if not chosen.spark_only:
        _show_rising_load(_fresh(root / "rising-load.ledger"))


def _show_rising_load(ledger: Path) -> None:
    from tidegate.demo.rising_load import PHASES, follow_rising_load

    rates = ", then ".join(f"{rate:,} calls/s for {seconds:.0f} s" for seconds, rate in PHASES)
    print(f"\nNow in this process, without Spark, on instances that follow the load: {rates}.", flush=True)
    done = follow_rising_load(ledger)
    print(f"{done.sent:,} calls were sent and {done.counted:,} counted. What was decided, and why:\n")
    for at, before, after, why in done.decisions:
        print(textwrap.fill(f"{at:5.1f} s  {before} → {after} instances: {why}", 110, subsequent_indent=" " * 9))
    print(f"\ntidegate ledger {ledger} has all of it; --explain N tells one decision in full.")


def _fresh(folder: Path) -> Path:
    """A path that is not taken: the given one with the first number that is free."""
    number = 1
    while folder.with_name(f"{folder.name}-{number}").exists():
        number += 1
    return folder.with_name(f"{folder.name}-{number}")
