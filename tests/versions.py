"""The tests in other environments that users may have: the lowest and the highest versions that we declare, and Python 3.13.

    python -m tests.versions                all of them, each in an environment of its own under .venv/versions
    python -m tests.versions lowest         one of them

What runs there is what does not depend on time: the queries of ``tests/semantics`` on every runtime, and the unit tests. An
interpreter that this machine does not have is left out, and said so.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv" / "versions"
TESTS = ["tests/semantics", "tests/unit", "tests/golden"]
SHOWN_LINES = 60
# Of what the tests themselves need, versions are as pinned for everyone.
_REQUIREMENT = re.compile(r"^([A-Za-z0-9_.-]+)\s*>=\s*([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment: which interpreter, and the versions to hold pip to."""

    name: str
    python: str
    constraints: tuple[str, ...]


def environments() -> list[Environment]:
    """What is tested: our own versions apply to the tools of development, ours or none to what users install."""
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    declared = dict(map(_lowest, _declared()))
    tools = tuple(
        line
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if re.match(r"(hypothesis|pytest|pytest-timeout|psutil|duckdb|polars)==", line)
    )
    lowest = tuple(f"{name}=={version}" for name, version in declared.items())
    return [
        Environment("lowest", here, lowest + tools),
        Environment("highest", here, tools),
        Environment("python-3.13", "python3.13", tools),
    ]


def main(words: list[str]) -> int:
    """Build the environments and run the tests in each; 0 if all passed."""
    known = {each.name: each for each in environments()}
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*known, []], help="which environments; default: all")
    failed = [name for name in parser.parse_args(words).names or known if not check(known[name])]
    if failed:
        print(f"FAILED with: {', '.join(failed)}")
    return len(failed)


def check(environment: Environment) -> bool:
    """Whether the tests pass in an environment; True also where its interpreter is missing."""
    python = _interpreter(environment.python)
    if python is None:
        print(f"{environment.name}: left out, there is no {environment.python} on this machine", flush=True)
        return True
    folder = HOME / environment.name
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    held = folder / "constraints.txt"
    held.write_text("\n".join(environment.constraints) + "\n", encoding="utf-8")
    print(f"{environment.name}: installing", flush=True)
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    # Wheels alone, so that versions which do not go together are found out at once; pyspark has none.
    binary = ["--only-binary", ":all:", "--no-binary", "pyspark"]
    subprocess.run(
        [*pip, "--progress-bar", "off", *binary, "--upgrade", "-c", str(held), f"{ROOT}[spark]", *TOOLS], check=True
    )
    shown = subprocess.run(
        [str(folder / "bin" / "python"), "-m", "pip", "freeze"], check=True, capture_output=True, text=True
    )
    names = {name for name, _ in map(_lowest, _declared())}
    print(f"{environment.name}: " + ", ".join(line for line in shown.stdout.split() if line.split("==")[0] in names))
    tests = [str(folder / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(
        [*tests, "-m", "not long and not cluster"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        # What newer libraries have written into the usual place, older ones may not be able to read.
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    lines = done.stdout.splitlines()
    print("\n".join(lines[-SHOWN_LINES:] if done.returncode else lines[-1:]), flush=True)
    return done.returncode == 0


TOOLS = [
    "duckdb",
    "fsspec",
    "hypothesis",
    "matplotlib",
    "moto[s3,server]",
    "polars",
    "psutil",
    "pytest",
    "pytest-timeout",
]


def _declared() -> list[str]:
    """What we declare that users need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["spark"]]


def _lowest(requirement: str) -> tuple[str, str]:
    found = _REQUIREMENT.match(requirement)
    assert found is not None, f"{requirement!r} in pyproject.toml declares no lowest version"
    return found.group(1).lower(), found.group(2)


def _interpreter(name: str) -> str | None:
    """Where an interpreter is: on the path, and willing to run, or among those of pyenv."""
    version = name.removeprefix("python")
    places = [shutil.which(name), *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))]
    for place in filter(None, places):
        if subprocess.run([place, "--version"], check=False, capture_output=True).returncode == 0:
            return place
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
