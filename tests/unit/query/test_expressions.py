"""Expressions of a Narwhals whose internals are not the ones we know: queries run as written, with the right answer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compile.fold_stateless import fold_stateless
from tidegate.errors import QueryError
from tidegate.query import expressions
from tidegate.query.nodes import walk
from tidegate.testing import answer, difference

TABLE = pa.table(
    {
        "ts": pa.array([0, 1, 2, 3, 9], pa.timestamp("us")),
        "k": ["a", "b", "a", "b", "a"],
        "x": [1, 2, 3, 4, 5],
        "text": ["x y", "y", "", None, "x"],
    }
)
X, K = nw.col("x"), nw.col("k")


def folded() -> tg.Stream:
    return (
        tg.stream(TABLE, time="ts", name="rows")
        .filter(X > 1)
        .filter(X < 5)
        .with_columns(y=X * 2)
        .select("ts", "k", "y")
    )


def words() -> tg.Stream:
    split = tg.stream(TABLE, time="ts", name="rows").with_columns(words=nw.col("text").str.split(" "))
    return split.key_by(tg.each("words", name="word")).window("4 us").aggregate(n=tg.count())


def aggregated() -> tg.Stream:
    rows = tg.stream(TABLE, time="ts", name="rows").filter((X > 1) & ~(K == "c"))
    return rows.key_by("k").window("4 us").aggregate(n=tg.count(), total=tg.sum("x"))


def joined() -> tg.Stream:
    rows = tg.stream(TABLE, time="ts", name="rows")
    return rows.join(rows, on="k", within="2 us", where=(X - nw.col("x_right")).abs() <= 2)


class Strange:
    """A function of an expression, as no version has it."""

    name, exprs, kwargs, str_as_lit = "col", (), {"names": ["x"]}, False
    kind = SimpleNamespace(name="UNHEARD_OF")


def strange(monkeypatch: pytest.MonkeyPatch, nodes: Any) -> None:
    """Make expressions look as if they came from another version; how Narwhals runs them stays the same."""
    monkeypatch.setattr(nw.Expr, "_of_another_version", nodes, raising=False)
    monkeypatch.setattr(expressions, "_NODES", "_of_another_version")


@pytest.mark.parametrize("nodes", [None, 7, [Strange()], [object()]])
@pytest.mark.parametrize("build", [folded, words, aggregated, joined])
def test_queries_run_unrewritten(build: Callable[[], tg.Stream], nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answer(build()).rows
    strange(monkeypatch, nodes)
    query = build()
    assert expressions.calls_of(X + 1) == ()
    assert difference(answer(query).rows, expected) is None
    assert difference(pa.concat_tables(tg.start(query)), expected) is None


def test_nothing_is_folded_and_the_text_is_narwhals_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(walk(fold_stateless(folded().node)))) == 4
    strange(monkeypatch, None)
    assert len(list(walk(fold_stateless(folded().node)))) == 5
    assert repr(X > 1) in " ".join(folded().explain("local").split())


@pytest.mark.parametrize(
    "expr", [X.sum(), X.cum_sum(), X.shift(1), X.is_unique(), X.fill_null(strategy="forward"), X.mean().over("k")]
)
def test_what_looks_at_other_rows_is_still_refused(expr: nw.Expr, monkeypatch: pytest.MonkeyPatch) -> None:
    strange(monkeypatch, None)
    with pytest.raises(QueryError, match="looks at other rows"):
        tg.stream(TABLE, time="ts").with_columns(y=expr)


def test_unknown_columns_are_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    strange(monkeypatch, None)
    with pytest.raises(QueryError, match=r"unknown column .*zz.*; the stream has 'ts', 'k', 'x', 'text'"):
        tg.stream(TABLE, time="ts").filter(nw.col("zz") > 1)
