"""Runs one entry as a process of its own, within its time, and keeps its results so that they need not be made again."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from figures.evaluation.entry import Entry
from figures.evaluation.machine_watch import Business, MachineWatch, session_processes

PROJECT = Path(__file__).resolve().parents[2]
RECORD, LOG = "record.json", "log.txt"
TAIL_LINES = 3


@dataclass(frozen=True, slots=True)
class Record:
    """How a run of an entry went; `failure` is empty if it ended well."""

    words: tuple[str, ...]
    failure: str
    seconds: float
    business: Business
    when: str
    commit: str
    python: str

    def write(self, folder: Path) -> None:
        """Keep it beside the results; only now do they count."""
        draft = folder / f".{RECORD}"
        draft.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        draft.rename(folder / RECORD)

    @classmethod
    def read(cls, folder: Path) -> Record | None:
        """The record of a folder; None where nothing has ended."""
        try:
            made = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            return cls(**{**made, "words": tuple(made["words"]), "business": Business(**made["business"])})
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None


def kept(entry: Entry, folder: Path) -> Record | None:
    """The record of an entry's own command in its folder, whether or not it ended well."""
    record = Record.read(folder)
    return record if record is not None and record.words == entry.command else None


def run_entry(entry: Entry, folder: Path, limit_seconds: float) -> Record:
    """Run an entry's command in an empty folder; it and all it started has ended when this returns or raises."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", *entry.words(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *_python_path()])}
    began = time.monotonic()
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        watch = MachineWatch(process.pid).start()
        failure = ""
        try:
            code = process.wait(limit_seconds)
            if code:
                failure = f"exit code {code}: {_tail(folder / LOG)}"
        except subprocess.TimeoutExpired:
            failure = f"not done in its {limit_seconds:.0f} s"
        finally:
            business = watch.stop()
            _end(process)
    seconds = time.monotonic() - began
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    record = Record(entry.command, failure, round(seconds, 1), business, when, _commit(), platform.python_version())
    record.write(folder)
    return record


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a session: its first process, and what that has left behind."""
    for each in session_processes(process.pid):
        with suppress(psutil.Error):
            each.kill()
    process.wait()


def _tail(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-TAIL_LINES:])[-400:]


def _commit() -> str:
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=PROJECT, capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError:
        told = ""
    return told or "unknown"
