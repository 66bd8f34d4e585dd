"""``make test-long``: every test, ten times the generated cases and ten minutes of chaos; what came of it is written down.

The report is committed, so that a reader knows when all of this last passed, on which commit and machine.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

REPORT = Path(__file__).with_name("long_run.md")
PACKAGES = ("pyspark", "pyarrow", "numpy", "numba", "narwhals")
# Not the configured selection: what takes long, and what starts a cluster, runs too.
OPTIONS = ("-m", "", "-n", "2", "--dist", "loadgroup", "--timeout", "3600", "--durations", "15")


def main(words: list[str]) -> int:
    """Run the tests, write the report, and end as pytest ended."""
    commit = _said("git", "describe", "--always", "--dirty")
    began, clock = datetime.now(UTC), time.monotonic()
    command = [sys.executable, "-m", "pytest", *OPTIONS, *words]
    environment = {**os.environ, "TIDEGATE_TESTS": "long"}
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    minutes = (time.monotonic() - clock) / 60
    told = [at for at, line in enumerate(lines) if line.startswith(("=====", "-----"))]
    shown = lines[told[-3] if len(told) > 2 else 0 :]
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    REPORT.write_text(
        f"# The last long run of the tests\n\n"
        f"`make test-long` on commit {commit}, {began:%Y-%m-%d %H:%M} UTC, {minutes:.0f} minutes, "
        f"{'passed' if process.returncode == 0 else 'FAILED'}.\n"
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {versions}.\n\n"
        "```\n" + "\n".join(shown) + "\n```\n",
        encoding="utf-8",
    )
    return process.returncode


def _said(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=REPORT.parent)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
