"""The state of a join: bounded by the window, forgotten in time, and the same whoever looks at it when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.operators.joins import encode_side, join_side
from tidegate.operators.joins.encode_side import TextCodes
from tidegate.operators.joins.join_side import JoinSide, RowBatches, SideSnapshot, merge_candidates
from tidegate.operators.joins.shared_join import SharedJoin
from tidegate.query.nodes import Join
from tidegate.watermark import END, START

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("n", pa.int64()), ("k", pa.string())])
SEGMENT = 100
JOINS: dict[str, dict[str, Any]] = {
    "all pairs": {"within": "300us", "where": lambda l, r: l.n > r.n + 10**9},
    "by band": {"within": "300us", "where": lambda l, r: abs(l.n - r.n) <= 3},
    "by key": {"within": "300us", "on": "k"},
    "full by key": {"within": "300us", "on": "k", "how": "full"},
    "semi by key": {"within": "300us", "on": "k", "how": "semi"},
    "windows by key": {"window": "300us", "every": "100us", "on": "k"},
    "windows": {"window": "300us", "every": "100us", "where": lambda l, r: l.n > r.n + 10**9},
}


def segment(number: int) -> pa.Table:
    times = number * SEGMENT + np.arange(SEGMENT)
    names = [f"{number}-{place % 10}" for place in range(SEGMENT)]
    return pa.table(
        [pa.array(times).cast(SCHEMA.field("ts").type), pa.array(times * 7 % 1000), pa.array(names)], schema=SCHEMA
    )


@pytest.mark.parametrize("kind", JOINS)
def test_memory_is_bounded_by_the_window(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_side, "LEAST_TEXTS", 50)
    stream = tg.stream(SCHEMA, time="ts")
    node = stream.join(stream, **JOINS[kind]).node
    state = SharedJoin(node)  # type: ignore[arg-type]  # it is a join
    state._codes._limit = 50
    state.attach(0, -1, START)
    held, taken, texts = [], [], []
    for number in range(120):
        before, after = (number * SEGMENT if number else START), (number + 1) * SEGMENT
        arrived = state.encode(number, ([segment(number)], [segment(number)]))
        if node.window is None:  # type: ignore[union-attr]
            list(state.pairs_within(number, arrived, None))
            list(state.decide(0, after))
        else:
            list(state.pairs_expired(number, before, after, None))
        state.acknowledge(0, number, after)
        state.compact()
        held.append(state.rows)
        taken.append(state.bytes)
        texts.append(state._codes.held)
    kept = {"full by key": 4 * 300, "semi by key": 3 * 300}.get(kind, 2 * 300)
    assert max(held) <= kept + 4 * SEGMENT
    assert max(taken[60:]) <= 1.05 * max(taken[20:60]), "memory grows"
    assert max(texts) <= 250
    state.acknowledge(0, 120, 2**63 - 1)
    assert state.rows == 0


def test_the_last_to_come_to_a_watermark_emits_what_leaves_alone_there() -> None:
    one, two = (tg.stream(SCHEMA, time="ts", name=name) for name in ("one", "two"))
    state = SharedJoin(one.join(two, on="k", within="300us", how="anti").node)  # type: ignore[arg-type]  # it is a join

    def left(tables: Iterator[pa.Table]) -> list[int]:
        return [time for table in tables for time in table.column("ts").cast(pa.int64()).to_pylist()]

    for reader in (0, 1):
        state.attach(reader, -1, START)
    for number in range(5):
        state.encode(number, ([segment(number).slice(0, 1)], []))
        state.settle(number)
    assert left(state.decide(0, 350)) == []
    assert left(state.decide(1, 301)) == [300], "the other one is further"
    assert left(state.decide(0, 450)) == []
    state.attach(2, 4, 450)
    assert left(state.decide(1, END)) == [400], "one that leaves takes nothing with it"
    state.detach(1)
    assert left(state.decide(2, 600)) == []
    assert left(state.decide(0, 500)) == [], "the last moment of a tuple belongs to those for a pair"
    assert left(state.decide(0, END)) == [500]
    assert left(state.decide(2, END)) == [600, 700]


KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "moment": (pa.timestamp("us", tz="UTC"), [1, 2, 3]),
    "day": (pa.date32(), [1, -2, 3]),
    "small": (pa.int8(), [1, None, -3]),
    "large": (pa.int64(), [2**63 - 1, -(2**63), None]),
    "half": (pa.float32(), [0.5, None, -0.0]),
    "yes": (pa.bool_(), [True, None, False]),
    "text": (pa.string(), ["a", None, ""]),
    "bytes": (pa.binary(), [None, b"", b"b"]),
    "struct": (pa.struct([("n", pa.int64())]), [None, {"n": 1}, {"n": None}]),
    "list": (pa.list_(pa.int64()), [[1], None, []]),
}


def side_of(schema: pa.Schema) -> JoinSide:
    stream = tg.stream(schema, time="ts")
    node = stream.join(stream, within="1us", where=lambda l, r: l.ts > r.ts).node
    assert isinstance(node, Join)
    return SharedJoin(node)._sides[0]


def add(side: JoinSide, rows: pa.RecordBatch) -> None:
    """Add rows, each a microsecond after the one before: times are numbers."""
    times = pa.array(np.arange(side.log.tail, side.log.tail + rows.num_rows)).cast(pa.timestamp("us"))
    table = pa.Table.from_batches([rows]).append_column("ts", times)
    side.add(0, side.encoder.encode(table.select(side.encoder.schema.names)))


def test_rows_of_all_kinds_are_found_by_number_and_stay_as_they_were_seen() -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
    batch = pa.record_batch([pa.array(values, kind) for kind, values in KINDS.values()], schema=schema)
    side = side_of(schema.append(pa.field("ts", pa.timestamp("us"))))

    def rows(seen: SideSnapshot, *numbers: int) -> list[dict[str, Any]]:
        return seen.rows(np.array(numbers, np.int64)).drop_columns(["ts"]).to_pylist()  # type: ignore[no-any-return]

    for _ in range(2_000):
        add(side, batch)
    before = side.snapshot()
    side.forget(3_000)
    add(side, batch.slice(1))
    wanted = 5_999, 3_001, 4_002, 3_001
    expected = batch.take(pa.array(np.array(wanted) % 3)).to_pylist()
    assert rows(before, *wanted) == rows(side.snapshot(), *wanted) == expected
    assert rows(before, 0) == batch.slice(0, 1).to_pylist()
    assert rows(side.snapshot(), 6_000, 6_001) == batch.slice(1).to_pylist()
    assert side.snapshot().rows(np.array([], np.int64)).schema == side.encoder.schema


@pytest.mark.parametrize("few", [join_side.FEW_ROWS, 0])
def test_rows_of_many_batches_are_taken_at_once_or_from_each(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_side, "FEW_ROWS", few)
    monkeypatch.setattr(join_side, "MANY_OF", 0)
    rows = RowBatches(pa.schema([("k", pa.string()), ("n", pa.int64())]))
    for first in range(10, 50, 10):
        batch = pa.record_batch([pa.array([f"{first + at}" for at in range(10)]), np.arange(10)], schema=rows.schema)
        rows = rows.with_rows(first, batch)
    wanted = np.array([49, 12, 31, 12, 30])
    assert rows.take(wanted).column("k").to_pylist() == ["49", "12", "31", "12", "30"]
    missing = np.array([False, True, False, False, True])
    assert rows.take(wanted, missing, ["k"]).to_pydict() == {"k": ["49", None, "31", "12", None]}


def test_rows_of_nobody_are_null() -> None:
    side = side_of(pa.schema([("n", pa.int64()), ("k", pa.string()), ("yes", pa.bool_()), ("ts", pa.timestamp("us"))]))
    add(side, pa.record_batch({"n": pa.array([None, 1]), "k": pa.array(["a", None]), "yes": pa.array([True, False])}))
    taken = side.snapshot().rows(np.array([1, -1, 0])).select(["n", "k", "yes"])
    assert taken.to_pydict() == {"n": [1, None, None], "k": [None, None, "a"], "yes": [False, None, True]}
    assert side.snapshot().rows(np.array([-1, -1])).select(["n", "k"]).to_pydict() == {"n": [None] * 2, "k": [None] * 2}


def test_rows_without_nulls_have_none_after_rows_with_some() -> None:
    side = side_of(pa.schema([("n", pa.int64()), ("ts", pa.timestamp("us"))]))
    add(side, pa.record_batch({"n": pa.array([None, 1])}))
    add(side, pa.record_batch({"n": pa.array([2, 3])}))
    assert side.snapshot().rows(np.array([3, 0, 1])).column("n").to_pylist() == [3, None, 1]
    assert side.snapshot().rows(np.array([2, 3])).column("n").to_pylist() == [2, 3]


@pytest.mark.parametrize("few_rows", [0, 1_000])
def test_rows_are_found_by_number_across_batches(few_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_side, "FEW_ROWS", few_rows)
    rows = RowBatches(pa.schema([("n", pa.int64())]))
    for first in range(0, 90, 10):
        rows = rows.with_rows(first, pa.record_batch({"n": np.arange(first, first + 10)}))
    wanted = np.array([85, 3, 44, 3, 0, 89])
    assert rows.take(wanted).column("n").to_pylist() == wanted.tolist()
    found = rows.merged()
    assert found is not None and found[:2] == (0, 80)
    merged = rows.replaced(*found)
    assert (len(merged.batches), merged.take(wanted).column("n").to_pylist()) == (1, wanted.tolist())
    later = rows.from_number(35)
    assert later.firsts[0] == 30
    assert later.take(wanted[:1]).column("n").to_pylist() == [85]


def test_neighbours_are_merged_a_few_at_a_time() -> None:
    assert merge_candidates([100] * 3, 10_000) is None
    assert merge_candidates([5000, *[100] * 9, 3], 10_000) == range(1, 10)
    assert merge_candidates([5000, *[100] * 9], 450) == range(1, 5)


def test_codes_of_texts_in_use_are_kept() -> None:
    codes = TextCodes(["a"])
    first = codes.encode(pa.array(["a", "b", None, "c"]))
    codes._limit = 0
    with codes.in_use():
        codes.forget_unused(list)
    assert codes.encode(pa.array(["c"]))[0] == first[3]
    codes._limit = 0
    codes.forget_unused(lambda: [first[:2]])
    again = codes.encode(pa.array(["a", "b", "c"]))
    assert again[:2].tolist() == first[:2].tolist()
    assert again[2] > first[3]


@pytest.mark.parametrize("kind", JOINS)
def test_nothing_is_held_when_the_input_has_ended(kind: str) -> None:
    batches = [batch for number in range(20) for batch in segment(number).to_batches()]
    stream = tg.stream(batches, time="ts", schema=SCHEMA)
    job = tg.start(stream.join(stream, **JOINS[kind]), to=lambda table: None, instances=2)
    job.wait()
    assert (job.state_rows, job.state_bytes) == (0, 0)


def test_a_side_that_was_emptied_goes_on_and_old_snapshots_stay() -> None:
    side = side_of(pa.schema([("n", pa.int64()), ("ts", pa.timestamp("us"))]))
    values = np.arange(5_000)
    add(side, pa.record_batch({"n": values}))
    before = side.snapshot()
    side.forget(5_000)
    assert (side.held, side.nbytes) == (0, 0)
    add(side, pa.record_batch({"n": values + 5_000}))
    tuples = side.snapshot().tuples(10_000)
    assert tuples.arrivals.tolist() == tuples.times.tolist() == list(range(5_000, 10_000))
    assert before.tuples(5_000).arrivals.tolist() == values.tolist()
    assert before.rows(np.array([4_999])).column("n").to_pylist() == [4_999]
