"""Running state takes the room of its live keys, and long stretches of periods are emitted as they are consumed."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.spark_driver import Batch, Driver
from tidegate.operators.cells import Instances
from tidegate.operators.column_slots import slots_of
from tidegate.operators.exchange import Delta
from tidegate.operators.keyed_apply_cell import KeyedApplyCell
from tidegate.state.chunks import ChunkStore, Directory
from tidegate.state.step_folder import StepFolder
from tidegate.state.storage import open_storage

TIME = pa.timestamp("us", tz="UTC")
SECOND = 1_000_000
TEN_YEARS = 3_652 * 86_400 * SECOND


def totals(origin: Any, retire: bool = False, every: str = "1 second") -> tg.Stream:
    stream = tg.stream(origin, time="ts", name="events")
    return stream.key_by("k").running(
        create=lambda one: {"n": one["x"]},
        add=lambda state, one: {"n": state["n"] + one["x"]},
        merge=lambda carried, period: {"n": carried["n"] + period["n"]},
        output=lambda state: tg.updated(rows={"n": state["n"]}, retire=retire and state["n"] == 0),
        every=every,
        state={"n": pa.int64()},
        returns={"n": pa.int64()},
        name="totals",
    )


def tuples(*rows: tuple[int, str, int]) -> pa.Table:
    times, keys, values = zip(*rows, strict=True)
    return pa.table({"ts": pa.array(times, pa.int64()).cast(TIME), "k": list(keys), "x": pa.array(values, pa.int64())})


SCHEMA = tuples((0, "a", 1)).schema


def test_a_jump_of_ten_years_is_emitted_second_by_second_as_it_is_consumed() -> None:
    node = totals(SCHEMA).node
    slots = slots_of(node)
    slots.waiting.hold(0, 0, tuples((0, "a", 1), (1, "b", 2), (TEN_YEARS, "a", 3)), "ts")
    settled = slots.waiting.settle(0, TEN_YEARS + SECOND)
    tracemalloc.start()
    first, second = islice(slots.process(settled, slots.prepare(settled), None), 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30_000_000
    times = pa.concat_arrays([first.column("ts").combine_chunks(), second.column("ts").combine_chunks()]).cast(
        pa.int64()
    )
    assert times.to_pylist() == [(at // 2 + 1) * SECOND - 1 for at in range(len(times))]
    assert set(zip(first.column("k").to_pylist(), first.column("n").to_pylist(), strict=True)) == {("a", 1), ("b", 2)}
    # The state is that after the jump, though hardly anything was consumed.
    assert slots.rows == 2
    assert {stored.states[0]["n"] for stored in slots.stored()} == {4, 2}


@pytest.mark.parametrize("instances", [1, 3])
def test_a_run_is_cancelled_in_the_middle_of_a_jump(instances: int) -> None:
    table = tuples((0, "a", 1), (1, "b", 2), (2, "c", 2), (TEN_YEARS, "a", 3))
    with tg.start(totals(table), instances=instances) as job:
        seen = 0
        for made in job:
            seen += made.num_rows
            if seen > 100_000:
                break
    assert seen < 10_000_000


def test_a_cell_keeps_its_state_before_the_jump_is_consumed(tmp_path: Path) -> None:
    folder = StepFolder(open_storage(str(tmp_path), {}), "step", "totals", "run", 10)
    node = totals(SCHEMA).node
    directory = Directory("fingerprint", last_time=TEN_YEARS)
    with Instances(2) as workers:
        cell = KeyedApplyCell(node, 0, ChunkStore(directory, folder, 0), workers)
        results = cell.receive([Delta(tuples((0, "a", 1), (1, "b", 2), (TEN_YEARS, "a", 3)))], TEN_YEARS + 1)
        assert directory.watermark == TEN_YEARS + 1
        assert directory.state_rows() == 2
        assert sum(table.num_rows for table in islice(results, 3)) > 100_000


def test_keys_that_retire_leave_nothing_behind() -> None:
    """A hundred keys, each for one period, beside one that stays."""
    driver = Driver(totals(SCHEMA, retire=True).node, 1)
    for number in range(100):
        at = number * SECOND
        driver.batch(Batch({"events": [tuples((at, "stays", 1), (at + 1, f"key {number}", 0))]}))
    assert sum(chunk.rows for chunk in driver.held()) <= 20

    slots = slots_of(totals(SCHEMA, retire=True).node)
    for number in range(100):
        at = number * SECOND
        slots.waiting.hold(number, 0, tuples((at, "stays", 1), (at + 1, f"key {number}", 0)), "ts")
        settled = slots.waiting.settle(number, at + SECOND)
        list(slots.process(settled, slots.prepare(settled), None))
        assert slots.rows == 1
    assert 0 < slots.bytes < 100


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (
            {"create": lambda one: {"m": 1}},
            "create returned, for the tuple .*'k': 'a'.*, a state that was not declared",
        ),
        ({"create": lambda one: None}, "create returned, for the tuple .* None is not struct<n: int64>"),
        ({"add": lambda state, one: 1 / 0}, "step 'totals': add failed for the tuple .*: ZeroDivisionError"),
        ({"merge": lambda one, other: {"n": "x"}}, "merge returned, for the key 'a', .*n: 'x' is not int64"),
        ({"output": lambda state: {"m": 1}}, "output returned, for the key 'a', rows that were not declared"),
        ({"output": lambda state: 7}, "output returned, for the key 'a', .*7 is not a row or a list of rows"),
        (
            {"output": lambda state: tg.updated({"n": 1})},
            "output returned, for the key 'a', a state; only tuples change it",
        ),
        (
            {"output": lambda state: tg.updated(retire=1)},
            "output returned, for the key 'a', retire=1, which is neither",
        ),
    ],
)
def test_what_functions_return_is_checked(functions: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {
        "create": lambda one: {"n": one["x"]},
        "add": lambda state, one: state,
        "merge": lambda carried, period: carried,
        "output": lambda state: {"n": state["n"]},
    } | functions
    table = tuples((0, "a", 1), (1, "a", 2), (SECOND, "a", 3))
    query = tg.stream(table, time="ts").key_by("k")
    running = query.running(
        **given, every="1 second", state={"n": pa.int64()}, returns={"n": pa.int64()}, name="totals"
    )
    with pytest.raises(tg.DataError, match=said):
        tg.run(running, on="local", to=lambda made: None, progress=False)


def test_mistakes_are_found_when_the_query_is_built() -> None:
    keyed = tg.stream(SCHEMA, time="ts").key_by("k")

    def built(**given: Any) -> Any:
        made = dict.fromkeys(("create", "add", "merge", "output"), dict) | {
            "every": "1 second",
            "state": {},
            "returns": {},
        }
        return keyed.running(**{**made, **given})

    with pytest.raises(tg.QueryError, match="merge is a function; got 3"):
        built(merge=3)
    with pytest.raises(tg.QueryError, match="two columns would be called 'k'"):
        built(returns={"k": pa.int64()})
    with pytest.raises(tg.QueryError, match="has no unit"):
        built(every=10)
    with pytest.raises(tg.QueryError, match="must be longer than zero"):
        built(every="0 seconds")
    refined = keyed.window("1 minute", lateness="1 minute").aggregate(n=tg.count())
    with pytest.raises(tg.QueryError, match="allows lateness, so its results may be refined"):
        refined.key_by("k").running(dict, dict, dict, dict, every="1 second", state={}, returns={})
