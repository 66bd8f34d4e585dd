"""The command line: `python -m figures [NAME …] [--out FOLDER] [--list]`."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from figures.report import write_index

FIGURES: dict[str, str] = {
    "gedik": "SASO under Gedik's sine and step loads, thresholds 0 and 0.9, channels by cost (appendix B)",
    "streamcloud": "StreamCloud's load balancing, and individual against load-aware provisioning (§VI.C)",
    "strategies": "what StreamCloud's three ways to spread a query cost, by its model (§III.A, §XI)",
    "elasticutor": "Elasticutor's paradigms under key shuffles, and its scheduling times (§5)",
    "stretch": "STRETCH's phases of random rates, predictive against thresholds (§8.4, §8.5)",
    "day": "a day of load on up to 1,000 instances",
    "tournament": "all controllers on all loads",
    "live_gedik": "SASO under Gedik's sine and step loads, live in this process",
    "live_stretch": "STRETCH's reconfigurations under joins, live in this process (§8.4 to §8.6)",
}
"""The names, each that of a module here with `draw(out) -> files written`, and what they show."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for, all of it by default; returns the exit code."""
    names = "\n".join(f"  {name:<12} {meaning}" for name, meaning in FIGURES.items())
    parser = argparse.ArgumentParser(
        prog="python -m figures",
        description=f"Simulate the papers' experiments, or run them live; write pictures and tables.\n\nnames:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="what to draw (default: all)")
    parser.add_argument("--out", type=Path, default=Path("figures/out"), metavar="FOLDER", help="default: figures/out")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        print(names)
        return 0
    unknown = [name for name in chosen.names if name not in FIGURES]
    if unknown:
        parser.error(f"unknown figure {', '.join(unknown)}; valid names are: {', '.join(FIGURES)}")
    chosen.out.mkdir(parents=True, exist_ok=True)
    took = {}
    wanted = chosen.names or list(FIGURES)
    for number, name in enumerate(wanted, 1):
        print(f"[{number}/{len(wanted)}] {name}: {FIGURES[name]}", file=sys.stderr, flush=True)
        begun = time.perf_counter()
        written = drawing(name)(chosen.out)
        took[name] = time.perf_counter() - begun
        print(f"  {took[name]:.1f} s: {', '.join(path.name for path in written)}", file=sys.stderr, flush=True)
    print(write_index(chosen.out, took))
    return 0


def drawing(name: str) -> Callable[[Path], list[Path]]:
    """The function that draws a figure; its module is loaded only now."""
    function: Callable[[Path], list[Path]] = importlib.import_module(f"figures.{name}").draw
    return function


if __name__ == "__main__":
    sys.exit(main())
