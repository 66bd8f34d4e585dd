"""The command `tidegate ledger`: lists, explanations, exports and mistakes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.kit.ledger_loops import Failing, Holding, Machine, Swinging, observed
from tidegate.cli.main import main
from tidegate.control.controller import Limits
from tidegate.control.loop import ControlLoop
from tidegate.control.rules import Rule
from tidegate.telemetry.ledger import Ledger

HEADING = ["n", "run", "subquery", "at", "s", "controller", "from", "to", "result", "why"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """One subquery that swings for 3 steps with two shadows, then another run with one that holds."""
    path = tmp_path / "run.ledger"
    with Ledger.open(path) as ledger:
        machine = Machine()
        loop = ControlLoop(Rule(Swinging(), Limits(1, 4), shadows=(Holding(), Failing())), machine, ledger)
        for step in range(3):
            loop.step(observed(5.0 * (step + 1), machine.instances))
    with Ledger.open(path) as ledger:
        ControlLoop(Rule(Holding(), Limits()), Machine(), ledger).step(observed(5.0, subquery="still"))
    return str(path)


def listed(told: str) -> list[list[str]]:
    """The cells of a list, without its heading and its count."""
    return [line.split() for line in told.splitlines()[1:-1]]


def unwrapped(told: str) -> str:
    return " ".join(told.split())


def test_decisions_are_listed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", file]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[0].split() == HEADING
    assert [row[2] for row in listed(told)] == ["q", "q", "q", "still"]
    assert told.splitlines()[-1] == "(4 rows)"


@pytest.mark.parametrize(
    ("options", "times"),
    [
        (["--subquery", "still"], ["5"]),
        (["--changes-only"], ["5", "10", "15"]),
        (["--controller", "holding", "--run", "1"], ["5", "10", "15"]),
        (["--run", "1", "--since", "10"], ["10", "15"]),
        (["--run", "1", "--last", "1"], ["15"]),
        (["--run", "1", "--shadows"], ["5", "5", "5", "10", "10", "10", "15", "15", "15"]),
    ],
)
def test_lists_are_filtered(
    file: str, options: list[str], times: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", file, *options]) == 0
    # Of a single run, the run is not listed: number, subquery, time.
    assert [row[2] for row in listed(capsys.readouterr().out)] == times


def test_nothing_found_is_said_with_what_there_is(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", file, "--subquery", "absent"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(
        "no decision matches: the ledger has 10, for the subqueries 'q', 'still', by the controllers "
    )
    for name in ("swinging", "holding", "failing"):
        assert f"'{name}'" in told


def test_an_export_that_cannot_be_written_is_told(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken.csv").mkdir()
    assert main(["ledger", file, "--export", str(tmp_path / "taken.csv")]) == 3
    assert "cannot be written" in unwrapped(capsys.readouterr().err)


def test_one_decision_is_explained(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", file, "--explain", "1"]) == 0
    told = capsys.readouterr().out
    assert "swinging went up from 1 to 2 instances" in unwrapped(told)
    assert max(map(len, told.splitlines())) <= 110


def test_decisions_are_exported_with_their_shadows(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "out.parquet"
    assert main(["ledger", file, "--run", "1", "--export", str(to)]) == 0
    assert capsys.readouterr().out == f"9 decisions written to {to}\n"
    assert sorted(set(pq.read_table(to)["controller"].to_pylist())) == ["failing", "holding", "swinging"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--explain", "99"], "there is no decision 99"),
        (["--export", "out.xls"], "'.parquet', '.csv', '.jsonl'"),
        (["--explain", "1", "--notices"], "choose one"),
    ],
)
def test_mistakes_are_explained(file: str, options: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", file, *options]) == 2
    assert why in unwrapped(capsys.readouterr().err)


def test_a_file_that_is_no_ledger_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", str(tmp_path / "absent")]) == 2
    assert "there is no ledger" in unwrapped(capsys.readouterr().err)
    (tmp_path / "text").write_text("x")
    assert main(["ledger", str(tmp_path / "text")]) == 2
    assert "not an SQLite file" in unwrapped(capsys.readouterr().err)


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "--help"]) == 0
    assert "--explain 17" in capsys.readouterr().out
