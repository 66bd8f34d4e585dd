"""A process that ends at any operation on its state, at every one of a short run: what is run again gives the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.effort import LONG
from tests.kit.faulty import Faulty, ProcessEnds
from tests.kit.spark_driver import Batch, Driver, forget
from tidegate.query.nodes import sources
from tidegate.reference import interpret
from tidegate.runtime.spark import cell_batch
from tidegate.state.storage import open_storage
from tidegate.testing import difference

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema({"ts": TIME, "k": pa.string(), "n": pa.int64()})


def stream(name: str = "one") -> tg.Stream:
    return tg.stream(SCHEMA, time="ts", disorder="1ms", name=name)


def windows() -> tg.Stream:
    counts = stream().key_by("k").window("4ms", every="2ms").aggregate(n=tg.sum("n"))
    return counts.key_by("n").window("8ms").aggregate(keys=tg.count())


def pairs() -> tg.Stream:
    return stream().join(stream("two"), on="k", within="3ms", where=lambda l, r: l.n <= r.n)


def applied() -> tg.Stream:
    return (
        stream()
        .key_by("k")
        .window("4ms")
        .apply(
            update=lambda window, arriving: tg.updated({"seen": window.state["seen"] + 1}),
            output=lambda window: {"k": window.key, "seen": window.state["seen"]},
            state={"seen": pa.int64()},
            initial={"seen": 0},
            returns={"k": pa.string(), "seen": pa.int64()},
        )
    )


def batch(number: int, read: list[str]) -> Batch:
    times = [number * 3_000 + step * 700 for step in range(5)]
    table = pa.table([pa.array(times, TIME), list("abcab"), [1, 2, 3, 4, number]], schema=SCHEMA)
    return Batch({name: [table.slice(0, 3), table.slice(3)] for name in read})


def run(
    query: tg.Stream, cells: int, last: int | None, behind: bool, monkeypatch: pytest.MonkeyPatch
) -> tuple[Driver, Faulty]:
    """A run whose process ends once, and which is started again."""
    monkeypatch.setattr(cell_batch, "open_storage", open_storage)
    driver = Driver(query.node, cells, retain=1)
    faulty = Faulty(open_storage(driver.root.uri), last, behind)
    monkeypatch.setattr(cell_batch, "open_storage", lambda uri, options: faulty)
    read = [source.name for source in sources(query.node)]
    for given in [*(batch(number, read) for number in range(4)), Batch({}, ends=True)]:
        try:
            driver.batch(given)
        except ProcessEnds:
            forget()
            faulty.last = None
            driver.run_number += 1
            driver.batch(given)
    return driver, faulty


@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("query", [windows, pairs, applied])
def test_a_process_that_ends_at_any_operation_changes_nothing(
    query: Any, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_batch, "SWEEP_EVERY", 1)
    whole, faulty = run(query(), cells, None, False, monkeypatch)
    law = interpret(query().node, whole.outcome.events)
    expected = pa.concat_tables([query().schema.empty_table(), *whole.outcome.tables])
    assert difference(expected, law.rows) is None and expected.num_rows > 0
    assert faulty.count > 30
    # `make test` tries one operation in so many, another set for each query; `make test-long` all of them.
    stride = 1 if LONG else 9
    for last in range(1 + len(query.__name__) % stride, faulty.count + 1, stride):
        for behind in (False, True):
            driver, _ = run(query(), cells, last, behind, monkeypatch)
            made = pa.concat_tables([query().schema.empty_table(), *driver.outcome.tables])
            told = difference(made, law.rows)
            assert told is None, f"ended {'behind' if behind else 'before'} operation {last}\n{told}"
