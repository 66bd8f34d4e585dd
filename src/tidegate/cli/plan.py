"""``tidegate plan``: how many instances each subquery should start with, measured on a sample of its input."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from tidegate.cli.load import load_query
from tidegate.cli.run import positive
from tidegate.errors import UserError

if TYPE_CHECKING:
    from tidegate.control.instantiate import Sampled
    from tidegate.stream import Stream

DESCRIPTION = """\
Run the query in a Python file in this process on the first tuples of its input, on one instance each, and say how many
instances its subqueries should have: by what their tuples cost and how many reach them (StreamCloud's query instantiator).
With --rate, how many are needed to keep up with so many tuples per second.
"""
SAMPLE = 200_000
WARM_UP = 2_000


def add_to(commands: Any) -> None:
    """Add the command to the command line."""
    made = commands.add_parser(
        "plan",
        help="say how many instances a query should start with",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("target", metavar="FILE[:name]", help="a Python file that makes a query over files or tables")
    made.add_argument(
        "--sample", metavar="N", type=positive, default=SAMPLE, help=f"tuples to read (default: {SAMPLE})"
    )
    made.add_argument(
        "--instances", metavar="N", type=positive, help="share out so many (default: the cores there are)"
    )
    made.add_argument("--rate", metavar="N", type=float, help="tuples per second that the sources will deliver")
    made.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Carry the command out."""
    from tidegate.control.instantiate import instances_for, instantiate
    from tidegate.run import cores

    samples, read = sampled(load_query(chosen.target), chosen.sample)
    available = chosen.instances or max(cores(), len(samples))
    shares = instantiate(samples, available)
    needed = {} if chosen.rate is None else instances_for(samples, read, chosen.rate)
    print(show_plan(samples, read, shares, needed, chosen.rate))


def sampled(query: Stream, tuples: int) -> tuple[list[Sampled], int]:
    """What each subquery did on the first tuples of the input, and how many these were; a bit more than asked for."""
    from tidegate.query.nodes import sources
    from tidegate.sources import BatchOrigin

    for source in sources(query.node):
        if not isinstance(source.origin, BatchOrigin):
            raise UserError(
                f"plan: stream '{source.name}' reads neither files nor a table, and a sample must leave its input as it "
                "was; give it files"
            )
    _run(query, WARM_UP)  # The first tuples pay for compiling.
    samples, read = _run(query, tuples)
    if not read:
        raise UserError("plan: the input has no tuple, so what one costs cannot be measured; give it some")
    return samples, read


def _run(query: Stream, tuples: int) -> tuple[list[Sampled], int]:
    from tidegate.control.instantiate import Sampled
    from tidegate.run import start

    job = start(query, to=lambda _: None, instances=1)
    while not job.wait(0.005):
        if job.rows >= tuples:
            job.stop()
    done = job.figures(time.monotonic())
    return [
        Sampled(region.name, region.traffic.passed_rows, sum(region.busy_seconds.values())) for region in done.regions
    ], job.rows


def show_plan(
    samples: list[Sampled], read: int, shares: dict[str, int], needed: dict[str, int], rate: float | None
) -> str:
    """The plan as a table and a sentence."""
    head = ["subquery", "tuples", "µs a tuple", "instances", *(["needed"] if needed else [])]
    rows = [head]
    for each in samples:
        cost = "–" if each.seconds_per_tuple is None else f"{each.seconds_per_tuple * 1e6:.3g}"
        row = [each.subquery, f"{each.tuples:,}", cost, str(shares[each.subquery])]
        rows.append([*row, *([str(needed[each.subquery])] if needed else [])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [f"{row[0]:<{widths[0]}}", *(f"{cell:>{size}}" for cell, size in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    lines.append(
        f"\nmeasured on {read:,} tuples of the input; {sum(shares.values())} instances shared out by their work"
    )
    if needed and rate is not None:
        lines.append(f"{sum(needed.values())} needed for {rate:,.0f} tuples/s, if they do not slow one another down")
    return "\n".join(lines)
