"""Predicates: what a function or an expression becomes, what that means, and that loops mean the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import DataError, QueryError, SlowWarning
from tidegate.operators.joins.encode_side import TextCodes, TupleArrays
from tidegate.operators.joins.find_pairs import PairFailed, PairFinder, Reach
from tidegate.query.predicates.bounds import band_of
from tidegate.query.predicates.trace import Untraceable, trace
from tidegate.query.predicates.tree import Tree, columns_of, evaluate

SCHEMA = pa.schema(
    [("n", pa.int64()), ("x", pa.float64()), ("flag", pa.bool_()), ("k", pa.string()), ("at", pa.timestamp("us"))]
)


def traced(function: Callable[[Any, Any], Any]) -> Tree:
    return trace(function, SCHEMA, SCHEMA, "pairs")


def test_branches_of_a_function_become_one_tree() -> None:
    def near(l: Any, r: Any) -> Any:
        if l.k in ("a", "b"):
            return 0 <= l.n - r.n < 5
        return not l.flag

    assert str(traced(near)) == (
        "(((l.n - r.n) >= 0) and ((l.n - r.n) < 5)) if (l.k == 'a') else "
        "((((l.n - r.n) >= 0) and ((l.n - r.n) < 5)) if (l.k == 'b') else (not l.flag))"
    )


@pytest.mark.parametrize(
    ("function", "construct"),
    [
        (lambda l, r: l.k.startswith("a"), "'.startswith' of l.k"),
        (lambda l, r: math.sin(l.x) > r.x, "np.sin"),
        (lambda l, r: l.n is None, "'is'"),
        (lambda l, r: isinstance(l.n, int), "isinstance"),
        (lambda l, r: l.k < r.k, "'<' of text and text"),
        (lambda l, r: l.n in {1, 2}, "set"),
        (lambda l, r: all(getattr(l, "n") == i for i in range(3)), "getattr"),  # noqa: B009 - what is tested
    ],
)
def test_what_cannot_be_traced_is_named(function: Callable[[Any, Any], Any], construct: str) -> None:
    with pytest.raises(Untraceable, match=construct):
        traced(function)


def test_a_predicate_that_cannot_be_compiled_warns_and_works() -> None:
    rows = pa.table({"ts": pa.array([0, 1], pa.timestamp("us")), "k": ["ab", "b"]})
    words = tg.stream(rows, time="ts")
    with pytest.warns(SlowWarning, match=r"step 'join_1': .*interpreted.*'\.startswith' of l\.k"):
        query = words.join(words, within="5us", where=lambda l, r: l.k.startswith("a"))
    assert "interpreted pair by pair" in " ".join(query.explain(runtime="local").split())
    assert sum(table.num_rows for table in tg.start(query)) == 2


def test_unknown_columns_and_results_that_are_no_truth_are_refused() -> None:
    with pytest.raises(QueryError, match=r"the right tuple has no column 'y'; it has 'n', 'x'"):
        traced(lambda l, r: l.n < r.y)
    with pytest.raises(QueryError, match="true or false, and this one returns a int"):
        traced(lambda l, r: l.n - r.n)


@pytest.mark.parametrize(
    ("function", "band"),
    [
        (lambda l, r: abs(l.n - r.n) <= 10, "l.n - r.n from -10 to 10"),
        (lambda l, r: (r.x - 10 <= l.x) & (l.x <= r.x + 10), "l.x - r.x from -10 to 10"),
        (lambda l, r: 3 < r.n - l.n <= 5 and l.x > 2, "l.n - r.n from -5 to -3"),
        (lambda l, r: np.abs(r.n - (l.n + 1)) <= 10, "l.n - r.n from -11 to 9"),
        (lambda l, r: r.at - l.at < timedelta(seconds=1) and r.at >= l.at, "l.at - r.at from -1000000 to 0"),
        (lambda l, r: l.n == r.n + 2, "l.n - r.n from 2 to 2"),
        (lambda l, r: l.n <= r.n, None),
        (lambda l, r: (abs(l.n - r.n) <= 10) | l.flag, None),
        (lambda l, r: (abs(l.n - r.n) <= 10) & (l.n // r.n > 1), None),
        (lambda l, r: abs(l.n - l.x) <= 10, None),
    ],
)
def test_bands_are_recognised(function: Callable[[Any, Any], Any], band: str | None) -> None:
    found = band_of(traced(function))
    assert (None if found is None else str(found)) == band


NUMBERS = [None, 0, 1, -3, 7]
FLOATS = [None, 0.0, -0.0, 0.5, -2.25, math.inf, math.nan]
LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "three values": lambda l, r: ((l.n > r.n) & ~(l.x < r.x)) | l.flag,
    "and, or, not": lambda l, r: (l.n > r.n and not l.x < r.x) or r.flag,
    "a branch on null": lambda l, r: (l.x > 0 if l.flag else l.x >= 0.5) if r.flag else l.n == r.n,
    "null asked for": lambda l, r: (l.n == None) | (r.flag != l.flag),  # noqa: E711 - asks for null
    "division": lambda l, r: l.x / r.x > 1 or l.n / r.n <= 0,
    "functions": lambda l, r: np.sqrt(abs(l.x)) + -l.n < np.floor(r.x) * 2,
    "texts": lambda l, r: (l.k == "a") != (l.k == r.k),
}


def tuples() -> list[dict[str, Any]]:
    made = []
    for place, (n, x) in enumerate(itertools.product(NUMBERS, FLOATS)):
        made.append({"n": n, "x": x, "flag": (None, True, False)[place % 3], "k": ("a", None, "b", "")[place % 4]})
    return made


def columns(tree: Tree, side: Any, codes: TextCodes, rows: list[dict[str, Any]]) -> TupleArrays:
    values, valid = [], []
    for column in columns_of(tree, side):
        given = [row[column.name] for row in rows]
        valid.append(np.array([value is not None for value in given]))
        if column.kind == "text":
            values.append(codes.encode(pa.array(given, pa.string())))
        else:
            dtype = {"int": np.int64, "float": np.float64, "bool": np.bool_}[column.kind]
            values.append(np.array([0 if value is None else value for value in given], dtype))
    empty = np.zeros(len(rows), np.int64)
    return TupleArrays(empty, np.arange(len(rows)), (), tuple(values), tuple(valid), any(not v.all() for v in valid))


@pytest.mark.parametrize("name", LOGIC)
@pytest.mark.parametrize("nulls", [True, False])
def test_a_loop_means_what_the_tree_means(name: str, nulls: bool) -> None:
    tree = traced(LOGIC[name])
    rows = [row for row in tuples() if nulls or None not in row.values()]
    codes = TextCodes(["a"])
    left, right = (columns(tree, side, codes, rows) for side in (0, 1))
    reach = Reach(
        np.zeros(len(rows), np.int64), np.full(len(rows), len(rows)), np.array([0, 9]), np.array([9, len(rows)])
    )
    finder = PairFinder(tree, 0, codes, None)
    made = {
        pair
        for found in finder.pairs(0, left, right, reach, decide=True)
        for pair in zip(found.left.tolist(), found.right.tolist(), strict=True)
    }
    expected = {
        (i, j) for (i, l), (j, r) in itertools.product(enumerate(rows), repeat=2) if evaluate(tree, l, r) is True
    }
    assert made == expected
    assert expected
    assert len(expected) < len(rows) ** 2


def test_a_whole_number_divided_by_zero_stops_the_query_with_the_pair() -> None:
    tree = traced(lambda l, r: l.n // r.n > 1)
    rows = [{"n": 4}, {"n": 0}]
    left, right = (columns(tree, side, TextCodes(), rows) for side in (0, 1))
    reach = Reach(np.zeros(2, np.int64), np.full(2, 2), np.array([0]), np.array([2]))
    with pytest.raises(PairFailed):
        list(PairFinder(tree, 0, TextCodes(), None).pairs(0, left, right, reach, decide=True))
    table = pa.table({"ts": pa.array([0, 1], pa.timestamp("us")), "n": [4, 0]})
    stream = tg.stream(table, time="ts")
    query = stream.join(stream, within="5us", where=lambda l, r: l.n // r.n > 1)
    with pytest.raises(DataError, match=r"divides a whole number by zero on the pair l = .*'n': 0"):
        list(tg.start(query))
    lazy = stream.join(stream, within="5us", where=lambda l, r: r.n != 0 and l.n // r.n >= 1)
    assert sum(table.num_rows for table in tg.start(lazy)) == 1


def test_whole_numbers_are_exact_however_large() -> None:
    table = pa.table({"ts": pa.array([0, 1], pa.timestamp("us")), "n": [2**62, -(2**62)]})
    stream = tg.stream(table, time="ts")
    query = stream.join(stream, within="5us", where=lambda l, r: l.n - r.n <= 0)
    pairs = {(row["n"], row["n_right"]) for made in tg.start(query) for row in made.to_pylist()}
    assert pairs == {(2**62, 2**62), (-(2**62), 2**62), (-(2**62), -(2**62))}


def test_an_expression_is_read_as_a_tree_where_it_can_be() -> None:
    table = pa.table({"ts": pa.array([0, 1], pa.timestamp("us")), "n": [1, 9], "k": ["a", "b"]})
    stream = tg.stream(table, time="ts")
    compiled = stream.join(stream, within="5us", where=(nw.col("n") - nw.col("n_right")).abs() <= 3)
    assert "by sorting (l.n - r.n from -3 to 3); the predicate is compiled" in " ".join(
        compiled.explain(runtime="local").split()
    )
    whole = stream.join(stream, within="5us", where=nw.col("k").str.starts_with("a"))
    assert "applied to whole columns of pairs" in " ".join(whole.explain(runtime="local").split())
    for query in (compiled, whole):
        assert sum(made.num_rows for made in tg.start(query)) == 2
