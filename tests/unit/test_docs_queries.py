"""The guide to queries shows code that does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg

GUIDE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")


def blocks(section: str) -> list[tuple[str, str]]:
    """The language and the lines of each block of a section."""
    text = GUIDE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_running_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"tg": tg, "pa": pa}
    *code, (kind, shown) = blocks("Running state: running")
    assert kind == "text"
    for _, block in code:
        exec(block, names)
    assert capsys.readouterr().out == shown


def test_several_results_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    (_, code), (kind, shown) = blocks("Several results")
    assert kind == "text"
    exec(code, {"tg": tg, "pa": pa, "nw": nw})
    assert capsys.readouterr().out == shown


def test_orders_without_payment_are_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"tg": tg, "pa": pa}
    *code, (kind, shown) = blocks("Outer, semi and anti joins")
    assert kind == "text"
    for _, block in code:
        exec(block, names)
    assert capsys.readouterr().out == shown


def test_sessions_are_what_is_shown() -> None:
    clicks = tg.stream({"ts": pa.timestamp("us"), "user": pa.string(), "page": pa.string()}, time="ts", name="clicks")
    names: dict[str, object] = {"tg": tg, "clicks": clicks}
    ((_, block),) = blocks("Sessions")
    exec(block, names)
    visits = names["visits"]
    assert isinstance(visits, tg.Stream)
    assert visits.schema.names == ["ts", "user", "window_start", "window_end", "pages", "landing"]


def test_as_of_joins_print_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"tg": tg, "pa": pa}
    *code, (kind, shown) = blocks("As-of joins")
    assert kind == "text"
    for _, block in code:
        exec(block, names)
    assert capsys.readouterr().out == shown


def test_lookups_are_what_is_shown() -> None:
    names: dict[str, object] = {"tg": tg, "pa": pa, "nw": nw}
    seen = []
    for _, block in blocks("Lookups"):
        exec(block, names)
        placed = names["placed"]
        assert isinstance(placed, tg.Stream)
        seen.append(placed.schema.names)
    assert seen == [["ts", "id", "n", "ts_right", "city", "op"], ["ts", "id", "n", "city"]]


def test_windows_in_number_of_tuples_print_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"tg": tg, "pa": pa}
    (_, code), (kind, shown) = blocks("Windows in number of tuples")
    assert kind == "text"
    exec(code, names)
    assert capsys.readouterr().out == shown
