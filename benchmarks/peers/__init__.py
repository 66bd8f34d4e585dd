"""The environments of peers whose packages do not fit beside ours: where each is, and why it is not there.

`make peers` makes one for every `NAME.txt` in this folder, which pins all that goes into it.
"""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

from benchmarks.options import PROJECT

ENVIRONMENTS = PROJECT / ".venv" / "peers"
PACKAGES = {"flink": "apache-flink", "bytewax": "bytewax", "pathway": "pathway"}
READY, REASON = ".ready", "why-not.txt"  # `make peers` leaves one of them


def python_of(peer: str, environments: Path = ENVIRONMENTS) -> Path:
    """The interpreter of a peer's environment."""
    return environments / peer / "bin" / "python"


def reason_missing(peer: str, environments: Path = ENVIRONMENTS) -> str | None:
    """Why a peer cannot run; None if it can."""
    if (environments / peer / READY).exists() and python_of(peer, environments).exists():
        return None
    reason = environments / peer / REASON
    if reason.exists():
        return f"make peers could not install it: {reason.read_text(errors='replace').strip()}"
    return "no environment of its own; make one with: make peers"


def versions(environments: Path = ENVIRONMENTS) -> dict[str, str]:
    """The versions of the peers that can run."""
    found = {}
    for peer, package in PACKAGES.items():
        if reason_missing(peer, environments) is None:
            folders = [str(folder) for folder in (environments / peer / "lib").glob("python*/site-packages")]
            installed = next(iter(distributions(name=package, path=folders)), None)
            found[package] = installed.version if installed else "unknown"
    return found
