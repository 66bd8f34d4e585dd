"""Work derived from segments: once for all readers, failing for all."""

from __future__ import annotations

import pytest

from tests.kit.gates import batch
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
    assert done == [0]


def test_another_name_is_other_work() -> None:
    segment = gate_of(1, ("r",)).reader("r").get(0)
    assert segment is not None
    assert [segment.derive("a", lambda _: 1), segment.derive("b", lambda _: 2)] == [1, 2]


def test_only_the_first_to_take_a_name_gets_it() -> None:
    segment = gate_of(1, ("r",)).reader("r").get(0)
    assert segment is not None
    assert [segment.take("a"), segment.take("a"), segment.take("b")] == [True, False, True]


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
    assert second.claim("x", lambda _: 1 // 0), "claiming does not raise"
    with pytest.raises(ZeroDivisionError):
        second.derive("x", lambda _: 1)
