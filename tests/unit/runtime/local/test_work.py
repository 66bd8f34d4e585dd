"""Work on segments that one instance does and the others do not wait for, until they need it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pytest

from tests.kit.gates import batch, in_thread
from tidegate.gate import Gate, Segment
from tidegate.runtime.local.work import Claims


@dataclass
class Held:
    """Work that stops at one segment until it is let go, and notes who did what."""

    at: int
    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    done: list[int] = field(default_factory=list)

    def __call__(self, segment: Segment) -> int:
        if segment.index == self.at:
            self.begun.set()
            assert self.go_on.wait(30)
        self.done.append(segment.index)
        return segment.index * 10


def segments(count: int) -> list[Segment]:
    gate = Gate(["a"], ["r"], segment_rows=1)
    gate.source("a").add(batch(*range(count)))
    gate.source("a").end()
    return list(gate.reader("r"))[:count]


def test_who_finds_a_segment_taken_goes_on_and_waits_only_where_it_needs_the_outcome() -> None:
    """
    segment   0               1    2
    r         begins, stops
    s         goes on         1    2, then needs all up to 2
    """
    log, work = segments(3), Held(at=0)
    claims = Claims("work", work)
    with in_thread(lambda: claims.take_up(log[0])):
        assert work.begun.wait(30)
        for segment in log:
            claims.take_up(segment)
        assert work.done == [1, 2]
        with in_thread(lambda: claims.finish(2, iter(()))) as finished:
            assert not finished
            work.go_on.set()
    assert sorted(work.done) == [0, 1, 2]
    assert not claims._under_way, "what is done is not held"
    assert [claims.result(segment) for segment in log] == [0, 10, 20]


def test_nobody_waits_for_what_comes_later() -> None:
    log, work = segments(3), Held(at=2)
    claims = Claims("work", work)
    with in_thread(lambda: claims.take_up(log[2])):
        assert work.begun.wait(30)
        for segment in log:
            claims.take_up(segment)
        claims.finish(1, iter(()))
        assert work.done == [0, 1]
        work.go_on.set()


def test_a_failure_reaches_who_did_the_work_and_who_needs_it() -> None:
    log = segments(1)
    begun, go_on = threading.Event(), threading.Event()

    def fails(segment: Segment) -> None:
        begun.set()
        assert go_on.wait(30)
        raise ValueError("no such column")

    claims = Claims("work", fails)

    def does_it() -> None:
        with pytest.raises(ValueError, match="no such column"):
            claims.take_up(log[0])

    with in_thread(does_it) as outcome:
        assert begun.wait(30)
        claims.take_up(log[0])
        go_on.set()
        with pytest.raises(ValueError, match="no such column"):
            claims.finish(0, iter(()))
    assert outcome == [None]


def test_who_would_wait_takes_up_what_lies_ahead() -> None:
    """
    segment   0                      1    2
    r         begins, stops
    s         needs it: meanwhile    1    2, then waits
    """
    log, work = segments(3), Held(at=0)
    claims = Claims("work", work)
    with in_thread(lambda: claims.take_up(log[0])):
        assert work.begun.wait(30)
        claims.take_up(log[0])
        with in_thread(lambda: claims.finish(0, iter(log[1:]))) as finished:
            while len(work.done) < 2:
                time.sleep(0.001)
            assert not finished
            work.go_on.set()
    assert work.done == [1, 2, 0]
    assert not claims._under_way
