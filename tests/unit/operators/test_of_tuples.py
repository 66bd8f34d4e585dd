"""Aggregates that keep tuples refer to them: each is held once, and columns are compared only where ties demand it."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.operators import columns
from tidegate.operators.columns import rough_codes, sort_rows
from tidegate.operators.leading import may_lead
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import WindowAggregate
from tidegate.query.schema import canonical_tuple

TIME = pa.timestamp("us")
SCHEMA = pa.schema([("ts", TIME), ("n", pa.float64()), ("text", pa.string()), ("words", pa.list_(pa.string()))])


def tuples(count: int, seed: int) -> pa.Table:
    """Rows with many ties, nulls, NaN and lists."""
    draw = random.Random(seed)
    rows = [
        {
            "ts": draw.randrange(3),
            "n": draw.choice([None, 0.0, 1.5, float("nan")]),
            "text": draw.choice([None, "", "a", "ab"]),
            "words": draw.choice([None, [], ["b", "a"], ["b"]]),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def panes_of(**aggregates: tg.Aggregate) -> Panes:
    stream = tg.stream({field.name: field.type for field in SCHEMA}, time="ts", name="texts")
    node = stream.key_by(tg.each("words", name="word")).window("10 us").aggregate(**aggregates).node
    assert isinstance(node, WindowAggregate)
    return Panes(node)


@pytest.mark.parametrize("descending", [False, True])
def test_rows_are_sorted_in_canonical_order(descending: bool) -> None:
    for seed in range(20):
        table = tuples(40, seed)
        times = np.asarray(table.column("ts").cast(pa.int64()))
        order = sort_rows(times, [column.combine_chunks() for column in table.columns], descending)
        rows = [canonical_tuple(row, SCHEMA, "ts") for row in table.to_pylist()]
        assert [rows[at] for at in order] == sorted(rows, reverse=descending)


def test_columns_that_no_tie_needs_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    order_codes = columns.order_codes
    monkeypatch.setattr(columns, "order_codes", lambda array: compared.append(len(array)) or order_codes(array))
    sort_rows(np.array([3, 1, 2]), [pa.array(["a", "b", "c"])])
    assert compared == []
    sort_rows(np.array([3, 1, 3]), [pa.array(["a", "b", "c"]), pa.array([[1], [2], [3]])])
    assert compared == [2]


def test_a_tuple_with_many_keys_is_held_once() -> None:
    panes = panes_of(all=tg.collect("text"))
    text = "x" * 10_000
    words = [f"word {number}" for number in range(1_000)]
    one = pa.Table.from_pylist([{"ts": 1, "n": 1.0, "text": text, "words": words}], schema=SCHEMA)
    lifted = [panes.lift(one) for _ in range(3)]
    assert lifted[0].num_rows == 1_000
    merged = panes.merge(lifted)
    assert merged.nbytes < 20 * len(text), "each of 1,000 keys must not hold the text"
    (results,) = panes.results(merged, 0, 0)
    assert results.column("all").to_pylist() == [[text] * 3] * 1_000


def test_tuples_that_no_key_needs_any_more_are_forgotten() -> None:
    panes = panes_of(start=tg.first("text"))
    parts = [
        pa.Table.from_pylist([{"ts": at, "n": 1.0, "text": "x" * 1_000, "words": ["a"]}], schema=SCHEMA)
        for at in range(9)
    ]
    merged = panes.merge([panes.lift(part) for part in parts])
    assert merged.nbytes < 2_000


def test_extremes_of_text_are_those_of_python() -> None:
    for seed in range(10):
        panes = panes_of(least=tg.min("text"), most=tg.max("text"))
        table = tuples(30, seed)
        merged = panes.merge([panes.lift(table.slice(0, 11)), panes.lift(table.slice(11))])
        rows = {row["word"]: row for part in panes.results(merged, 0, 0) for row in part.to_pylist()}
        for word in ("a", "b"):
            texts = [
                row["text"] for row in table.to_pylist() if word in (row["words"] or []) and row["text"] is not None
            ]
            assert (rows[word]["least"], rows[word]["most"]) == (min(texts, default=None), max(texts, default=None))


def test_states_over_tuples_with_nan_are_merged_where_windows_overlap() -> None:
    stream = tg.stream({field.name: field.type for field in SCHEMA}, time="ts", name="texts")
    node = stream.key_by("text").window("400 us", every="1 us").aggregate(all=tg.collect("n")).node
    assert isinstance(node, WindowAggregate)
    rows = [{"ts": at % 600, "n": float("nan"), "text": "k", "words": []} for at in range(3_000)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    panes = Panes(node)
    counts = [len(row) for part in panes.results(panes.lift(table), 0, 150) for row in part.column("all").to_pylist()]
    assert counts == [5 * 400] * 151


def test_pools_of_two_parts_of_one_table_are_told_apart() -> None:
    panes = panes_of(all=tg.collect("text"))
    rows = [{"ts": at, "n": 1.0, "text": f"text {at}", "words": ["a"]} for at in range(6)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    merged = panes.merge([panes.lift(table.slice(0, 3)), panes.lift(table.slice(3))])
    (results,) = panes.results(merged, 0, 0)
    assert results.column("all").to_pylist() == [[row["text"] for row in rows]]


@pytest.mark.parametrize("limit", [1, 3])
def test_what_may_lead_are_the_least_codes_and_those_that_tie(limit: int) -> None:
    draw = np.random.default_rng(7)
    codes, rows, groups = draw.integers(0, 6, 40), draw.integers(0, 40, 200), draw.integers(0, 9, 200)
    codes[0] = 2**63 - 1
    found = set(may_lead(codes, rows, groups, 9, limit).tolist())
    for slot in range(9):
        own = [at for at in range(200) if groups[at] == slot]
        last = sorted(codes[rows[at]] for at in own)[:limit][-1]
        assert {at for at in own if at in found} == {at for at in own if codes[rows[at]] <= last}


def test_codes_of_texts_never_contradict_their_order() -> None:
    texts = [
        "a common beginning",
        "a common beginning\0",
        "a common beginning, no 10",
        "a common beginning, no 9",
        "a common beginnings",
        "a common beginningé",
    ]
    codes = rough_codes(pa.array(["a common", *texts]).slice(1))
    in_order = sorted(range(len(texts)), key=lambda at: texts[at].encode())
    assert (np.diff(codes[in_order]) >= 0).all()
    assert len(set(codes.tolist())) == len(texts) - 1, "only what ends with zero bytes ties here"
