"""What is shown of a query that is being scaled: to Prometheus, and to people."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from tests.kit.ledger_loops import Swinging
from tidegate.cli.ledger import status_view
from tidegate.cli.main import main
from tidegate.control.controller import ChangeOutcome, Limits
from tidegate.control.events import Notice, Noticed
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule
from tidegate.elastic.metrics import MetricsServer, QueryCollector
from tidegate.elastic.scaling import SubqueryStatus
from tidegate.errors import EnvironmentFault
from tidegate.tables import plain
from tidegate.telemetry.ledger import Ledger
from tidegate.telemetry.read import ledger_status


class Obeying:
    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        return ChangeOutcome(True)


def seen(subquery: str = "speed") -> Observation:
    return Observation(subquery, 5.0, 1.0, 2, offered=100.0, processed=90.5, busy=(0.5, 1.0), backlog=0.0)


def exposition(latest: dict[str, SubqueryStatus]) -> str:
    return generate_latest(QueryCollector(lambda: latest)).decode()


def test_prometheus_gets_what_is_known_and_no_line_for_what_is_not() -> None:
    text = exposition({'odd"name\\': SubqueryStatus(seen(), changes=3)})
    assert 'tidegate_processed_per_second{subquery="odd\\"name\\\\"} 90.5\n' in text
    assert "tidegate_busy" in text
    assert 'tidegate_backlog{subquery="odd\\"name\\\\"} 0.0\n' in text, "a known zero is a line"
    assert "latency" not in text
    assert text.count("# TYPE tidegate_instances gauge") == 1
    assert text.endswith('tidegate_changes_total{subquery="odd\\"name\\\\"} 3.0\n')
    assert exposition({}) == ""


def test_figures_are_served_on_the_loopback_address_alone() -> None:
    server = MetricsServer(0, lambda: {"speed": SubqueryStatus(seen())})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            assert "tidegate_instances" in answer.read().decode()
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(EnvironmentFault, match="cannot be served"):
            MetricsServer(server.server_port, dict)
    finally:
        server.close()


def ledger(path: Path) -> Path:
    with Ledger.open(path, "a job") as record:
        loop = ControlLoop(Rule(Swinging(), Limits(1, 4)), Obeying(), record)
        loop.step(Observation("speed", 1.0, 1.0, 1, processed=10.0, busy=(0.9,)))
        loop.step(seen())
        record(Noticed("speed", 1, 6.0, Notice.INSTANCES_LOST, "2 became 1, which was not requested"))
    return path


def test_top_shows_figures_changes_and_notices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ledger(tmp_path / "run.ledger")
    assert main(["top", str(path), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "run 1 of a job" in shown
    assert "speed" in shown
    assert "90" in shown
    assert "75%" in shown
    assert "–" in shown, "what is not known is a dash"
    assert "speed: 2 → 1, swinging: busy 75%" in shown
    assert "speed: 1 → 2, swinging: busy 90%" in shown
    assert "instances lost: 2 became 1" in shown


def test_top_fits_the_screen_and_survives_an_empty_ledger(tmp_path: Path) -> None:
    told = ledger_status(ledger(tmp_path / "run.ledger"))
    assert max(map(len, plain(status_view(told), 60).splitlines())) <= 60
    assert plain(status_view(None)) == "the ledger has no run yet"


def test_the_ledger_lists_notices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", str(ledger(tmp_path / "run.ledger")), "--notices"]) == 0
    assert "instances lost: 2 became 1, which was not requested" in capsys.readouterr().out
