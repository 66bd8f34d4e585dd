"""Who is woken for what, where readers are not woken for everything."""

from __future__ import annotations

from tests.kit.gates import batch, in_thread, times, until
from tidegate.gate import FlowLimits, Gate

SEGMENT = 160
"""A tenth of it is worth a second reader, a twentieth is not."""


def lazy(**options: object) -> Gate:
    return Gate(["a"], ["r", "s"], segment_rows=SEGMENT, eager=False, **options)  # type: ignore[arg-type]


def until_parked(gate: Gate, readers: int) -> None:
    until(lambda: len(gate.waiting) == readers)


def test_one_of_two_waiting_readers_is_woken_and_the_other_when_roused() -> None:
    gate = lazy()
    with in_thread(gate.reader("r").get) as r:
        until_parked(gate, 1)
        with in_thread(gate.reader("s").get) as s:
            until_parked(gate, 2)
            gate.source("a").add(batch(1))
            until(lambda: bool(s))
            assert not r and len(gate.waiting) == 1
            gate.rouse()
            until(lambda: bool(r))
    assert r == s


def test_a_little_is_left_to_the_reader_that_is_at_work_and_more_is_not() -> None:
    """
    s    at work                      comes: all that is there
    r    waits            is woken
    a    5 rows, 5 rows   10 rows
    """
    gate = lazy()
    source = gate.source("a")
    source.add(batch(0))
    assert times(gate.reader("s").get(0)) == [0]
    assert times(gate.reader("r").get(0)) == [0]
    with in_thread(gate.reader("r").get) as r:
        until_parked(gate, 1)
        source.add(batch(*range(1, 5)))
        source.add(batch(*range(5, 9)))
        assert not r and len(gate.waiting) == 1
        source.add(batch(*range(9, 20)))
    assert times(r[0]) == list(range(1, 20))  # type: ignore[arg-type]  # a segment
    assert times(gate.reader("s").get(0)) == list(range(1, 20))


def test_who_comes_to_the_end_of_the_log_gets_what_was_left_for_it() -> None:
    gate = lazy()
    with in_thread(gate.reader("r").get) as r:
        until_parked(gate, 1)
        gate.source("a").add(batch(1, 2))
        assert times(gate.reader("s").get(0)) == [1, 2]
        assert not r and len(gate.waiting) == 1
        gate.rouse()
    assert times(r[0]) == [1, 2]  # type: ignore[arg-type]  # a segment


def test_who_finds_more_than_a_segment_wakes_others_for_the_rest() -> None:
    gate = lazy()
    with in_thread(gate.reader("r").get) as r:
        until_parked(gate, 1)
        # Not ready while the second source has said nothing; then two segments at once.
        gate.add_sources(["b"])
        gate.source("a").add(batch(*range(2 * SEGMENT)))
        with gate.lock:
            gate.sources["b"].queue.watermark = 2 * SEGMENT
        assert times(gate.reader("s").get(0)) == list(range(SEGMENT))
        until(lambda: bool(r))


def test_everyone_is_woken_for_a_control_segment_and_at_the_end() -> None:
    for act in (lambda gate: gate.append_control("switch"), lambda gate: gate.source("a").end()):
        gate = lazy()
        with in_thread(gate.reader("r").get) as r, in_thread(gate.reader("s").get) as s:
            until_parked(gate, 2)
            act(gate)
        assert r == s and len(r) == 1


def test_a_reader_that_falls_behind_is_woken() -> None:
    gate = lazy(limits=FlowLimits(log_rows=320))
    reader = gate.reader("s")
    with in_thread(gate.reader("r").get) as r:
        until_parked(gate, 1)
        for now in range(30):
            gate.source("a").add(batch(now))
            reader.get(0)
        until(lambda: bool(r))


def test_a_reader_of_a_gate_that_wakes_everyone_gets_everything_at_once() -> None:
    gate = Gate(["a"], ["r", "s"], segment_rows=SEGMENT)
    with in_thread(gate.reader("r").get) as r:
        until_parked(gate, 1)
        gate.source("a").add(batch(1))
    assert times(r[0]) == [1]  # type: ignore[arg-type]  # a segment
