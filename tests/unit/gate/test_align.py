"""Markers: what is before one and what is behind it, at a gate of several sources."""

from __future__ import annotations

import pyarrow as pa

from tidegate.gate.align import GateCut
from tidegate.gate.flow import FlowLimits
from tidegate.gate.gate import Gate
from tidegate.gate.log import Reader
from tidegate.watermark import END


def at(*times: int) -> pa.RecordBatch:
    return pa.record_batch({"ts": list(times)})


def taken(reader: Reader) -> list[int | GateCut]:
    """All that is in the log, times and cuts."""
    found: list[int | GateCut] = []
    while (segment := reader.get(0)) is not None:
        if isinstance(segment.control, GateCut):
            found.append(segment.control)
        for batch in segment.batches:
            found += [] if batch is None else batch.column("ts").to_pylist()
    return found


def test_what_a_source_sends_behind_its_marker_waits_for_the_others() -> None:
    #   a  1 3 7 | 8      b  2 | 9
    gate = Gate(["a", "b"], ["r"], time="ts")
    gate.expect("first")
    gate.source("a").add(at(1, 3, 7))
    gate.source("a").mark()
    gate.source("a").add(at(8))
    assert taken(gate.reader("r")) == []
    gate.source("b").add(at(2))
    gate.source("b").mark()
    gate.source("b").add(at(9))
    before, behind, cut, *after = taken(gate.reader("r"))
    assert (before, behind) == (1, 2)
    assert isinstance(cut, GateCut)
    assert (cut.marker, cut.watermark, dict(cut.sources)) == ("first", 2, {"a": 7, "b": 2})
    assert [each.batch.column("ts").to_pylist() for each in cut.unready] == [[3, 7]]
    assert after == [3, 7, 8]


def test_a_gate_goes_on_from_a_cut() -> None:
    gate = Gate(["a", "b"], ["r"], time="ts")
    gate.expect("first")
    gate.source("a").add(at(1, 3, 7))
    gate.source("b").add(at(2))
    gate.source("a").mark()
    gate.source("b").mark()
    cut = taken(gate.reader("r"))[-1]
    assert isinstance(cut, GateCut)
    again = Gate(["a", "b", "c"], ["r"], time="ts")
    again.resume(cut)
    assert again.watermark == 2
    again.source("c").end()
    again.source("b").add(at(4))
    assert taken(again.reader("r")) == [3, 4]
    again.source("a").end()
    again.source("b").end()
    assert taken(again.reader("r")) == [7]


def test_a_source_that_ends_has_passed_and_one_that_ends_behind_its_marker_leaves_there() -> None:
    gate = Gate(["a", "b", "c"], ["r"], time="ts")
    gate.expect("first")
    gate.source("a").mark()
    gate.source("a").add(at(5))
    gate.source("a").end()
    gate.source("b").add(at(1))
    gate.source("b").end()
    gate.source("c").mark()
    cut, *after = taken(gate.reader("r"))
    assert isinstance(cut, GateCut)
    assert [each.batch.column("ts").to_pylist() for each in cut.unready] == [[1]]
    assert after == []
    gate.source("c").end()
    assert taken(gate.reader("r")) == [1, 5]
    assert gate.reader("r").finished


def test_a_source_that_is_added_has_passed_what_the_one_that_adds_it_has() -> None:
    gate = Gate(["a", "b"], ["r"], time="ts")
    gate.expect("first")
    gate.source("a").mark()
    gate.add_sources(["c"], by=gate.source("a"))
    gate.source("c").add(at(4))
    gate.source("b").mark()
    (cut,) = taken(gate.reader("r"))
    assert isinstance(cut, GateCut) and not cut.unready


def test_a_source_that_has_not_passed_is_not_held_up_for_being_ahead() -> None:
    gate = Gate(["a", "b"], ["r"], time="ts", limits=FlowLimits(unready_rows=2))
    assert gate.source("a").offer(at(5, 6, 7))
    gate.expect("first")
    gate.source("a").wait_for_room()
    assert not gate.source("a").offer(at(8, 9))
    gate.source("a").mark()
    assert not gate.source("a").offer(at(10))
    assert gate.source("a").offer(at(11, 12))
    gate.source("b").mark()
    gate.source("b").add(at(20))
    assert taken(gate.reader("r"))[1:] == [5, 6, 7, 8, 9, 10, 11, 12]


def test_no_cut_lies_behind_the_end_of_the_input() -> None:
    """A source that had ended at a snapshot is at its end when the run goes on, before it says so again."""
    gate = Gate(["a"], ["r"], time="ts")
    gate.resume(GateCut("first", 2, sources={"a": END}))
    gate.expect("second")
    gate.source("a").mark()
    gate.source("a").advance(END)
    assert taken(gate.reader("r")) == []
    assert gate.reader("r").finished
