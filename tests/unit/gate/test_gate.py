"""Readers and sources come and go: the elastic half of the tuple buffer's interface (STRETCH, table 2 and section 6)."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from tests.kit.gates import all_times, batch, rows, times, waiting
from tidegate.errors import DataError, UserError
from tidegate.gate import Gate
from tidegate.watermark import END


def test_every_reader_gets_each_tuple_once() -> None:
    gate = Gate(["a"], ["r", "s"])
    gate.source("a").add(batch(1, 2))
    assert all_times(gate.reader("r")) == [1, 2]
    gate.source("a").add(batch(3))
    assert all_times(gate.reader("r")) == [3]
    assert all_times(gate.reader("s")) == [1, 2, 3]


def test_a_new_reader_starts_where_its_adder_stands() -> None:
    """
    log      1 | 2 | 3 | 4
    r              ^ got 2, adds t: both get 3 next
    s          ^ got 1, and goes on with 2
    """
    gate = Gate(["a"], ["r", "s"], segment_rows=1)
    gate.source("a").add(batch(1, 2, 3, 4))
    r, s = gate.reader("r"), gate.reader("s")
    assert [times(r.get(0)), times(r.get(0)), times(s.get(0))] == [[1], [2], [1]]
    assert gate.add_readers(["t"], by=r)
    assert all_times(gate.reader("t")) == [3, 4]
    assert all_times(r) == [3, 4]
    assert all_times(s) == [2, 3, 4]


def test_a_removed_reader_gets_nothing_more_and_holds_nothing() -> None:
    gate = Gate(["a"], ["r", "s"], segment_rows=1)
    gate.source("a").add(batch(1, 2, 3))
    r, s = gate.reader("r"), gate.reader("s")
    r.get(0)
    assert gate.remove_readers(["r"])
    assert r.get() is None and r.finished
    assert all_times(s) == [1, 2, 3] and not s.finished
    assert not gate.add_readers(["x"], by=r), "a reader that is gone adds none"


def test_a_segment_is_freed_when_the_slowest_reader_has_passed() -> None:
    gate = Gate(["a"], ["fast", "slow"], segment_rows=1)
    gate.source("a").add(batch(1, 2))
    fast, slow = gate.reader("fast"), gate.reader("slow")
    first = fast.get(0)
    assert first is not None
    seen: list[int] = []
    weakref.finalize(first.times[0], seen.append, 1)
    del first
    fast.get(0)
    gc.collect()
    assert not seen, "the slow reader has still to get it"
    slow.get(0)
    slow.get(0)
    gc.collect()
    assert seen == [1]


def test_a_new_source_cannot_break_the_order() -> None:
    """
    a   1     5
    b               added at W = 5: 4 is refused, 5 is in time
    W         5
    """
    gate = Gate(["a"], ["r"])
    gate.source("a").add(batch(1, 5))
    assert gate.add_sources(["b"])
    assert gate.source("b").watermark == gate.watermark == 5
    with pytest.raises(DataError, match="row 0 of a batch has time 4, and nothing below 5"):
        gate.source("b").add(batch(4))
    gate.source("a").add(batch(9, tag="a"))
    assert all_times(gate.reader("r")) == [1, 5]
    gate.source("b").add(batch(5, 8, tag="b"))
    assert rows(gate.reader("r").get(0)) == [(5, "b"), (8, "b")]


def test_what_was_ready_stays_ready_when_a_source_is_added() -> None:
    """
    a   1     5
    b     3   5     all ready, not read yet
    c               added: begins at 5
    """
    gate = Gate(["a", "b"], ["r"])
    gate.source("a").add(batch(1, 5))
    gate.source("b").add(batch(3, 5))
    assert gate.add_sources(["c"])
    assert all_times(gate.reader("r")) == [1, 3, 5, 5]


def test_a_new_source_may_begin_later_than_the_log() -> None:
    gate = Gate(["a"], ["r"])
    gate.source("a").add(batch(1))
    gate.add_sources(["b"], watermark=7)
    gate.source("a").add(batch(6))
    assert all_times(gate.reader("r")) == [1, 6], "b need not speak before 7"


def test_a_removed_source_leaves_the_minimum_and_its_tuples_become_ready() -> None:
    """
    a   1         6
    b     2   4     8     removed: 8 waits for a only
    W   1         6
    """
    gate = Gate(["a", "b"], ["r"])
    reader = gate.reader("r")
    gate.source("a").add(batch(1))
    gate.source("b").add(batch(2, 4, 8))
    assert all_times(reader) == [1]
    assert gate.remove_sources(["b"])
    gate.source("a").add(batch(6))
    assert all_times(reader) == [2, 4, 6]
    gate.source("a").add(batch(9))
    assert all_times(reader) == [8, 9]
    with pytest.raises(UserError, match="no source 'b'; there are 'a'"):
        gate.source("b")


def test_sources_that_came_and_went_leave_nothing_behind() -> None:
    gate = Gate(["a"], ["r"])
    for time in range(50):
        name = f"guest{time}"
        gate.add_sources([name])
        gate.source(name).add(batch(time))
        gate.source(name).end()
        gate.source("a").add(batch(time))
        assert all_times(gate.reader("r")) == [time, time]
    assert [source.name for source in gate.merger.sources] == ["a"]


def test_a_source_that_was_removed_can_deliver_nothing_more() -> None:
    gate = Gate(["a", "b"], ["r"])
    gone = gate.source("b")
    gate.remove_sources(["b"])
    with pytest.raises(UserError, match="'b' has ended or was removed"):
        gone.add(batch(1))
    assert gate.add_sources(["b"]), "its name is free again"
    gone.end()
    gate.source("b").add(batch(1))


def test_without_sources_the_input_has_ended() -> None:
    gate = Gate(["a", "b"], ["r"])
    reader = gate.reader("r")
    gate.source("a").add(batch(3))
    gate.source("b").end()
    gate.source("a").end()
    segments = waiting(reader)
    assert [(times(segment), segment.watermark) for segment in segments] == [([3], END)]
    assert reader.finished and reader.get() is None
    with pytest.raises(UserError, match="'c' cannot be added: the input has ended"):
        gate.add_sources(["c"])


def test_a_reader_added_behind_the_end_finds_the_end() -> None:
    gate = Gate(["a"], ["r"])
    gate.source("a").end()
    assert len(waiting(gate.reader("r"))) == 1
    assert gate.add_readers(["s"], by=gate.reader("r"))
    assert gate.reader("s").get() is None and gate.reader("s").finished


@pytest.mark.parametrize("call", ["add_readers", "remove_readers", "add_sources", "remove_sources"])
def test_of_several_concurrent_callers_one_succeeds(call: str) -> None:
    gate = Gate(["a", "b"], ["r", "s"])
    calls: dict[str, Callable[[], bool]] = {
        "add_readers": lambda: gate.add_readers(["x", "y"], by=gate.reader("r")),
        "remove_readers": lambda: gate.remove_readers(["s"]),
        "add_sources": lambda: gate.add_sources(["x", "y"]),
        "remove_sources": lambda: gate.remove_sources(["b"]),
    }
    together = threading.Barrier(8)
    answers: list[bool] = []

    def work() -> None:
        together.wait()
        answers.append(calls[call]())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 7 + [True]


def test_without_readers_nothing_is_kept() -> None:
    gate = Gate(["a"], ["r"])
    gate.remove_readers(["r"])
    for time in range(0, 2_000_000, 100_000):
        gate.source("a").add(batch(*range(time, time + 100_000, 10)))
    assert gate.watermark == 1_999_990
