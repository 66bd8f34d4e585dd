"""Watermarks at the gate: heartbeats, explicit ones, disorder within a bound, lateness, lingering."""

from __future__ import annotations

import pytest

from tests.kit.gates import all_times, batch, in_thread, late_times, times, until, waiting
from tidegate.errors import DataError
from tidegate.gate import Gate, SourceSpec
from tidegate.watermark import END


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_heartbeat_speaks_for_a_silent_source() -> None:
    """
    a   1   3   5
    b           …4      no tuple below 4 is still due from b
    W           4
    """
    gate = Gate(["a", "b"], ["r"])
    gate.source("a").add(batch(1, 3, 5))
    assert gate.reader("r").get(0) is None
    gate.source("b").advance(4)
    segment = gate.reader("r").get(0)
    assert times(segment) == [1, 3]
    assert segment is not None and segment.watermark == 4
    with pytest.raises(DataError, match="nothing below 4 was due"):
        gate.source("b").add(batch(3))


def test_a_watermark_alone_is_delivered_and_never_goes_back() -> None:
    gate = Gate(["a"], ["r"])
    reader = gate.reader("r")
    gate.source("a").advance(10)
    segment = reader.get(0)
    assert segment is not None and (segment.rows, segment.watermark) == (0, 10)
    gate.source("a").advance(6)
    assert reader.get(0) is None and gate.watermark == 10


def test_a_batch_may_bring_its_watermark() -> None:
    gate = Gate(["a"], ["r"])
    gate.source("a").add(batch(1, 2), watermark=9)
    gate.source("a").add(batch()[:0], watermark=12)
    assert [(times(segment), segment.watermark) for segment in waiting(gate.reader("r"))] == [([1, 2], 12)]


def test_the_watermark_at_the_end_of_time_ends_a_source() -> None:
    gate = Gate(["a"], ["r"])
    gate.source("a").add(batch(1), watermark=END)
    assert [segment.watermark for segment in waiting(gate.reader("r"))] == [END]
    assert gate.reader("r").finished


def test_explicit_watermarks_alone_order_an_unsorted_source() -> None:
    """
    a   5 2 9 4  …5   3 7  …10
    W             5          10   3 is late: 5 has been handed out
    """
    gate = Gate([SourceSpec("a", disorder_us=None)], ["r"])
    a, reader = gate.source("a"), gate.reader("r")
    a.add(batch(5, 2, 9, 4))
    assert reader.get(0) is None
    a.advance(5)
    assert times(reader.get(0)) == [2, 4, 5]
    a.add(batch(3, 7))
    a.advance(10)
    segment = reader.get(0)
    assert times(segment) == [7, 9] and late_times(segment) == [3]


def test_disorder_within_the_bound_is_put_in_order() -> None:
    """
    a   10  7  12  |  8  15  |  11 14 20     bound 5
    W           7         10            15
    """
    gate = Gate([SourceSpec("a", disorder_us=5)], ["r"])
    a, reader = gate.source("a"), gate.reader("r")
    a.add(batch(10, 7, 12))
    assert all_times(reader) == [7] and gate.watermark == 7
    a.add(batch(8, 15))
    assert all_times(reader) == [8, 10]
    a.add(batch(11, 14, 20))
    assert all_times(reader) == [11, 12, 14, 15]
    a.end()
    [last] = waiting(reader)
    assert times(last) == [20] and late_times(last) == []


def test_late_is_what_the_gate_has_passed_not_what_the_source_has() -> None:
    """
    a   20  …15 (bound 5)    12     not late: b holds W at 11
    b   11
    """
    gate = Gate([SourceSpec("a", disorder_us=5), SourceSpec("b")], ["r"])
    gate.source("a").add(batch(20))
    gate.source("b").add(batch(11))
    assert all_times(gate.reader("r")) == [11]
    gate.source("a").add(batch(12))
    gate.source("b").add(batch(13))
    segment = gate.reader("r").get(0)
    assert times(segment) == [12, 13] and late_times(segment) == []


def test_late_rows_that_fill_several_segments_move_no_watermark() -> None:
    gate = Gate([SourceSpec("a", disorder_us=2)], ["r"], segment_rows=2)
    a, reader = gate.source("a"), gate.reader("r")
    a.add(batch(10))
    assert [segment.watermark for segment in waiting(reader)] == [8]
    a.add(batch(3, 1, 5, 2, 4, 9, 12))
    found = waiting(reader)
    assert [time for segment in found for time in late_times(segment)] == [1, 2, 3, 4, 5]
    assert [time for segment in found for time in times(segment)] == [9, 10]
    assert [segment.since for segment in found][:2] == [8, 8] and found[-1].watermark == 10


def test_late_rows_travel_with_the_next_segment() -> None:
    gate = Gate([SourceSpec("a", disorder_us=2)], ["r", "s"])
    a = gate.source("a")
    a.add(batch(10, tag="a"))
    assert [segment.watermark for segment in waiting(gate.reader("r"))] == [8]
    a.add(batch(3, 9, 5, tag="a"))
    for name in ("r", "s"):
        segment = waiting(gate.reader(name))[-1]
        assert late_times(segment) == [3, 5]
        assert (segment.since, segment.watermark, segment.rows) == (8, 8, 2)


def test_small_batches_linger_to_share_a_segment_but_no_longer_than_asked() -> None:
    clock = Clock()
    gate = Gate(["a"], ["r"], linger_seconds=0.001, segment_rows=10, clock=clock)
    reader = gate.reader("r")
    gate.source("a").add(batch(1))
    assert reader.get(0.0) is not None, "a reader that cannot wait gets what there is"
    with in_thread(lambda: [times(reader.get(30)), times(reader.get(30))]) as got:
        until(lambda: bool(gate.waiting))
        gate.source("a").add(batch(2))
        gate.source("a").add(batch(3))
        clock.seconds = 1.0
        until(lambda: gate.watermark == 3)
        until(lambda: bool(gate.waiting))
        gate.source("a").add(batch(*range(4, 14)))
        until(lambda: bool(got))
    assert got == [[[2, 3], list(range(4, 14))]]


def test_a_reader_that_leaves_while_something_lingers_writes_it_for_the_others() -> None:
    clock = Clock()
    gate = Gate(["a"], ["stays", "leaves"], linger_seconds=0.001, clock=clock)
    with in_thread(lambda: times(gate.reader("stays").get(30))) as stayed:
        until(lambda: len(gate.waiting) == 1)
        with in_thread(lambda: gate.reader("leaves").get(30)):
            until(lambda: len(gate.waiting) == 2)
            gate.source("a").add(batch(1))
            until(lambda: len(gate.waiting) == 2)
            gate.remove_readers(["leaves"])
        until(lambda: bool(stayed))
    assert stayed == [[1]]


def test_a_batch_worth_a_segment_of_its_own_does_not_linger() -> None:
    gate = Gate(["a"], ["r"], linger_seconds=1e9, segment_rows=8, clock=Clock())
    with in_thread(lambda: times(gate.reader("r").get(30))) as got:
        until(lambda: bool(gate.waiting))
        gate.source("a").add(batch(1, 2))
        until(lambda: bool(got))
    assert got == [[1, 2]]
