"""``tidegate run``: a query from a Python file, to its end."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tidegate.cli.load import load_query
from tidegate.elastic.options import Elastic
from tidegate.errors import UserError
from tidegate.results import SUFFIXES, RunResult
from tidegate.run import RUNTIMES, run

DESCRIPTION = """\
Run the query in a Python file: the variable after the colon, else the one called 'query', else the only one there is.

Results go to a folder, or to the screen. If a run on Spark is stopped or killed, the same command goes on where it was,
and every result is in the folder exactly once.
"""


def add_to(commands: Any) -> None:
    """Add the command to the command line."""
    made = commands.add_parser(
        "run",
        help="run the query in a Python file",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("target", metavar="FILE[:name]", help="a Python file that makes a query with tg.stream(...)")
    made.add_argument("--on", choices=RUNTIMES, default="spark", help="where to run it (default: spark)")
    made.add_argument("--to", metavar="PATH", help="folder for the results (default: show some on the screen)")
    made.add_argument("--format", choices=tuple(SUFFIXES), help="default: by the suffix of PATH, else parquet")
    made.add_argument("--checkpoint", metavar="DIR", help="default: _checkpoint in the results' folder")
    made.add_argument("--files-per-batch", metavar="N", type=positive, help="how many files make a batch on Spark")
    made.add_argument(
        "--instances",
        metavar="N",
        type=positive,
        help="threads per subquery with --on local (default: 2), per cell on Spark (1)",
    )
    made.add_argument(
        "--elastic",
        metavar="RULES",
        help="follow the load: the name of a controller or a rules file, such as simulate --print-rules prints",
    )
    made.add_argument("--ledger", metavar="FILE", help="with --elastic, keep what was decided, and why")
    made.add_argument(
        "--metrics-port", metavar="N", type=int, help="with --elastic, figures for Prometheus on loopback"
    )
    made.add_argument("--master", metavar="URL", help="Spark master, such as local[4] (default: local, all cores)")
    made.add_argument("--quiet", action="store_true", help="say nothing but results and errors")
    made.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Carry the command out."""
    query = load_query(chosen.target)
    result = run(
        query,
        on=chosen.on,
        to=chosen.to,
        format=chosen.format,
        checkpoint=chosen.checkpoint,
        spark=chosen.master,
        files_per_batch=chosen.files_per_batch,
        instances=chosen.instances,
        elastic=_elastic(chosen),
        progress=not chosen.quiet,
    )
    if not chosen.quiet:
        print(show_result(result), file=sys.stderr)


def _elastic(chosen: argparse.Namespace) -> Elastic | None:
    if chosen.elastic is not None:
        return Elastic(chosen.elastic, ledger=chosen.ledger, metrics_port=chosen.metrics_port)
    if chosen.ledger is not None or chosen.metrics_port is not None:
        raise UserError("--ledger and --metrics-port go with --elastic, such as --elastic steady")
    return None


def show_result(result: RunResult) -> str:
    """What a run did, on one line."""
    where = f" written to {result.to}" if result.to is not None else ""
    malformed = f", {result.malformed:,} malformed" if result.malformed else ""
    malformed += f", {result.ahead:,} ahead" if result.ahead else ""
    return (
        f"{result.rows:,} rows read, {result.late:,} late{malformed}; {result.results:,} results{where} "
        f"({result.seconds:.1f} s)"
    )


def positive(text: str) -> int:
    """A whole number from 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value
