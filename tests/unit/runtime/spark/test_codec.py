"""Rows between stages: headers add up in any order, deltas come back sorted, results and metrics are told apart."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.operators.exchange import Arrived
from tidegate.query.schema import TIME
from tidegate.runtime.spark.codec import (
    CLOCK,
    Header,
    Received,
    SourceCounts,
    cell_keys,
    clock_of,
    murmur3,
    row,
)
from tidegate.state import chunks
from tidegate.watermark import END, START

CLOCK_US = 1_800_000_000_000_000
NAMES = st.sampled_from(["calls", "answers", "τ \"'\n"])
NUMBERS = st.integers(0, 2**64 - 1)
HEADERS = st.builds(
    Header,
    clock_us=st.sampled_from([None, CLOCK_US]),
    newest=st.dictionaries(NAMES, st.sampled_from([START, -5, 0, 10**17, END])),
    messages=st.lists(st.sampled_from(["end", "instances 2 30", "control file x"]), unique=True).map(sorted),
    arrived=st.dictionaries(st.integers(0, 3), st.builds(Arrived, NUMBERS, NUMBERS, NUMBERS, NUMBERS)),
    counts=st.dictionaries(NAMES, st.builds(SourceCounts, NUMBERS, NUMBERS, NUMBERS)),
    letters=st.dictionaries(NAMES, st.lists(st.text(max_size=3)).map(sorted)),
    metrics=st.lists(st.builds(lambda step, cell: {"step": step, "cell": cell}, NAMES, st.integers(0, 3)), max_size=3),
)


def merged(headers: Sequence[Header]) -> dict[str, Any]:
    """What several headers say together, in no order that depends on theirs; sums of times wrap."""
    found = Header()
    for header in deepcopy(list(headers)):
        found.merge(header)
    told: dict[str, Any] = json.loads(found.encode())
    told["metrics"].sort(key=json.dumps)
    return told


@given(HEADERS)
def test_a_header_survives_its_text(header: Header) -> None:
    assert Header.decode(header.encode()) == header


@given(st.lists(HEADERS, max_size=5), st.randoms(use_true_random=False))
def test_headers_add_up_in_any_order_and_any_grouping(headers: list[Header], chance: random.Random) -> None:
    expected = merged(headers)
    shuffled = chance.sample(headers, len(headers))
    assert merged(shuffled) == expected
    cut = chance.randrange(len(headers) + 1)
    parts = []
    for part in (shuffled[:cut], shuffled[cut:]):
        each = Header()
        for header in part:
            each.merge(Header.decode(header.encode()))
        parts.append(each)
    assert merged(parts) == expected


def test_all_cells_but_one_are_told_what_they_need() -> None:
    header = Header(
        5, {"calls": 9}, ["end"], {0: Arrived(1)}, {"calls": SourceCounts(1)}, {"calls": ["x"]}, [{"step": "1:s"}]
    )
    assert header.for_others() == Header(5, {"calls": 9}, ["end"], {0: Arrived(1)})
    header.saw("calls", 7)
    header.saw("calls", None)
    assert header.newest == {"calls": 9}
    header.saw("calls", 12)
    assert header.newest == {"calls": 12}


def with_clock(batch: pa.RecordBatch, clock: int | None = None) -> pa.RecordBatch:
    return pa.record_batch([*batch.columns, pa.array([clock], TIME)], names=[*batch.schema.names, CLOCK])


def test_what_comes_across_an_exchange_is_the_same_in_any_order() -> None:
    tables = [pa.table({"v": [value]}) for value in range(4)]
    encoded = [chunks.encode(table) for table in tables]
    rows = [
        with_clock(row(7, 0, encoded[0])),
        with_clock(row(7, 2, encoded[1])),
        with_clock(row(7, 0, encoded[2])),
        with_clock(row(7, -1 - 2, encoded[3])),
        with_clock(row(7, header=Header(newest={"calls": 3}).encode())),
        with_clock(row(7, header=Header(newest={"calls": 5}, messages=["end"]).encode()), CLOCK_US),
    ]
    chance = random.Random(1)
    first = Received.of(rows)
    for _ in range(10):
        again = Received.of([pa.Table.from_batches(chance.sample(rows, 6)).combine_chunks().to_batches()[0]])
        assert (again.key, again.deltas, again.late, again.header) == (7, first.deltas, first.late, first.header)
    assert first.header == Header(CLOCK_US, {"calls": 5}, ["end"])
    assert [feed for feed, _ in first.deltas] == [0, 0, 2]
    assert [(feed, chunks.decode(data).equals(tables[3])) for feed, data in first.late] == [(2, True)]
    sides = [delta.side for delta in first.tables({0: 0, 2: 1})]
    assert sides == [0, 0, 1]
    assert Received.of([]).key is None


def test_cells_have_keys_that_spark_places_on_them() -> None:
    """The hashes are those that `select hash(0), hash(1)` gives."""
    assert [murmur3(value) for value in (0, 1)] == [933211791, -559580957]
    for cells in (1, 2, 3, 8, 200):
        keys = cell_keys(cells)
        assert len(set(keys)) == cells
        assert [murmur3(key) % cells for key in keys] == list(range(cells))


def test_the_clock_is_that_of_any_row() -> None:
    clocks = pa.record_batch([pa.array([CLOCK_US, CLOCK_US], pa.timestamp("us", tz="UTC"))], names=[CLOCK])
    assert clock_of(clocks) == CLOCK_US
    assert clock_of(clocks.slice(0, 0)) is None
    assert clock_of(pa.record_batch([pa.nulls(1, TIME)], names=[CLOCK])) is None
