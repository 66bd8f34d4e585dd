"""The command line of every application: generated or real input, either runtime, a small table and a sentence at the end.

    python -m examples.exchange --on local --tuples 100000
    python -m examples.exchange --on spark --data FOLDER

The folder of an application has a file with an `Application` and a `__main__.py` of three lines.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import tidegate as tg
from tidegate.tables import show_rows
from tidegate.testing import answer

Tables = Mapping[str, pa.Table]
RUNTIMES = ("local", "spark", "reference")


@dataclass(frozen=True, slots=True)
class Report:
    """What a person reads at the end: a few rows, and what they say."""

    rows: pa.Table
    sentence: str


@dataclass(frozen=True, slots=True)
class Application:
    """A question of a paper, with what it reads and how its answer is told.

    `generate` is given how many tuples and a seed, `read` a folder of real data and how many tuples at most; both give
    tables by the name of their stream, sorted by event time. `results` builds one query of several results over them.
    """

    name: str
    question: str
    generate: Callable[[int, int], Tables]
    read: Callable[[Path, int], Tables]
    results: Callable[[Tables], dict[str, tg.Stream]]
    report: Callable[[Tables], Report]
    tuples: int = 20_000

    def query(self) -> dict[str, tg.Stream]:
        """Its query over generated tuples."""
        return self.results(self.generate(self.tuples, 1))

    def run(self, inputs: Tables, on: str) -> dict[str, pa.Table]:
        """The tables of all results."""
        query = self.results(inputs)
        if on == "reference":
            law = answer(query)
            return {name: law[name] for name in query}
        with tempfile.TemporaryDirectory(prefix=f"{self.name}-") as folder:
            run = tg.run(query, on=on, to=Path(folder) / "out", progress=False)
            return {name: run.read(name) for name in query}


def command(application: Application, module: str) -> dict[str, tg.Stream] | None:
    """Run an application's command line where its module is the program; else give its query, to `tidegate run`."""
    if module != "__main__":
        return application.query()
    sys.exit(main(application))


def main(application: Application, arguments: Sequence[str] | None = None) -> int:
    """Run an application as its command line says; the exit code."""
    asked = _parse(application, arguments)
    try:
        if asked.data is None:
            inputs = application.generate(asked.tuples, asked.seed)
        else:
            inputs = application.read(asked.data, asked.tuples)
        results = application.run(inputs, asked.on)
    except (tg.TidegateError, FileNotFoundError) as error:
        print(f"{application.name}: {error}", file=sys.stderr)
        return 2
    report = application.report(results)
    read = ", ".join(f"{table.num_rows:,} {name}" for name, table in inputs.items())
    print(f"{application.question}\n{read}; {'generated' if asked.data is None else f'from {asked.data}'}\n")
    print(show_rows(report.rows))
    print(f"\n{report.sentence}")
    return 0


def _parse(application: Application, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m examples.{application.name}", description=application.question)
    parser.add_argument("--on", choices=RUNTIMES, default="local", help="the runtime (default: local)")
    parser.add_argument(
        "--tuples", type=_positive, default=application.tuples, metavar="N",
        help=f"tuples to generate, or to read of each stream at most (default: {application.tuples:,})",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of a generated input (default: 1)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="real input; README.md says which files")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1; got {text}")
    return number
