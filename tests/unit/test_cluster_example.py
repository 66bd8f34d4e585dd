"""The parts of the cluster demo that need no cluster: its load, and what it says without a browser."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from examples.cluster import load, picture
from examples.cluster.load import Arrivals, Phase
from examples.cluster.standalone import Cluster, _free_ports


def rows_of(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


def test_a_phase_ends_when_there_are_as_many_executors_and_not_before_its_least_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "FILE_SECONDS", 0.02)
    (tmp_path / "in").mkdir()
    began = time.monotonic()
    # One executor is there at once, two never are.
    arrivals = Arrivals(tmp_path / "in", [Phase(100, 1, 0.2, 9.0), Phase(100, 2, 0.0, 0.3)], lambda: 1)
    arrivals.start()
    arrivals.join(10)
    assert 0.5 <= time.monotonic() - began < 5
    assert arrivals.complete
    assert rows_of(tmp_path / "in") == arrivals.sent.total()


def test_no_more_calls_wait_than_the_most_that_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "FILE_SECONDS", 0.01)
    monkeypatch.setattr(load, "MOST_WAITING", 30)
    (tmp_path / "in").mkdir()
    arrivals = Arrivals(tmp_path / "in", [Phase(1_000, 2, 0.0, 0.3)], lambda: 1)
    arrivals.start()
    arrivals.join(10)
    assert 30 <= arrivals.sent.total() <= 41, "three files, and the last call"


def test_what_is_ended_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    arrivals = Arrivals(tmp_path / "in", [Phase(10, 2, 60.0, 90.0)], lambda: 1)
    arrivals.start()
    arrivals.end()
    arrivals.join(10)
    assert not arrivals.is_alive()
    assert not arrivals.complete


def test_without_a_browser_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "BROWSERS", ("no-such-browser",))
    assert (
        picture.page_picture(tmp_path / "run.ledger", tmp_path / "page.png") == "there is no Chromium on this machine"
    )


def test_a_master_that_does_not_answer_has_no_workers() -> None:
    (port,) = _free_ports(1)
    silent = Cluster("spark://127.0.0.1:1", f"http://127.0.0.1:{port}/json/", ())
    assert (silent.workers(), silent.cores_in_use()) == (0, 0)
