"""The gate's order: what is ready, in which segment, under which watermark."""

from __future__ import annotations

import doctest
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import tidegate.gate
from tests.kit.gates import all_times, batch, rows, times, waiting
from tidegate.errors import DataError, QueryError
from tidegate.gate import Gate, SourceSpec
from tidegate.watermark import END, START


def test_a_tuple_is_ready_when_every_source_has_got_as_far() -> None:
    """
    a   1   3     7
    b     2   4
    W         4        7 waits for b
    """
    gate = Gate(["a", "b"], ["r"])
    reader = gate.reader("r")
    gate.source("a").add(batch(1, 3, 7, tag="a"))
    assert reader.get(0) is None
    gate.source("b").add(batch(2, 4, tag="b"))
    segment = reader.get(0)
    assert rows(segment) == [(1, "a"), (2, "b"), (3, "a"), (4, "b")]
    assert segment is not None and (segment.since, segment.watermark) == (START, 4)
    assert reader.get(0) is None


def test_ties_at_the_watermark_are_ready_at_once_and_may_go_on_coming() -> None:
    """
    a   5     5 5
    b   5
    W   5 - - 5        every 5 is ready: nothing below 5 is due
    """
    gate = Gate(["a", "b"], ["r"])
    reader = gate.reader("r")
    gate.source("a").add(batch(5, tag="a"))
    gate.source("b").add(batch(5, tag="b"))
    assert rows(reader.get(0)) == [(5, "a"), (5, "b")]
    gate.source("a").add(batch(5, 5, tag="a"))
    segment = reader.get(0)
    assert rows(segment) == [(5, "a"), (5, "a")]
    assert segment is not None and (segment.since, segment.watermark) == (5, 5)


def test_inputs_stay_apart_and_their_common_order_comes_on_demand() -> None:
    """
    input 0   1     3 3   9
    input 1     2   3   4
    W                   4
    """
    gate = Gate([SourceSpec("left", 0), SourceSpec("right", 1, time="at")], ["r"])
    gate.source("left").add(batch(1, 3, 3, 9, tag="l"))
    gate.source("right").add(pa.record_batch({"at": [2, 3, 4], "x": [0.5, 1.5, 2.5]}))
    segment = gate.reader("r").get(0)
    assert segment is not None and segment.batches[1] is not None
    assert times(segment, 0) == [1, 3, 3]
    assert segment.batches[1].column("at").to_pylist() == [2, 3, 4]


def test_a_single_source_passes_without_a_copy() -> None:
    gate = Gate(["a"], ["r", "s"], segment_rows=100)
    given = batch(*range(250))
    gate.source("a").add(given)
    parts = [segment.batches[0] for segment in waiting(gate.reader("r"))]
    assert [part.num_rows for part in parts if part is not None] == [100, 100, 50]
    start = given.column(0).buffers()[1].address
    assert {part.column(0).buffers()[1].address for part in parts if part is not None} == {start}
    others = [segment.batches[0] for segment in waiting(gate.reader("s"))]
    assert all(one is other for one, other in zip(parts, others, strict=True)), "readers share the batches"


def test_small_batches_that_come_while_readers_are_busy_share_a_segment() -> None:
    gate = Gate(["a"], ["r"], segment_rows=100)
    for time in range(20):
        gate.source("a").add(batch(time))
    assert [times(segment) for segment in waiting(gate.reader("r"))] == [list(range(20))]


@pytest.mark.parametrize("sources", [["a"], ["a", "b"]])
def test_segments_are_capped_and_carry_the_watermark_of_what_follows(sources: list[str]) -> None:
    """
    0 1 2 | 3 4 5 | 6 …   segments of 3 rows; each watermark is the next segment's first time
    """
    gate = Gate(sources, ["r"], segment_rows=3)
    for place, name in enumerate(sources):
        gate.source(name).add(batch(*range(place, 20, len(sources))))
        gate.source(name).end()
    segments = waiting(gate.reader("r"))
    assert [time for segment in segments for time in times(segment)] == list(range(20))
    assert all(segment.rows <= 3 for segment in segments)
    for segment, following in pairwise(segments):
        assert segment.watermark == following.since
        assert not following.rows or following.times[0][0] == following.since
    assert segments[-1].watermark == END


def test_a_segment_is_capped_in_bytes() -> None:
    wide = pa.record_batch({"time": np.arange(100), "text": ["x" * 992] * 100})
    gate = Gate(["a"], ["r"], segment_bytes=10_000)
    gate.source("a").add(wide)
    assert all(segment.nbytes <= 11_000 and segment.rows <= 10 for segment in waiting(gate.reader("r")))


def test_an_unsorted_batch_names_source_and_row() -> None:
    gate = Gate(["a"], ["r"])
    with pytest.raises(DataError, match=r"'a' is declared sorted by 'time', but row 2 .* has time 4 after 5"):
        gate.source("a").add(batch(1, 5, 4, 6))
    gate.source("a").add(batch(1, 5))
    with pytest.raises(DataError, match=r"row 0 of a batch has time 4, and nothing below 5"):
        gate.source("a").add(batch(4))
    assert all_times(gate.reader("r")) == [1, 5], "a refused batch leaves nothing behind"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (pa.record_batch({"time": ["x"]}), "has the type string; it must be int64 or timestamp"),
        (pa.record_batch({"time": pa.array([1, None], pa.int64())}), "row 1 has no time"),
    ],
)
def test_a_batch_the_gate_cannot_order_is_refused(bad: pa.RecordBatch, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Gate(["a"], ["r"]).source("a").add(bad)


def test_times_may_be_timestamps_in_microseconds() -> None:
    stamps = pa.array([10, 20], pa.timestamp("us", tz="UTC"))
    gate = Gate(["a"], ["r"])
    gate.source("a").add(pa.record_batch({"time": stamps}))
    segment = gate.reader("r").get(0)
    assert segment is not None and segment.times[0].tolist() == [10, 20] and segment.watermark == 20


def test_a_gate_without_readers_is_refused() -> None:
    with pytest.raises(QueryError, match="there is no reader"):
        Gate(["a"], [])


def test_the_example_in_the_package_holds() -> None:
    outcome = doctest.testmod(tidegate.gate)
    assert outcome.attempted and not outcome.failed
