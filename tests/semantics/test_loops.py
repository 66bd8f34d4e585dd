"""Loops whose answers were worked out by hand; every runtime that has loops must give them."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows
from tidegate.errors import DataError

NUMBERS = pa.schema([("ts", TIME), ("k", pa.string()), ("n", pa.int64())])
n = nw.col("n")


def numbers() -> tg.Stream:
    return tg.stream(NUMBERS, time="ts", name="numbers")


def halved(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
    """Even numbers run again, halved; odd ones leave."""
    return stream.filter(n % 2 == 0).with_columns(n=n // 2), stream.filter(n % 2 == 1)


def test_rows_run_until_the_body_lets_them_leave(loop_runtime: Runtime) -> None:
    query = numbers().loop(halved, rounds=9)
    given = rows(NUMBERS, ("10:00", "a", 12), ("10:01", "b", 7), ("10:01", "b", 7), ("10:02", "c", 64))
    result = loop_runtime.run(query, [{"numbers": given.slice(0, 2)}, {"numbers": given.slice(2)}])
    expect(query, result.rows, ("10:00", "a", 3), ("10:01", "b", 7), ("10:01", "b", 7), ("10:02", "c", 1))
    assert result.late == 0


def test_rows_of_one_time_and_round_meet_and_others_do_not(loop_runtime: Runtime) -> None:
    """Sums of what shares key and time, one less each round, until they are small.

    Time 10:00: round 1 sums a to 5 + 6 = 11 and b to 2. b leaves; a runs again alone: 10, … to 3 in round 9.
    Time 10:01: a is 4 in round 1, and leaves with 3 after round 2; never added to the other time's.
    """

    def summed(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
        sums = stream.key_by("k").window("1 microsecond").aggregate(n=tg.sum("n")).select("ts", "k", "n")
        return sums.filter(n > 3).with_columns(n=n - 1), sums.filter(n <= 3)

    query = numbers().loop(summed, rounds=9)
    given = rows(NUMBERS, ("10:00", "a", 5), ("10:00", "b", 2), ("10:00", "a", 6), ("10:01", "a", 4))
    result = loop_runtime.run(query, [{"numbers": given}])
    expect(query, result.rows, ("10:00", "a", 3), ("10:00", "b", 2), ("10:01", "a", 3))


def test_a_body_may_join_its_rows(loop_runtime: Runtime) -> None:
    """Each round a number meets the larger ones of its time and takes their place, less one each."""

    def met(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
        pairs = stream.join(stream, on="k", window="1 microsecond", where=lambda l, r: l.n < r.n)
        return pairs.select("ts", "k", n=nw.col("n_right") - 1), stream.select("ts", "n")

    query = numbers().loop(met, rounds=3)
    result = loop_runtime.run(
        query, [{"numbers": rows(NUMBERS, ("10:00", "a", 1), ("10:00", "a", 3), ("10:00", "a", 5))}]
    )
    # Round 1: 1 3 5 leave; pairs 1<3, 1<5, 3<5 give 2, 4, 4. Round 2: 2 4 4 leave; 2<4 twice gives 3, 3. Round 3: 3 3 leave.
    expect(query, result.rows, *(("10:00", number) for number in (1, 3, 5, 2, 4, 4, 3, 3)))


def test_what_leaves_a_loop_reaches_the_next_window_before_the_watermark(loop_runtime: Runtime) -> None:
    odd = numbers().loop(halved, rounds=40)
    query = odd.key_by("k").window("1 minute").aggregate(sum=tg.sum("n"))
    given = rows(NUMBERS, ("10:00", "a", 2**20), ("10:00:59.999999", "a", 6), ("10:01", "a", 5), ("10:05", "a", 8))
    result = loop_runtime.run(query, [{"numbers": given.slice(at, 1)} for at in range(4)])
    expect(
        query,
        result.rows,
        ("10:00:59.999999", "a", "10:00", "10:01", 4),
        ("10:01:59.999999", "a", "10:01", "10:02", 5),
        ("10:05:59.999999", "a", "10:05", "10:06", 1),
    )
    assert result.late == 0


def test_a_loop_may_be_the_body_of_a_loop(loop_runtime: Runtime) -> None:
    def less(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
        odd = stream.loop(halved, rounds=9, name="odd")
        return odd.filter(n > 3).with_columns(n=n - 1), odd.filter(n <= 3)

    # 44 is odd as 11, less one 10, odd as 5, less one 4, odd as 1.
    query = numbers().loop(less, rounds=3)
    result = loop_runtime.run(query, [{"numbers": rows(NUMBERS, ("10:00", "a", 44), ("10:00", "b", 6))}])
    expect(query, result.rows, ("10:00", "a", 1), ("10:00", "b", 3))


def test_a_row_past_the_last_round_stops_the_run_and_is_named(quick_loop_runtime: Runtime) -> None:
    query = numbers().loop(halved, rounds=3, name="odd")
    fits = rows(NUMBERS, ("10:00", "a", 4))
    assert quick_loop_runtime.run(query, [{"numbers": fits}]).rows.num_rows == 1
    told = r"step 'odd': after 3 rounds, as many as rounds= allows, 1 rows would run again, such as .*'k': 'b', 'n': 1"
    with pytest.raises(DataError, match=told):
        quick_loop_runtime.run(query, [{"numbers": rows(NUMBERS, ("10:00", "a", 4), ("10:00", "b", 8))}])


def test_rows_keep_their_time_while_they_loop(quick_loop_runtime: Runtime) -> None:
    def moved(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
        return stream.filter(n < 0), stream.map_batches(lambda batch: batch.set_column(0, "ts", [at(0)] * len(batch)))

    def at(time: int) -> pa.Scalar:
        return pa.scalar(time, TIME)

    query = numbers().loop(moved, rounds=1, name="moves")
    with pytest.raises(DataError, match="event time 0, which no"):
        quick_loop_runtime.run(query, [{"numbers": rows(NUMBERS, ("10:00", "a", 4))}])
