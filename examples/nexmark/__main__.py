"""Prints the results of a query in process: ``python -m examples.nexmark q5 --events 100000``."""

from __future__ import annotations

import argparse

import tidegate as tg
from examples.nexmark.generator import Nexmark
from examples.nexmark.market import market
from examples.nexmark.queries import QUERIES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.nexmark", description="A query of Nexmark, in process.")
    parser.add_argument("query", choices=QUERIES, metavar="QUERY", help="q0 to q22")
    parser.add_argument("--events", type=int, default=100_000, metavar="N", help="how many (default: 100,000)")
    parser.add_argument("--rate", type=int, default=10_000, metavar="N", help="events in a second (default: 10,000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    given = parser.parse_args()
    events = Nexmark(given.events, given.rate, given.seed)
    tg.run(QUERIES[given.query](market(events.tables(), events.longest_auction)), on="local", progress=False)


if __name__ == "__main__":
    main()
