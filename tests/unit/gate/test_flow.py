"""Flow control, control segments, abort: who waits, who never does, and who is told."""

from __future__ import annotations

import pytest

from tests.kit.gates import all_times, batch, in_thread, times, until, waiting
from tidegate.errors import QueryError, UserError
from tidegate.gate import BlockedTimes, FlowLimits, Gate, GateAborted, SourceSpec, congestion_index


def test_a_source_waits_while_the_log_is_full_and_goes_on_at_half() -> None:
    """
    log bound 4   1 2 3 4 5 |      5 rows: wait
    r             1 2       …      3 left: still more than half
    r             1 2 3     …      2 left: go on
    """
    gate = Gate(["a"], ["r"], segment_rows=1, limits=FlowLimits(log_rows=4))
    a, reader = gate.source("a"), gate.reader("r")
    with in_thread(lambda: a.add(batch(1, 2, 3, 4, 5))) as done:
        until(lambda: a.blocked.waiting)
        for _ in range(3):
            reader.get(0)
        assert gate.blocked, "two rows are passed; the third is not before the fourth is asked for"
        reader.get(0)
        assert not gate.blocked
        until(lambda: bool(done))
    assert done == [None]


def test_the_slowest_reader_sets_the_pace() -> None:
    gate = Gate(["a"], ["fast", "slow"], limits=FlowLimits(log_rows=2), segment_rows=1)
    a = gate.source("a")
    with in_thread(lambda: a.add(batch(1, 2, 3))) as done:
        until(lambda: a.blocked.waiting)
        assert all_times(gate.reader("fast")) == [1, 2, 3]
        assert gate.blocked and not done
        gate.remove_readers(["slow"])
        until(lambda: bool(done))


def test_bytes_are_bounded_too() -> None:
    gate = Gate(["a"], ["r"], limits=FlowLimits(log_bytes=1000))
    a = gate.source("a")
    with in_thread(lambda: a.add(batch(1, 2, tag="x" * 600))) as done:
        until(lambda: a.blocked.waiting)
        assert all_times(gate.reader("r")) == [1, 2]
        until(lambda: bool(done))


def test_a_source_too_far_ahead_waits_for_the_one_that_lags_which_never_waits() -> None:
    """
    a   1 2 3 4 5        bound 3 rows not ready: a waits
    b   1 1 1 1 1 1 …    the least watermark: any number of rows
    """
    gate = Gate(["a", "b"], ["r"], limits=FlowLimits(unready_rows=3))
    a, b = gate.source("a"), gate.source("b")
    with in_thread(lambda: a.add(batch(1, 2, 3, 4, 5))) as done:
        until(lambda: a.blocked.waiting)
        b.add(batch(*[1] * 100))
        assert gate.blocked and not done
        b.advance(4)
        until(lambda: bool(done))
    assert all_times(gate.reader("r")) == [1] * 101 + [2, 3, 4]


def test_a_heartbeat_never_waits() -> None:
    gate = Gate(["a", "b"], ["r"], limits=FlowLimits(log_rows=1, unready_rows=1), segment_rows=1)
    a, b = gate.source("a"), gate.source("b")
    with in_thread(lambda: a.add(batch(1, 2, 3))) as done:
        until(lambda: a.blocked.waiting)
        a.advance(9)
        b.advance(5)
        assert gate.blocked, "the log is full now"
        all_times(gate.reader("r"))
        until(lambda: bool(done))


def test_a_removed_source_stops_waiting_and_its_batch_is_kept() -> None:
    gate = Gate(["a", "b"], ["r"], limits=FlowLimits(unready_rows=1))
    a = gate.source("a")
    with in_thread(lambda: a.add(batch(1, 2, 3))) as done:
        until(lambda: a.blocked.waiting)
        gate.remove_sources(["a"])
        until(lambda: bool(done))
    gate.source("b").end()
    assert all_times(gate.reader("r")) == [1, 2, 3]


def test_a_source_whose_rows_become_ready_as_it_is_about_to_wait_goes_on() -> None:
    """
    a   10  |  20 21 22 23 24       bound 2 µs and 3 rows: too far ahead
    b   …8           …100           comes between a's batch and a's wait
    """
    gate = Gate([SourceSpec("a", disorder_us=2), SourceSpec("b")], ["r"], limits=FlowLimits(unready_rows=3))
    gate.source("b").advance(8)
    gate.source("a").add(batch(10))
    assert all_times(gate.reader("r")) == [] and gate.watermark == 8
    assert gate.source("a").offer(batch(20, 21, 22, 23, 24))
    gate.source("b").advance(100)
    gate.source("a").wait_for_room()
    assert all_times(gate.reader("r")) == [10, 20, 21, 22]


def test_an_unsorted_source_within_its_bound_never_waits_for_itself() -> None:
    gate = Gate([SourceSpec("a", disorder_us=100)], ["r"], limits=FlowLimits(unready_rows=3))
    gate.source("a").add(batch(*range(50, 0, -1)))
    gate.source("a").end()
    assert all_times(gate.reader("r")) == list(range(1, 51))


def test_a_control_segment_comes_at_the_same_place_for_all_readers_past_flow_control() -> None:
    """
    a   1 2 | 5      b lags at 2; 5 is not ready
    log 1 2 C 5      C follows what was ready when it was appended
    """
    gate = Gate(["a", "b"], ["r", "s"], limits=FlowLimits(log_rows=1, unready_rows=100))
    gate.source("a").add(batch(1, 5))
    with in_thread(lambda: gate.source("b").add(batch(2))):
        until(lambda: gate.source("b").blocked.waiting)
        index = gate.append_control("epoch 1")
        for name in ("r", "s"):
            *before, control = waiting(gate.reader(name))
            assert [time for segment in before for time in times(segment)] == [1, 2]
            assert (control.control, control.watermark, control.index, control.rows) == ("epoch 1", 2, index, 0)
    gate.source("b").end()
    assert all_times(gate.reader("r")) == [5]


def test_a_control_segment_wakes_a_waiting_reader() -> None:
    gate = Gate(["a"], ["r"])
    with in_thread(lambda: gate.reader("r").get()) as got:
        until(lambda: bool(gate.waiting))
        gate.append_control({"instances": 2})
        until(lambda: bool(got))
    assert got[0].control == {"instances": 2}  # type: ignore[attr-defined]


def test_no_control_segment_follows_the_end() -> None:
    gate = Gate(["a"], ["r"])
    with pytest.raises(QueryError, match="payload"):
        gate.append_control(None)
    gate.source("a").end()
    with pytest.raises(UserError, match="end of the input"):
        gate.append_control("late")


def test_abort_wakes_everyone_with_the_error() -> None:
    gate = Gate(["a", "b"], ["r", "s"], limits=FlowLimits(unready_rows=1))
    cause = ValueError("instance 3 divided by zero")
    a = gate.source("a")
    with in_thread(lambda: a.add(batch(1, 2, 3))) as fed, in_thread(lambda: gate.reader("r").get()) as read:
        until(lambda: a.blocked.waiting and bool(gate.waiting))
        gate.abort(cause)
        gate.abort(KeyError("a second failure"))
        until(lambda: bool(fed) and bool(read))
    for outcome in (*fed, *read):
        assert isinstance(outcome, GateAborted) and outcome.__cause__ is cause
        assert "ValueError: instance 3 divided by zero" in str(outcome)
    for call in (
        lambda: gate.reader("s").get(),
        lambda: gate.source("b").add(batch(1)),
        lambda: gate.append_control(1),
        lambda: gate.add_sources(["c"]),
        lambda: gate.add_readers(["t"], by=gate.reader("r")),
    ):
        with pytest.raises(GateAborted):
            call()


def test_a_reader_in_the_middle_of_the_log_notices_the_abort() -> None:
    gate = Gate(["a"], ["r"], segment_rows=1)
    gate.source("a").add(batch(1, 2, 3))
    gate.reader("r").get(0)
    gate.abort(RuntimeError("no"))
    with pytest.raises(GateAborted):
        gate.reader("r").get(0)


def test_blocked_time_is_accounted_for_each_source() -> None:
    """
    seconds  0    2         6    10
    a        add  | - wait - |       4 of 10 s
    b                                0
    """
    now = [0.0]
    gate = Gate(["a", "b"], ["r"], limits=FlowLimits(unready_rows=1), clock=lambda: now[0])
    before = gate.blocked_times()
    a = gate.source("a")
    now[0] = 2.0
    with in_thread(lambda: a.add(batch(1, 2, 3))) as done:
        until(lambda: a.blocked.waiting)
        now[0] = 5.0
        assert gate.blocked_times().blocked_seconds["a"] == 3.0, "the present wait counts"
        now[0] = 6.0
        gate.source("b").advance(3)
        until(lambda: bool(done))
    now[0] = 10.0
    after = gate.blocked_times()
    assert congestion_index(before, after) == pytest.approx((0.4 + 0.0) / 2)


def test_congestion_of_no_time_or_no_source_is_none() -> None:
    reading = BlockedTimes(1.0, {"a": 0.5})
    assert congestion_index(reading, reading) == 0.0
    assert congestion_index(BlockedTimes(0.0, {}), BlockedTimes(1.0, {})) == 0.0
    assert congestion_index(BlockedTimes(0.0, {}), reading) == 0.5
