"""Generated loops, in process and as Spark drives them, against the law; their watermarks under every interleaving."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import TIME, Case, Features, cases
from tests.kit.check import check_case
from tests.kit.check_local import any_reconfigurer, any_settings, check_locally
from tests.kit.effort import examples
from tests.kit.lowering import lowered
from tidegate.errors import InternalError
from tidegate.operators.bags.loops import DueRows
from tidegate.query.bag_functions import EMBEDDED, INDEX, ITEMS, NUMBER
from tidegate.query.nodes import BagAggregate, sources, walk
from tidegate.reference.loops import LoopLaw, Successors
from tidegate.watermark import END, START

n = nw.col("n")


def fewer(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
    """Counts down."""
    return stream.filter(n > 0).with_columns(n=n - 1), stream.filter(n <= 0)


def summed(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
    """Adds up what shares key and time."""
    sums = stream.key_by("k").window("1 microsecond").aggregate(n=tg.sum("n")).select("ts", "k", "n")
    return sums.filter(n > 1).with_columns(n=n - 2), sums


def paired(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
    """Joins what shares key and time, and lets go of all that came in."""
    pairs = stream.join(stream, on="k", window="1 microsecond", where=lambda l, r: l.n < r.n)
    return pairs.select("ts", "k", n=n + 1), stream.union(stream.with_columns(n=-n))


def nested(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
    """A loop in a loop."""
    inner = stream.loop(fewer, rounds=4)
    return inner.filter(n > 5), inner.with_columns(n=n + 7)


BODIES = {"fewer": fewer, "summed": summed, "paired": paired, "nested": nested}
ROUNDS = {"fewer": 4, "summed": 99, "paired": 8, "nested": 1}
AFTER: dict[str, Any] = {
    "nothing": lambda s: s,
    "filter": lambda s: s.filter(n != 1),
    "aggregate": lambda s: s.key_by("k").window("3ms", every="1ms").aggregate(n=tg.sum("n"), c=tg.count()),
}


@st.composite
def loop_cases(draw: st.DrawFn, operators: tuple[str, ...] = ("dedicated", "multi", "single")) -> Case:
    """The data of a case, and a loop over small numbers of it."""
    case = draw(cases(Features("one column", "tumbling", ("count",), "none", "few")))
    streams = [tg.Stream(source) for source in sources(case.query.node)]
    merged = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    small = merged.select("ts", "k", "n")
    small = small.filter(n < 4) if draw(st.booleans()) else small.map_batches(_small)
    body = draw(st.sampled_from(sorted(BODIES)))
    query = AFTER[draw(st.sampled_from(sorted(AFTER)))](small.loop(BODIES[body], rounds=ROUNDS[body]))
    return replace(case, query=lowered(query, draw(st.sampled_from(operators))), keys=[])


def _small(batch: pa.RecordBatch) -> pa.Table:
    kept = [row for row in batch.to_pylist() if row["n"] is None or -4 < row["n"] < 4]
    return pa.Table.from_pylist(kept, schema=batch.schema)


@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(case=loop_cases(), how=any_settings(), reconfigure=any_reconfigurer())
def test_the_output_is_the_laws_however_instances_change(case: Case, how: Any, reconfigure: Any) -> None:
    check_locally(case, how, reconfigure)


@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(case=loop_cases(("dedicated", "multi")))
def test_the_output_is_the_laws_whatever_the_batches(tmp_path: Path, case: Case) -> None:
    check_case(case, tmp_path)


@st.composite
def embedded_streams(draw: st.DrawFn) -> list[tuple[int, int] | int]:
    """Tuples (time, how many they embed) and watermarks, none of which a tuple comes behind."""
    events: list[tuple[int, int] | int] = []
    reached = 0
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.booleans()):
            events.append((reached + draw(st.integers(0, 9)), draw(st.integers(0, 4))))
        else:
            reached += draw(st.sampled_from([1, 2, 5, 50]))
            events.append(reached)
    return [*events, END]


def looping(lateness: int) -> BagAggregate:
    stream = tg.stream({"ts": TIME, "n": pa.int64()}, time="ts", name="s", watermark_step="1 microsecond")
    query = lowered(stream.filter(n > 0), "single", lateness_us=lateness).node
    return next(node for node in walk(query) if isinstance(node, BagAggregate) and node.loop_us is not None)


@settings(max_examples=examples(100))
@given(events=embedded_streams(), lateness=st.sampled_from([1, 2, 7, 100]), data=st.data())
def test_no_interleaving_loses_a_row_or_lets_a_watermark_pass_one(
    events: list[tuple[int, int] | int], lateness: int, data: st.DataObject
) -> None:
    """What comes in and what loops are taken in any order; the law itself raises where C2 or C3 is broken."""
    node = looping(lateness)
    law = LoopLaw(node)
    left, due, passed = [], list(enumerate(events)), START
    while due or law.looping:
        if law.looping and (not due or data.draw(st.booleans())):
            rows = list(law.take(law.looping.popleft()))
        else:
            number, event = due.pop(0)
            rows = list(law.reach(event) if isinstance(event, int) else law.receive(0, _tuple(node, number, *event)))
        left += [(row[NUMBER], row[INDEX]) for table in rows for row in table.to_pylist()]
        assert law.exit.forwarded >= passed
        passed = law.exit.forwarded
        assert all(time >= passed for time in law.exit.due)
    assert passed == END
    sizes = {number: event[1] for number, event in enumerate(events) if not isinstance(event, int)}
    assert Counter(left) == Counter((number, index) for number, size in sizes.items() for index in range(size))


def _tuple(node: BagAggregate, number: int, time: int, size: int) -> pa.Table:
    items = [[{"n": element} for element in range(size)]]
    columns = {"ts": pa.array([time], pa.int64()).cast(TIME), ITEMS: pa.array(items, node.schema.field(ITEMS).type)}
    columns |= {INDEX: pa.array([EMBEDDED]), NUMBER: pa.array([number])}
    return pa.table(columns, schema=node.schema)


def test_a_watermark_that_passed_a_looping_row_is_an_error() -> None:
    node = looping(2)
    law = LoopLaw(node)
    list(law.receive(0, _tuple(node, 0, 5, 2)))
    list(law.reach(6))
    law.inner.watermark = 8  # as if no guard stood at the entry
    with pytest.raises(InternalError, match="a tuple that loops came too late"):
        list(law.take(law.looping.popleft()))


@settings(max_examples=examples(50))
@given(data=st.data(), lateness=st.integers(0, 5))
def test_columns_of_due_rows_are_counted_as_one_by_one(data: st.DataObject, lateness: int) -> None:
    law, columns = Successors(lateness), DueRows(lateness)
    for _ in range(data.draw(st.integers(1, 10))):
        due = sorted(data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(-2, 3)), max_size=4)))
        for time, count in due:
            law.add(time, count)
        columns.add(np.array([time for time, _ in due], np.int64), np.array([count for _, count in due], np.int64))
        law.received = columns.received = max(law.received, data.draw(st.integers(0, 30)))
        assert columns.next_watermark() == law.next_watermark()
