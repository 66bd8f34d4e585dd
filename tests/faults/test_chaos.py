"""Some of what ``python -m tests.chaos`` and ``python -m tests.chaos.kills`` do: the rest takes longer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos import __main__ as chaos
from tests.chaos import kills
from tests.kit.effort import LONG, examples

pytestmark = pytest.mark.generated
SHOWN_LINES = 60


@pytest.mark.timeout(1_800)
def test_jobs_in_process_that_are_disturbed_give_every_row_once(capsys: pytest.CaptureFixture[str]) -> None:
    failed = chaos.main(["--minutes", "3" if LONG else "0.15", "--seed", "1", "--only", "join", "--only", "apply"])
    assert not failed, shown(capsys)


@pytest.mark.timeout(1_800)
def test_runs_in_process_that_are_killed_give_every_row_once() -> None:
    words = ["--kills", "200" if LONG else "5", "--seed", "1"]
    # In a process of its own, which has no thread yet: it forks.
    ran = subprocess.run([sys.executable, "-m", "tests.chaos.local_kills", *words], capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stdout[-4_000:]}\n{ran.stderr[-4_000:]}"


@pytest.mark.spark
@pytest.mark.timeout(3_600)
def test_queries_on_spark_that_are_killed_give_every_row_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert not kills.main(["--kills", str(examples(10)), "--seed", "1"]), shown(capsys)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1_800)
def test_queries_on_spark_that_are_killed_and_starved_give_every_row_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert not chaos.main(["--minutes", "3", "--seed", "1", "--only", "spark"]), shown(capsys)


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return "\n".join(capsys.readouterr().out.splitlines()[-SHOWN_LINES:])
