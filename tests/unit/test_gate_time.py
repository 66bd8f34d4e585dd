"""Watermarks at the gate: heartbeats, explicit ones, disorder within a bound, lateness, idleness, lingering."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.unit.gate_kit import all_times, batch, in_thread, rows, times, until, waiting
from tidegate.errors import DataError, QueryError
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
    late: list[tuple[str, list[int]]] = []
    gate = Gate(
        [SourceSpec("a", disorder_us=None)],
        ["r"],
        on_late=lambda name, found: late.append((name, found.column("time").to_pylist())),
    )
    a, reader = gate.source("a"), gate.reader("r")
    a.add(batch(5, 2, 9, 4))
    assert reader.get(0) is None
    a.advance(5)
    assert times(reader.get(0)) == [2, 4, 5]
    a.add(batch(3, 7))
    assert late == [("a", [3])] and a.late_rows == 1
    a.advance(10)
    assert times(reader.get(0)) == [7, 9]


def test_disorder_within_the_bound_is_put_in_order() -> None:
    """
    a   10  7  12  |  8  15  |  11 14 20     bound 5
    W           7         10            15
    """
    gate = Gate([SourceSpec("a", disorder_us=5)], ["r"], settled=True)
    a, reader = gate.source("a"), gate.reader("r")
    a.add(batch(10, 7, 12))
    assert all_times(reader) == [] and gate.watermark == 7
    a.add(batch(8, 15))
    assert all_times(reader) == [7, 8]
    a.add(batch(11, 14, 20))
    assert all_times(reader) == [10, 11, 12, 14]
    a.end()
    assert all_times(reader) == [15, 20]
    assert a.late_rows == 0


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
    assert all_times(gate.reader("r")) == [12, 13]
    assert gate.source("a").late_rows == 0


def test_late_rows_can_travel_with_the_next_segment() -> None:
    gate = Gate([SourceSpec("a", disorder_us=2)], ["r", "s"], forward_late=True)
    a = gate.source("a")
    a.add(batch(10, tag="a"))
    assert [segment.watermark for segment in waiting(gate.reader("r"))] == [8]
    a.add(batch(3, 9, 5, tag="a"))
    for name in ("r", "s"):
        segment = waiting(gate.reader(name))[-1]
        assert segment.late[0] is not None
        assert segment.late[0].column("time").to_pylist() == [3, 5]
        assert (segment.since, segment.watermark, segment.rows) == (8, 8, 2)
    assert a.late_rows == 2


@pytest.mark.parametrize("settings", [{"disorder_us": -1}, {"input": -1}, {"idle_after_seconds": 0.0}])
def test_a_source_that_cannot_be_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(QueryError, match="source 'a'"):
        SourceSpec("a", **settings)  # type: ignore[arg-type]


def test_silence_stalls_unless_idleness_was_asked_for() -> None:
    """
    seconds  0       4       6
    a        1   3
    b        2               idle after 5 s: a alone makes the minimum
    """
    clock = Clock()
    gate = Gate(["a", SourceSpec("b", idle_after_seconds=5)], ["r"], clock=clock)
    reader = gate.reader("r")
    gate.source("b").add(batch(2))
    gate.source("a").add(batch(1, 3))
    assert all_times(reader) == [1, 2]
    clock.seconds = 4.0
    assert all_times(reader) == []
    clock.seconds = 6.0
    assert all_times(reader) == [3]


def test_what_an_idle_source_brings_too_late_is_late() -> None:
    clock = Clock()
    late: list[pa.RecordBatch] = []
    gate = Gate(
        ["a", SourceSpec("b", idle_after_seconds=5)], ["r"], clock=clock, on_late=lambda _, found: late.append(found)
    )
    reader = gate.reader("r")
    gate.source("a").add(batch(10))
    clock.seconds = 6.0
    gate.check_idle()
    assert all_times(reader) == [10]
    gate.source("b").add(batch(4, 11, tag="b"))
    assert [found.column("time").to_pylist() for found in late] == [[4]]
    gate.source("a").add(batch(12, tag="a"))
    assert rows(reader.get(0)) == [(11, "b")], "b takes part again"


def test_the_watermark_does_not_fall_when_an_idle_source_comes_back() -> None:
    """
    a   10          10
    b        6           idle when 10 was handed out: 6 is late, and the second 10 is ready
    W   10   10     10
    """
    clock = Clock()
    gate = Gate(["a", SourceSpec("b", idle_after_seconds=5)], ["r"], clock=clock, forward_late=True)
    reader = gate.reader("r")
    gate.source("a").add(batch(10))
    clock.seconds = 6.0
    assert all_times(reader) == [10]
    gate.source("b").add(batch(6))
    gate.source("a").add(batch(10))
    segment = reader.get(0)
    assert times(segment) == [10]
    assert segment is not None and segment.watermark == 10 and segment.late[0] is not None
    assert segment.late[0].column("time").to_pylist() == [6]


def test_a_reader_that_waits_notices_by_itself_that_a_source_is_idle() -> None:
    gate = Gate(["a", SourceSpec("b", idle_after_seconds=0.01)], ["r"])
    with in_thread(lambda: times(gate.reader("r").get(30))) as got:
        gate.source("a").add(batch(1))
        until(lambda: bool(got))
    assert got == [[1]]


def test_small_batches_linger_to_share_a_segment_but_no_longer_than_asked() -> None:
    clock = Clock()
    gate = Gate(["a"], ["r"], linger_seconds=0.001, segment_rows=10, clock=clock)
    reader = gate.reader("r")
    gate.source("a").add(batch(1))
    assert reader.get(0.0) is not None, "a reader that cannot wait gets what there is"
    with in_thread(lambda: [times(reader.get(30)), times(reader.get(30))]) as got:
        until(lambda: bool(gate._core.waiting))
        gate.source("a").add(batch(2))
        gate.source("a").add(batch(3))
        clock.seconds = 1.0
        until(lambda: gate.watermark == 3)
        until(lambda: bool(gate._core.waiting))
        gate.source("a").add(batch(*range(4, 14)))
        until(lambda: bool(got))
    assert got == [[[2, 3], list(range(4, 14))]]


def test_a_reader_that_leaves_while_something_lingers_writes_it_for_the_others() -> None:
    clock = Clock()
    gate = Gate(["a"], ["stays", "leaves"], linger_seconds=0.001, clock=clock)
    with in_thread(lambda: times(gate.reader("stays").get(30))) as stayed:
        until(lambda: len(gate._core.waiting) == 1)
        with in_thread(lambda: gate.reader("leaves").get(30)):
            until(lambda: len(gate._core.waiting) == 2)
            gate.source("a").add(batch(1))
            until(lambda: len(gate._core.waiting) == 2)
            gate.remove_readers(["leaves"])
        until(lambda: bool(stayed))
    assert stayed == [[1]]


def test_a_batch_worth_a_segment_of_its_own_does_not_linger() -> None:
    gate = Gate(["a"], ["r"], linger_seconds=1e9, segment_rows=8, clock=Clock())
    with in_thread(lambda: times(gate.reader("r").get(30))) as got:
        until(lambda: bool(gate._core.waiting))
        gate.source("a").add(batch(1, 2))
        until(lambda: bool(got))
    assert got == [[1, 2]]


def test_a_negative_linger_is_refused() -> None:
    with pytest.raises(QueryError, match="linger_seconds is -1"):
        Gate(["a"], ["r"], linger_seconds=-1)
