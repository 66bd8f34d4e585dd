"""The page without a browser: who may read it, what it answers, and what becomes of bad ledgers, ports and questions."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPMessage
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import tidegate as tg
from tests.kit.ledger_loops import Endless
from tests.kit.page_jobs import calls_query, swinging_ledger
from tidegate.cli.main import main
from tidegate.errors import EnvironmentFault, UserError
from tidegate.page.server import PageServer
from tidegate.page.view import POINTS, look
from tidegate.telemetry.ledger import Ledger


@pytest.fixture
def served(tmp_path: Path) -> Iterator[PageServer]:
    with closing(PageServer(swinging_ledger(tmp_path / "run.ledger"), 0)) as server:
        yield server


def ask(url: str, path: str = "/", method: str = "GET", **asked: object) -> tuple[int, HTTPMessage, str]:
    """The status, headers and text of an answer; the token of the address unless another is given."""
    parts = urlsplit(url)
    given = {"token": parse_qs(parts.query)["token"][0], **asked}
    query = "&".join(f"{name}={value}" for name, value in given.items() if value is not None)
    request = urllib.request.Request(f"http://{parts.netloc}{path}?{query}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def told(url: str, path: str, **asked: object) -> Any:
    """The value of an answer, as strictly as a browser parses it: NaN and Infinity are errors there."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(ask(url, path, **asked)[2], parse_constant=refuse)


@pytest.mark.parametrize("path", ["/", "/data", "/explain", "/replay", "/elsewhere"])
@pytest.mark.parametrize("token", [None, "", "wrong", "ü"])
def test_without_the_token_nothing_is_told(served: PageServer, path: str, token: str | None) -> None:
    encoded = None if token is None else urllib.request.quote(token)  # type: ignore[attr-defined]
    status, _, text = ask(served.url, path, token=encoded)
    assert status == 403
    assert text == "This page needs the token of the address that was printed.\n"


def test_the_page_is_one_document_that_may_fetch_nothing_elsewhere(served: PageServer) -> None:
    status, headers, text = ask(served.url)
    assert status == 200
    assert "http://" not in text and "https://" not in text, "nothing is loaded from elsewhere"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; img-src data:; connect-src 'self';")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert served.server_address[0] == "127.0.0.1"


def test_it_is_for_reading(served: PageServer) -> None:
    assert ask(served.url, "/data", method="POST")[0] == 405
    assert ask(served.url, "/../../etc/passwd")[0] == 404


def test_a_look_tells_what_came_after_the_last_one(served: PageServer) -> None:
    first = told(served.url, "/data")
    assert [row["time_seconds"] for row in first["figures"]] == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
    assert [box["name"] for box in first["graph"]["boxes"]] == ["source calls", "q", ""]
    assert first["flows"][-1]["rates"] == [["source calls", "q", 200.0], ["q", "", 20.0]]
    assert first["flows"][-1]["latency_max_seconds"] is None, "what is not finite is not told"
    assert first["run"] == {"run": 1, "label": "run of q", "state": "ended"}
    assert [(each["instances_before"], each["instances"]) for each in first["changes"]][:2] == [(2, 1), (1, 2)]
    assert {each["controller"] for each in first["shadows"]} == {"holding"}
    assert first["shards"]["q"]["mapping"] == [0, 1]
    assert first["shards"]["q"]["loads"] == [100.0, 50.0]
    assert [each["kind"] for each in first["notices"]] == ["instances lost"]
    again = told(served.url, "/data", **first["cursor"])
    assert [again[name] for name in ("figures", "flows", "changes", "shadows", "notices")] == [[]] * 5
    assert again["latest"]["q"]["time_seconds"] == 30.0
    assert ("graph" in again, again["shards"]) == (False, {}), "what does not change is told once"


def test_a_decision_is_explained_as_on_the_command_line(
    served: PageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["ledger", str(tmp_path / "run.ledger"), "--explain", "3"])
    assert told(served.url, "/explain", decision=3).split() == capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("path", "asked", "message"),
    [
        ("/explain", {"decision": 999}, "there is no decision 999; they go from 1 to 12"),
        ("/explain", {"decision": "x"}, "there is no decision 0"),
        ("/replay", {"controller": "oracle"}, "there is no controller 'oracle'; choose one of"),
        ("/data", {"run": 7}, "there is no run 7; there is '1'"),
    ],
)
def test_questions_without_an_answer_are_told_so(
    served: PageServer, path: str, asked: dict[str, object], message: str
) -> None:
    assert ask(served.url, path, **asked)[0] == 400
    assert message in told(served.url, path, **asked)["error"]


def test_what_is_no_ledger_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no ledger " * 100)
    with pytest.raises(UserError, match="is not a ledger: it is not an SQLite file"):
        PageServer(tmp_path / "notes.txt", 0)
    assert main(["page", str(tmp_path / "notes.txt")]) == 2
    assert main(["page", str(tmp_path / "nothing")]) == 2


def test_a_ledger_that_is_damaged_meanwhile_is_told_so(served: PageServer, tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    path.write_bytes(path.read_bytes()[:4096] + b"\0" * 40_000)
    status, _, text = ask(served.url, "/data")
    assert (status, "error" in json.loads(text)) == (400, True)


def test_a_port_that_is_taken_is_named() -> None:
    query = calls_query(0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            EnvironmentFault, match=f"page: port {port} of 127.0.0.1 cannot be served.*or 0 for a free one"
        ):
            tg.start(query, to=lambda table: None, page=port)
    with pytest.raises(EnvironmentFault, match="page: port 70000"):
        tg.start(calls_query(0.1), to=lambda table: None, page=70_000)
    with pytest.raises(UserError, match="page is a port, 0 for a free one, or True for 8787; got '80'"):
        tg.start(calls_query(0.1), to=lambda table: None, page="80")  # type: ignore[arg-type]


def test_a_long_run_is_thinned_and_every_change_is_told(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "run.ledger") as ledger:
        loop = Endless(ledger)
        for step in range(2 * POINTS + 10):
            loop(step)
    told = look(tmp_path / "run.ledger")
    times = [row["time_seconds"] for row in told["figures"]]
    assert POINTS / 2 < len(times) <= POINTS
    assert times == sorted(times)
    assert len(told["changes"]) == 1_000, "the last ones"


def test_a_page_without_a_ledger_forgets_what_is_old(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "run.ledger", keep_seconds=100.0) as ledger:
        loop = Endless(ledger)
        for step in range(600):
            loop(step)
    told = look(tmp_path / "run.ledger")
    assert told["figures"][0]["time_seconds"] >= 5.0 * 512 - 100, "what was old at the last time it forgot"
    assert told["figures"][-1]["time_seconds"] == 3_000.0


def test_a_job_is_shown_until_it_ends(capfd: pytest.CaptureFixture[str]) -> None:
    job = tg.start(calls_query(2.5), to=lambda table: None, page=0)
    url = job.page_url
    assert url is not None
    assert capfd.readouterr().err == f"tidegate page: {url}\n"
    assert not any(running.work.meter.on for running in job.running.graph.subqueries), "the data path is left alone"
    seen = told(url, "/data")
    assert [box["title"] for box in seen["graph"]["boxes"]] == ["calls", "per_customer", "per_second", "results"]
    assert job.wait()
    with pytest.raises(OSError):
        ask(url)
    assert job.instances == {"per_customer": 2, "per_second": 2}, "a page changes nothing"


def test_a_job_without_a_page_has_no_address() -> None:
    job = tg.start(calls_query(0.1), to=lambda table: None)
    assert job.page_url is None
    assert job.scaling is None
    job.wait()
