"""Every application runs with its one command, and ends with a table and a sentence."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.application import Application, main

ROOT = Path(__file__).parents[2]
NAMES = sorted(file.parent.name for file in (ROOT / "examples").glob("*/application.py"))
TINY = ["--tuples", "150", "--seed", "3"]


def application(name: str) -> Application:
    """The application of a folder, which has its name."""
    found = getattr(importlib.import_module(f"examples.{name}.application"), name)
    assert isinstance(found, Application) and found.name == name
    return found


@pytest.mark.parametrize("name", NAMES)
def test_an_application_runs_with_its_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(application(name), TINY) == 0
    told = capsys.readouterr().out
    question, read, table, sentence = told.strip().split("\n\n")[0].splitlines() + told.strip().split("\n\n")[1:]
    assert question.endswith("?")
    assert read.endswith("; generated")
    assert table.strip()
    assert sentence.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_an_application_is_told_of(name: str) -> None:
    readme = (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert f"python -m examples.{name}" in readme
    assert f"python -m examples.{name}" in index


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_without_its_files_is_told_in_a_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(application(name), ["--data", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"{name}: --data {tmp_path}: no file matches ")
    assert told.count("\n") == 1


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_applications_run_on_spark(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for each in map(application, NAMES):
        assert main(each, TINY) == 0
        here = capsys.readouterr().out
        assert main(each, [*TINY, "--on", "spark"]) == 0
        assert capsys.readouterr().out == here


def test_a_command_is_a_process() -> None:
    command = [sys.executable, "-m", "examples.exchange", "--tuples", "0"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "argument --tuples: at least 1; got 0" in told.stderr
    command[-1] = "20"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "20 orders, " in done.stdout
