"""The command line: `python -m benchmarks NAME [options]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.engine_process import EngineFailed
from benchmarks.engines import ENGINES, expand_names
from benchmarks.options import CACHE, Options
from benchmarks.registry import BENCHMARKS

EXAMPLES = f"""\
engines:
  spark (the better of spark-hdfs and spark-rocksdb), {", ".join(ENGINES)}
  An engine whose packages are missing is skipped.

examples:
  python -m benchmarks wordcount
  python -m benchmarks keyed --engines spark,tidegate-spark --batch-rows 250000 1000000
  python -m benchmarks sweep --of keyed,wordcount --span-seconds 10
  python -m benchmarks paircount-l --tuples 20000 --batch-rows 5000 --tuples-per-second 100 --runs 1 --out /tmp

Inputs are cached in {CACHE}. Exit code 1: an engine failed or gave a different answer.
"""


def parse(arguments: Sequence[str] | None = None) -> tuple[str, Options]:
    """The benchmark's name and its options; exits with a message for names and values that are not valid."""
    names = "\n".join(f"  {benchmark.name:<15} {benchmark.summary}" for benchmark in BENCHMARKS.values())
    purpose = "Run one workload on several engines, compare their results, print figures and ratios."
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"{purpose}\n\nnames:\n{names}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="what to run, one of the names above")
    parser.add_argument(
        "--tuples",
        "--events",
        type=int,
        metavar="N",
        help="input size (default: 1,000,000 and 4,000,000; pairs 200,000; nexmark 1,000,000)",
    )
    parser.add_argument(
        "--batch-rows", type=int, nargs="+", metavar="N", help="tuples per micro-batch on Spark, one or several"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="measured runs of each engine (default: 3)")
    parser.add_argument("--engines", metavar="A,B", help="engines to run (default: all that are installed)")
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="real input: tweets_congress/*.json, stocks_lean_tick/*_trade.zip"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of a generated input (default: 1)")
    parser.add_argument(
        "--tuples-per-second", type=int, default=1_000, metavar="N",
        help="density of a generated input in event time (default: 1000); lower it so that small inputs close windows",
    )  # fmt: skip
    parser.add_argument(
        "--driver-memory-gb", type=int, metavar="N", help="heap of native Spark (default: 4; paircount-m and -h 8)"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="length of a soak (default: 600)")
    parser.add_argument(
        "--of",
        metavar="A,B",
        help="sweep: the workloads it runs (default: keyed); overlap-inter, nexmark: their queries",
    )
    parser.add_argument(
        "--span-seconds", type=float, metavar="S",
        help="how long a rate is offered after a warm-up (default: sweep 60; scalejoin 10, then 60; latency-spark 45)",
    )  # fmt: skip
    parser.add_argument(
        "--tick-ms", type=float, default=1.0, metavar="MS", help="how often tuples are due under load (default: 1)"
    )
    parser.add_argument(
        "--rate", type=int, metavar="N", help="tuples that are due every second in latency-spark (default: 20000)"
    )
    parser.add_argument("--cells", metavar="PATTERN", help="matrix: only cells whose name has it, with * for anything")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where NAME.json goes (default: benchmarks/results)")
    given = vars(parser.parse_args(arguments))
    name = given.pop("name")
    if name not in BENCHMARKS:
        parser.error(f"unknown benchmark {name!r}; valid names are: {', '.join(BENCHMARKS)}")
    if given["out"] is None:
        del given["out"]
    try:
        engines = tuple(given.pop("engines").split(",")) if given["engines"] else given.pop("engines")
        expand_names(engines)
        of = tuple(given.pop("of").split(",")) if given["of"] else given.pop("of")
        batch_rows = given.pop("batch_rows")
        options = Options(engines=engines, of=of, batch_rows=tuple(batch_rows) if batch_rows else None, **given)
    except ValueError as error:
        parser.error(str(error))
    return name, options


def main() -> int:
    name, options = parse()
    try:
        return BENCHMARKS[name].run(options)
    except (ValueError, FileNotFoundError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except EngineFailed as error:  # the judge: without it no answer can be checked
        print(f"{name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
