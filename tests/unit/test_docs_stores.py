"""The snippets of docs/queries.md about stores and classes run, and give what their text says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidegate as tg
from tidegate.testing import answer

GUIDE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")
TIME = pa.timestamp("us", tz="UTC")
FLOWS = pa.schema([("ts", TIME), ("src", pa.string()), ("dst", pa.string()), ("bytes", pa.int64())])
TRADES = pa.schema([("ts", TIME), ("symbol", pa.string()), ("price", pa.float64()), ("volume", pa.int64())])


def run_snippet(mark: str, folder: Path, result: str, **names: Any) -> dict[str, Any]:
    """Run the block that holds a text, with its last expression assigned to a name."""
    (block,) = (each for each in re.findall(r"^```python\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE) if mark in each)
    file = folder / "snippet.py"
    file.write_text(block.replace("\nflows.key_by", f"\n{result} = flows.key_by"), encoding="utf-8")
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names := {"tg": tg, "pa": pa, **names})
    return names


def rows(schema: pa.Schema, *values: tuple[Any, ...]) -> pa.Table:
    moments = [(datetime(2026, 1, 1, 9, minute, tzinfo=UTC), *rest) for minute, rest in enumerate(values)]
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in moments], schema)


def test_the_store_counts_destinations(tmp_path: Path) -> None:
    flows = tg.stream(rows(FLOWS, ("a", "x", 1), ("a", "y", 2), ("b", "x", 3), ("a", "x", 4)), time="ts")
    query = run_snippet("def scan(window", tmp_path, "query", flows=flows)["query"]
    found = sorted((row["src"], row["destinations"]) for row in answer(query).rows.to_pylist())
    assert found == [("a", 1), ("a", 2), ("b", 1)]


def test_the_class_averages_prices(tmp_path: Path) -> None:
    trades = tg.stream(rows(TRADES, ("a", 2.0, 600), ("b", 1.0, 999), ("a", 4.0, 400), ("b", 3.0, 1)), time="ts")
    query = run_snippet("class Vwap", tmp_path, "averages", trades=trades)["averages"]
    found = sorted((row["symbol"], row["vwap"]) for row in answer(query).rows.to_pylist())
    assert found == [("a", 2.8), ("b", 1.002)]
