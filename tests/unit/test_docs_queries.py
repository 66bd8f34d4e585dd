"""The guide to queries shows code that does what it says."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("part", ["Times of arrival", "Idle streams"])
def test_what_happens_at_the_edge_of_a_stream_is_what_is_shown(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.split(f"\n### {part}\n")[1].split("\n### ")[0]
    (_, code), (kind, shown) = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert kind == "text"
    exec(code, {"tg": tg, "pa": pa})
    assert capsys.readouterr().out == shown


def test_late_tuples_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    (_, code), (kind, shown) = blocks("Late tuples as a stream")
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


def test_the_visits_of_apply_are_compiled_and_right() -> None:
    schema = {"ts": pa.timestamp("us"), "user": pa.string()}
    seconds = [("ann", 0), ("ben", 1), ("ann", 2), ("ann", 30), ("ben", 40), ("ann", 50)]
    rows = [{"ts": second * 1_000_000, "user": user} for user, second in seconds]
    table = pa.Table.from_pylist(rows, schema=pa.schema(schema))
    (block,) = (text for _, text in blocks("Your own functions: apply") if "def visits" in text)
    text = block.replace("clicks.key_by", "made = clicks.key_by")
    linecache.cache["<visits>"] = len(text), None, text.splitlines(keepends=True), "<visits>"
    names: dict[str, Any] = {"tg": tg, "pa": pa, "clicks": tg.stream(table, time="ts", name="clicks")}
    exec(compile(text, "<visits>", "exec", dont_inherit=True), names)
    shown = " ".join(names["made"].explain(runtime="local").split())
    assert "update is compiled once there is enough to do" in shown
    seen: list[pa.Table] = []
    tg.run(names["made"], on="local", to=seen.append, progress=False)
    assert [(row["user"], row["clicks"]) for each in seen for row in each.to_pylist()] == [
        ("ann", 2),
        ("ben", 1),
        ("ann", 1),
    ]


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
