"""The whole suite: the tests that need Spark in one process, the others in another, side by side.

    python -m tests.run            what `make test` runs; then half a minute of generated cases with a seed of its own
    python -m tests.run --long     the rest, eight times the generated cases, other versions: `make test-long`

A Spark session takes seconds to start, so all tests on Spark share one; most of their time is spent waiting, which leaves a
core to the others. A long run writes what came of it to ``tests/long_run.md``, which is committed: so a reader knows when
all of it last passed, on which commit and machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

REPORT = Path(__file__).with_name("long_run.md")
PACKAGES = ("pyspark", "pyarrow", "numpy", "numba", "narwhals")
ON_SPARK, OTHERS = "spark", "not spark"
SHORT, REST = "not cluster and not long", "(long or cluster or generated)"
LONG_SECONDS = "7200"
# These wait for the tests on Spark, which end first: so both cores are busy to the end. pytest leaves out no path that its
# own configuration names, so the others are named too.
LATER = ("tests/property/test_moves.py", "benchmarks/tests")
EARLIER = ("tests", "--ignore", "tests/property/test_moves.py")
FUZZ = ["tests.property.fuzz", "20", "--seconds", "30"]
# A Java process of a test lives for a minute or two: code that is optimized for hours of work, and threads that collect a
# large heap's garbage, cost it more than they save.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_COUNT = re.compile(r"(\d+) (passed|failed|error|errors|skipped|xfailed|xpassed)")


class Part:
    """One process; its lines are printed as they come, with its name in front.

    It keeps the bytecode of what it imports: tests start a hundred processes, each of which would compile all again.
    """

    def __init__(self, name: str, words: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.lines: list[str] = []
        command = [sys.executable, "-m", *words]
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {"SPARK_SUBMIT_OPTS": SHORT_LIVED_JAVA, **inherited, **environment}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self._reader = threading.Thread(target=self._read, name=name)
        self._reader.start()

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self) -> int:
        """The exit code, when it has ended."""
        self._reader.join()
        return self._process.wait()

    def counts(self) -> Counter[str]:
        """How many tests passed, failed, and so on, as its last line says."""
        last = next((line for line in reversed(self.lines) if _COUNT.search(line)), "")
        return Counter({kind.removesuffix("s"): int(number) for number, kind in _COUNT.findall(last)})

    def failures(self) -> list[str]:
        """The lines that name what did not pass."""
        return [line for line in self.lines if line.startswith(("FAILED ", "ERROR "))]

    def summary(self) -> str:
        """What it says at the end: the slowest tests, and those that did not pass."""
        starts = [at for at, line in enumerate(self.lines) if line.startswith("===")]
        return "\n".join(self.lines[starts[-3] if len(starts) > 2 else 0 :])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            print(f"{self.name:>13} | {line}", end="", flush=True)


def main(words: list[str]) -> int:
    """Run both parts; 0 if all passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description="Run the tests, on Spark and without.")
    parser.add_argument("--long", action="store_true", help="what takes longer, and more generated cases")
    chosen, others = parser.parse_known_args(words)
    began, clock = datetime.now(UTC), time.monotonic()
    options = ["-q", "--durations", "15", *others]
    environment = {}
    if chosen.long:
        options += ["--timeout", LONG_SECONDS]
        environment["TIDEGATE_TESTS"] = "long"
    kind = REST if chosen.long else SHORT
    whole = not chosen.long and not others
    earlier = EARLIER if whole else ()

    def selected(marks: str) -> list[str]:
        return ["pytest", "-m", f"({marks}) and {kind}", *options]

    parts = [
        Part("on Spark", selected(ON_SPARK), environment),
        Part("without Spark", [*selected(OTHERS), *earlier], environment),
    ]
    if whole:
        while all(part.runs for part in parts):
            time.sleep(0.2)
        parts.append(Part("later", [*selected(OTHERS), *LATER], environment))
        # The sample of generated cases is always the same; those of the fuzz never are.
        parts.append(Part("fuzz", FUZZ, environment))
    codes = [part.wait() for part in parts]
    if chosen.long and not others:
        # Last and alone: they have a Spark of their own.
        parts.append(Part("versions", ["tests.versions"], {}))
        codes.append(parts[-1].wait())
    failed = any(codes)
    minutes = (time.monotonic() - clock) / 60
    if chosen.long:
        REPORT.write_text(_report(began, minutes, failed, parts), encoding="utf-8")
    counts = sum((part.counts() for part in parts), Counter[str]())
    print(f"{minutes:.1f} minutes")
    for line in (line for part in parts for line in part.failures()):
        print(line)
    print(f"{counts['passed']} passed, {counts['failed'] + counts['error']} failed, {counts['skipped']} skipped")
    return int(failed)


def _report(began: datetime, minutes: float, failed: bool, parts: list[Part]) -> str:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], check=False, capture_output=True, text=True, cwd=REPORT.parent
    ).stdout.strip()
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    shown = "\n\n".join(f"{part.name}\n{part.summary()}" for part in parts)
    return (
        "# The last long run of the tests\n\n"
        f"`make test-long` on commit {commit or 'unknown'}, {began:%Y-%m-%d %H:%M} UTC, {minutes:.0f} minutes, "
        f"{'FAILED' if failed else 'passed'}.\n"
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {versions}.\n\n```\n{shown}\n```\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
