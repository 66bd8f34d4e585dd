"""``tidegate explain``: what a query is, how it is cut, and what it costs."""

from __future__ import annotations

import argparse
from typing import Any

from tidegate.cli.load import load_query
from tidegate.cli.run import positive
from tidegate.compile.cost import ALPHA, BETA
from tidegate.run import RUNTIMES

DESCRIPTION = """\
Show the query in a Python file as it is written, the subqueries it is cut into with every choice and its reason, and
what three ways to spread it over instances cost. Nothing is run, and no Java is needed.
"""


def add_to(commands: Any) -> None:
    """Add the command to the command line."""
    made = commands.add_parser(
        "explain",
        help="show how a query is compiled, and why so",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("target", metavar="FILE[:name]", help="a Python file that makes a query with tg.stream(...)")
    made.add_argument("--on", choices=RUNTIMES, default="spark", help="for which runtime (default: spark)")
    made.add_argument(
        "--instances", metavar="N", type=positive, default=2, help="instances to spread over (default: 2)"
    )
    made.add_argument("--rate", metavar="R", type=float, default=100_000.0, help="tuples per second (default: 100000)")
    made.add_argument("--alpha", metavar="A", type=float, default=ALPHA, help=f"cost of a channel (default: {ALPHA})")
    made.add_argument("--beta", metavar="B", type=float, default=BETA, help=f"cost of shipping (default: {BETA})")
    made.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Carry the command out."""
    query = load_query(chosen.target)
    text = query.explain(
        runtime=chosen.on, instances=chosen.instances, rate=chosen.rate, alpha=chosen.alpha, beta=chosen.beta
    )
    print(text, end="")
