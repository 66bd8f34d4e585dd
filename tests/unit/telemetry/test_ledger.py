"""The ledger: what it keeps, how it tells it, and what it refuses."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.kit.ledger_loops import Failing, Holding, Machine, Swinging, column, observed
from tidegate.control.controller import ChangeOutcome, Limits
from tidegate.control.controllers.saso import Saso
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule
from tidegate.errors import EnvironmentFault, UserError
from tidegate.telemetry.explain import explain
from tidegate.telemetry.ledger import Ledger
from tidegate.telemetry.read import decisions, export
from tidegate.telemetry.schema import VERSION, open_to_read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two subqueries: one that swings, with shadows and observed for 4 steps; one that holds, for 2."""
    path = tmp_path / "run.ledger"
    with Ledger.open(path, "a test") as ledger:
        machine = Machine()
        swinging = ControlLoop(
            Rule(Swinging(alternatives=2), Limits(1, 4), shadows=(Holding(), Failing())), machine, ledger
        )
        for step in range(4):
            swinging.step(observed(5.0 * (step + 1), machine.instances, busy=1.0 / machine.instances))
        still = ControlLoop(Rule(Holding(), Limits()), Machine(), ledger)
        for step in range(2):
            still.step(observed(5.0 * (step + 1), 3, "still"))
    return path


def test_decisions_are_kept_with_what_was_observed_expected_and_seen(file: Path) -> None:
    table = decisions(file, subquery="q", shadows=False)
    assert column(table, "instances_before") == [1, 2, 1, 2]
    assert column(table, "instances") == [2, 1, 2, 1]
    assert column(table, "result") == ["acted"] * 4
    assert column(table, "utilisation") == [1.0, 0.5, 1.0, 0.5]
    assert column(table, "expected_utilisation") == [0.5] * 4
    assert column(table, "seen_utilisation") == [0.5, 1.0, 0.5, None]
    assert column(table, "effect_time_seconds") == [10.0, 15.0, 20.0, None]
    assert column(table, "state_bytes") == [1_024] * 4
    assert column(table, "largest_shard_load") == [100.0] * 4
    assert column(table, "offered") == [200.0] * 4
    assert column(table, "demand") == [None] * 4
    assert column(table, "asked") == [True] * 4


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        ({}, 6),
        ({"shadows": True}, 14),
        ({"changes_only": True}, 4),
        ({"controller": "holding"}, 6),
        ({"controller": "holding", "subquery": "q"}, 4),
        ({"controller": "failing"}, 4),
        ({"since_seconds": 10.0}, 4),
        ({"run": 2}, 0),
    ],
)
def test_decisions_are_chosen(file: Path, chosen: dict[str, Any], count: int) -> None:
    assert decisions(file, **{"shadows": False, **chosen}).num_rows == count


def test_a_decision_is_explained_in_sentences(file: Path) -> None:
    number = decisions(file, subquery="q", shadows=False)["decision"][0].as_py()
    text = explain(file, number)
    for sentence in (
        "The controller swinging went up from 1 to 2 instances.",
        "Observed over 5 s with 1 instance: 200 tuples/s offered, 150 processed, instances busy 100% (100% to 100%), "
        "a latency of 0.25 s.",
        "Why: busy 100%.",
        "Rejected, 3 instances: 3 would be too many.",
        "Rejected, 4 instances: 4 would be too many.",
        "It was carried out, in force after 0 s, 4,096 bytes of state moved.",
        "seen 5 s later: utilisation 50%, expected 50%, before 100%;",
        "In the shadow, holding would hold at 1 instance: content.",
        "In the shadow, failing failed: ZeroDivisionError: no rate.",
    ):
        assert sentence in text


def test_a_shadows_decision_is_explained_as_such(file: Path) -> None:
    number = decisions(file, subquery="q", controller="holding", shadows=False)["decision"][0].as_py()
    text = explain(file, number)
    assert "The controller holding, in the shadow, would hold at 1 instance." in text
    assert "The driver, swinging, went up from 1 to 2 instances" in text


def test_a_decision_that_is_not_there_is_said_so(file: Path) -> None:
    with pytest.raises(UserError, match="there is no decision 99; they go from 1 to 14"):
        explain(file, 99)


def test_refusals_advice_and_limits_are_kept(tmp_path: Path) -> None:
    class Stubborn:
        def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
            return ChangeOutcome(False, "no cores left")

    path = tmp_path / "run.ledger"
    with Ledger.open(path) as ledger:
        ControlLoop(Rule(Swinging(), Limits()), Stubborn(), ledger).step(observed(5.0, subquery="a"))
        ControlLoop(Rule(Swinging(), Limits(), dry_run=True), Machine(), ledger).step(observed(5.0, subquery="b"))
        ControlLoop(Rule(Swinging(), Limits(1, 1)), Machine(), ledger).step(observed(5.0, subquery="c"))
    table = decisions(path)
    assert column(table, "result") == ["refused", "advised", "held"]
    assert column(table, "wanted_instances") == [2, 2, 2]
    assert column(table, "instances") == [2, 2, 1]
    assert "swinging tried to go up from 1 to 2 instances." in explain(path, 1)
    assert "swinging advised to go up from 1 to 2 instances." in explain(path, 2)
    assert "It was refused (no cores left); things stayed as they were." in explain(path, 1)
    assert "because this was a dry run" in explain(path, 2)
    assert "It wanted 2 instances (provision), and the loop allowed less." in explain(path, 3)


def test_what_is_missing_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    with Ledger.open(path) as ledger:
        ControlLoop(Rule(Saso(), Limits()), Machine(), ledger).step(Observation("q", 5.0, 5.0, 1))
    assert json.loads(decisions(path)["missing"][0].as_py()) == ["congestion", "processed"]
    text = explain(path, 1)
    assert "Missing: congestion, processed." in text
    assert "nothing but the number of instances" in text


def test_each_opening_is_a_run_of_its_own(file: Path) -> None:
    with Ledger.open(file, "again") as ledger:
        ControlLoop(Rule(Holding(), Limits()), Machine(), ledger).step(observed(5.0))
    again = decisions(file, run=2, shadows=False)
    assert (column(again, "label"), column(again, "step")) == (["again"], [0])


def test_a_step_in_which_the_controller_failed_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    with Ledger.open(path) as ledger:
        loop = ControlLoop(Rule(Failing(), Limits()), Machine(), ledger)
        with pytest.raises(ZeroDivisionError):
            loop.step(observed(5.0))
        ControlLoop(Rule(Holding(), Limits()), Machine(), ledger).step(observed(10.0))
    assert column(decisions(path), "time_seconds") == [10.0]


def test_a_table_is_a_data_frame_in_any_library(file: Path) -> None:
    frame = nw.from_native(decisions(file), eager_only=True)
    assert frame.filter(nw.col("role") == "driver").shape[0] == 6


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_exports_hold_every_decision(file: Path, tmp_path: Path, suffix: str) -> None:
    table, to = decisions(file), tmp_path / f"out{suffix}"
    export(table, to)
    match suffix:
        case ".parquet":
            assert pq.read_table(to).equals(table)
        case ".csv":
            back = pyarrow.csv.read_csv(to)
            assert back.column_names == table.column_names
            assert column(back, "why") == column(table, "why")
        case _:
            assert [json.loads(line) for line in to.read_text().splitlines()] == table.to_pylist()


def test_json_has_no_infinities(tmp_path: Path) -> None:
    export(pa.table({"latency_seconds": [float("inf"), 1.0]}), tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == '{"latency_seconds": null}\n{"latency_seconds": 1.0}\n'


def test_an_export_names_the_formats(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'.parquet', '.csv', '.jsonl'"):
        export(pa.table({}), tmp_path / "out.xlsx")
    with pytest.raises(UserError, match="no folder"):
        export(pa.table({}), tmp_path / "none" / "out.csv")


def test_files_that_are_no_ledger_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no ledger"):
        open_to_read(tmp_path / "absent")
    text = tmp_path / "text"
    text.write_text("so it is written")
    foreign = tmp_path / "foreign.db"
    made = sqlite3.connect(foreign)
    made.execute("CREATE TABLE t (x)")
    made.commit()
    made.close()
    for path, why in ((text, "not an SQLite file"), (foreign, "SQLite file of something else")):
        with pytest.raises(UserError, match=why):
            open_to_read(path)
        with pytest.raises(UserError, match=why):
            Ledger.open(path)
    with pytest.raises(UserError, match="no folder"):
        Ledger.open(tmp_path / "none" / "run.ledger")


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_ledger_of_another_version_is_refused(file: Path, version: int) -> None:
    made = sqlite3.connect(file)
    made.execute(f"PRAGMA user_version = {version}")
    made.close()
    for opened in (open_to_read, Ledger.open):
        with pytest.raises(UserError, match=f"version {version}, .*writes version {VERSION}; use the tidegate that"):
            opened(file)


def test_a_ledger_that_cannot_be_written_is_the_machines_fault(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "run.ledger")
    loop = ControlLoop(Rule(Holding(), Limits()), Machine(), ledger)
    ledger.close()
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        loop.step(observed(5.0))
