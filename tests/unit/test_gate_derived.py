"""Work derived from segments: once for all readers, claimed ahead, failing for all."""

from __future__ import annotations

import threading

import pytest

from tests.unit.gate_kit import batch, in_thread, until
from tidegate.gate import Gate, Segment


def gate_of(segments: int, readers: tuple[str, ...]) -> Gate:
    gate = Gate(["a"], readers, segment_rows=1)
    gate.source("a").add(batch(*range(segments)))
    return gate


def test_work_is_done_once_for_all_readers() -> None:
    gate = gate_of(1, ("r", "s"))
    done: list[int] = []

    def count(segment: Segment) -> int:
        done.append(segment.index)
        return segment.rows

    for name in ("r", "s"):
        segment = gate.reader(name).get(0)
        assert segment is not None and segment.derive("rows", count) == 1
        assert gate.reader(name).derive("rows", count) == 1
    assert done == [0]


def test_another_name_is_other_work() -> None:
    segment = gate_of(1, ("r",)).reader("r").get(0)
    assert segment is not None
    assert [segment.derive("a", lambda _: 1), segment.derive("b", lambda _: 2)] == [1, 2]


def test_a_reader_claims_ahead_before_it_waits() -> None:
    """
    segment   0            1    2    3
    r         begins, stops
    s         finds it taken: 1 and 2, not 3 (two ahead)
    """
    gate = gate_of(4, ("r", "s"))
    begun, go_on = threading.Event(), threading.Event()
    by: dict[int, str] = {}

    def work(segment: Segment) -> int:
        by[segment.index] = threading.current_thread().name
        if segment.index == 0:
            begun.set()
            assert go_on.wait(30)
        return segment.index * 10

    r, s = gate.reader("r"), gate.reader("s")
    r.get(0)
    s.get(0)
    with in_thread(lambda: r.derive("work", work)) as first:
        assert begun.wait(30)
        with in_thread(lambda: s.derive("work", work, ahead=2)) as second:
            until(lambda: 2 in by)
            assert sorted(by) == [0, 1, 2]
            go_on.set()
    assert first == second == [0]
    following = r.get(0)
    assert following is not None and following.derive("work", lambda _: -1) == 10


def test_a_reader_stops_claiming_ahead_when_its_own_segment_is_done() -> None:
    """
    segment   0                  1               2    3
    r         begins, goes on when 1 has begun
    s         finds it taken: 1, which lasts until 0 is done; then no more
    """
    gate = gate_of(4, ("r", "s"))
    begun, go_on = threading.Event(), threading.Event()
    r, s = gate.reader("r"), gate.reader("s")
    first = r.get(0)
    s.get(0)
    assert first is not None
    worked: list[int] = []

    def work(segment: Segment) -> None:
        worked.append(segment.index)
        if segment.index == 0:
            begun.set()
            assert go_on.wait(30)
        else:
            go_on.set()
            until(lambda: first.derived.is_done("work"))

    with in_thread(lambda: r.derive("work", work)):
        assert begun.wait(30)
        s.derive("work", work, ahead=3)
    assert worked == [0, 1]


def test_claiming_ahead_stops_at_a_control_segment() -> None:
    gate = gate_of(1, ("r", "s"))
    assert gate.reader("r").get(0) is not None and gate.reader("s").get(0) is not None
    gate.append_control("switch")
    gate.source("a").add(batch(5))
    gate.append_control("switch")
    assert [segment.rows for segment in gate.reader("r")._following(5)] == []


def test_an_exception_reaches_everyone_and_the_work_is_not_tried_again() -> None:
    segment = gate_of(1, ("r",)).reader("r").get(0)
    assert segment is not None
    tried: list[int] = []

    def fail(_: Segment) -> None:
        tried.append(1)
        raise ValueError("no such column")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such column"):
            segment.derive("codes", fail)
    assert tried == [1]


def test_an_exception_ahead_is_raised_when_its_segment_comes() -> None:
    gate = gate_of(2, ("r",))
    reader = gate.reader("r")
    first = reader.get(0)
    second = reader.get(0)
    assert first is not None and second is not None
    assert second.derived.claim("x", lambda: 1 // 0), "claiming does not raise"
    with pytest.raises(ZeroDivisionError):
        second.derive("x", lambda _: 1)


def test_there_is_nothing_to_derive_from_before_the_first_segment() -> None:
    with pytest.raises(LookupError, match="before the first get"):
        gate_of(1, ("r",)).reader("r").derive("x", lambda _: 1)
