"""A ledger in the hands of several: writers, readers, and a process that is killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.kit.ledger_loops import Endless, Holding, Machine, Swinging, column, observed
from tidegate.control.controller import Limits
from tidegate.control.loop import ControlLoop
from tidegate.control.rules import Rule
from tidegate.telemetry.ledger import Ledger
from tidegate.telemetry.read import decisions

# Writes steps for as long as it lives; says so after each, so that whoever kills it knows what must be there.
ENDLESS = """
import itertools, sys
from tests.kit.ledger_loops import Endless
from tidegate.telemetry.ledger import Ledger

ledger = Ledger.open(sys.argv[1], "endless")
loop = Endless(ledger)
for step in itertools.count():
    loop(step)
    print(step, flush=True)
"""

# Writes some steps and then kills itself right before a statement of the next step's transaction is executed.
DYING = """
import os, signal, sys
from tests.kit.ledger_loops import Endless
from tidegate.telemetry.ledger import Ledger

ledger = Ledger.open(sys.argv[1])
loop = Endless(ledger)
for step in range(5):
    loop(step)
ledger._connection.set_trace_callback(
    lambda statement: os.kill(os.getpid(), signal.SIGKILL) if statement.startswith(sys.argv[2]) else None
)
loop(5)
"""


def test_two_writers_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    with Ledger.open(path, "one") as one, Ledger.open(path, "two") as two:
        loops = [ControlLoop(Rule(Swinging(), Limits()), Machine(), ledger) for ledger in (one, two)]
        for step in range(10):
            for loop in loops:
                loop.step(observed(5.0 * (step + 1)))
    for run in (1, 2):
        assert column(decisions(path, run=run, shadows=False), "step") == list(range(10))


def test_several_threads_share_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    with Ledger.open(path) as ledger:

        def drive(subquery: str) -> None:
            loop = ControlLoop(Rule(Holding(), Limits(), shadows=(Holding(),)), Machine(), ledger)
            for step in range(50):
                loop.step(observed(5.0 * (step + 1), subquery=subquery))

        threads = [threading.Thread(target=drive, args=(name,)) for name in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in ("a", "b", "c"):
        assert column(decisions(path, subquery=name, shadows=False), "step") == list(range(50))


@pytest.mark.parametrize(
    "statement", ["INSERT INTO observations", "INSERT INTO decisions", "UPDATE decisions", "COMMIT"]
)
def test_a_step_that_was_being_written_when_the_process_was_killed_is_absent(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "run.ledger"
    ended = subprocess.run([sys.executable, "-c", DYING, str(path), statement], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert column(decisions(path, shadows=False), "step") == [0, 1, 2, 3, 4]
    assert column(decisions(path, shadows=False), "effect_time_seconds") == [10.0, 15.0, 20.0, 25.0, None]
    with Ledger.open(path) as ledger:
        Endless(ledger)(0)
    assert column(decisions(path, shadows=False), "run") == [1, 1, 1, 1, 1, 2]


def test_a_ledger_survives_being_killed_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    told = 0
    for attempt, steps in enumerate((3, 40, 150)):
        child = subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        with child.stdout:
            for line in child.stdout:
                if int(line) >= steps:
                    child.send_signal(signal.SIGKILL)
                    break
            # It wrote on until the signal arrived.
            rest = child.stdout.read().splitlines()
        child.wait()
        told = int(rest[-1]) if rest and rest[-1].isdigit() else steps
        table = decisions(path, run=attempt + 1, shadows=False)
        assert column(table, "step") == list(range(table.num_rows))
        assert table.num_rows >= told
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        count = "SELECT count(*), count(DISTINCT {}) FROM {}"
        steps_written, _ = connection.execute(count.format("observation", "observations")).fetchone()
        # Each step has a driver's decision with 20 alternatives, and one shadow's: all of them or none.
        assert connection.execute("SELECT count(*) FROM decisions").fetchone() == (2 * steps_written,)
        rejected = connection.execute("SELECT sum(json_array_length(rejected)) FROM decisions").fetchone()
        assert rejected == (20 * steps_written,)
    finally:
        connection.close()


def test_a_ledger_is_readable_while_another_process_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    child = subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        seen = []
        for _ in range(20):
            said = int(child.stdout.readline())
            table = decisions(path)
            assert table.num_rows % 2 == 0, "half a step"
            assert table.num_rows >= 2 * (said + 1)
            seen.append(table.num_rows)
        assert child.poll() is None
        assert seen == sorted(seen)
    finally:
        child.kill()
        child.stdout.close()
        child.wait()
