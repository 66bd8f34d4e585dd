"""Generated functions of one tuple, compiled, against the same functions in Python and against the law."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.check_keyed_apply import check_keyed_apply
from tests.kit.check_keyed_apply_cells import any_driver, check_on_driver
from tests.kit.check_local import any_reconfigurer, any_settings
from tests.kit.compiled_apply_cases import compiled_apply_cases, compiled_query, generated_functions, generated_tuples
from tests.kit.effort import examples
from tidegate.errors import DataError
from tidegate.operators import compiled_slots
from tidegate.operators.column_slots import slots_of
from tidegate.operators.compiled_slots import CompiledSlots
from tidegate.operators.keyed_slots import KeyedSlots, TupleSlots
from tidegate.query.nodes import KeyedApply
from tidegate.reference import Advance, Rows, interpret
from tidegate.watermark import END

WINDOWS = [(None, None), ("1ms", "1ms"), ("3ms", "1ms"), ("20ms", "20ms")]
Outcome = tuple[list[str], str]


def shown(tables: list[pa.Table]) -> list[str]:
    """Rows with their bits, whatever the order of those with one time."""
    return sorted(repr(sorted(row.items())) for table in tables for row in table.to_pylist())


def outcome(slots: KeyedSlots, batches: list[tuple[pa.Table, int]]) -> tuple[Outcome, list[str]]:
    """What leaves, what is kept before the end, and the error, if there is one."""
    tables, kept = [], [""]
    try:
        for segment, (table, watermark) in enumerate(batches):
            slots.waiting.hold(segment, 0, table, "ts")
            settled = slots.waiting.settle(segment, watermark)
            tables += list(slots.process(settled, slots.prepare(settled), None))
            if watermark != END:
                stored = [(one.number, one.last, one.key, one.states, one.states[0].size) for one in slots.stored()]
                kept = sorted(map(repr, stored))
                assert slots.bytes - slots.waiting.bytes == sum(each[-1] for each in stored)
    except DataError as error:
        return ([], str(error)), []
    return (shown(tables), ""), kept


def law(query: tg.Stream, batches: list[tuple[pa.Table, int]]) -> Outcome:
    events: list[Any] = []
    for table, watermark in batches:
        events += [Rows("s0", table), Advance(watermark)]
    try:
        return shown([interpret(query.node, events).rows]), ""
    except DataError as error:
        return [], str(error)


def check(seed: int) -> str:
    """Compare one generated case; what became of it."""
    rng = random.Random(seed)
    window, every = rng.choice(WINDOWS)
    keys = rng.choice([("k",), ("k",), ("m", "k"), ("m",)])
    functions = generated_functions(seed, window is None, keys == ("k",))
    query = compiled_query(functions, window, every, keys)
    node = query.node
    assert isinstance(node, KeyedApply)
    start = rng.choice([0, 1_700_000_000_000_000, -50_000])
    batches = []
    for last in (False, False, True):
        rows = rng.choice([0, 40, 150])
        table = generated_tuples(rng, rows, start)
        start += rng.choice([max(rows, 1) * 40, max(rows, 1) * 20 + 5_000])
        batches.append((table, END if last else start))
    # What is late is no matter of these functions.
    reached = -(2**63)
    for at, (table, watermark) in enumerate(batches):
        times = table.column("ts").cast(pa.int64()).to_pylist()
        batches[at] = table.filter(pa.array([time >= reached for time in times], pa.bool_())), watermark
        reached = watermark
    slots = slots_of(node)
    if not isinstance(slots, CompiledSlots):
        return f"refused: {'; '.join(getattr(slots, 'obstacles', ()))}"
    made, kept = outcome(slots, batches)
    plain = TupleSlots(node, slots_of(node).waiting, slots_of(node).shards, slots.form)
    interpreted, kept_by_python = outcome(plain, batches)
    lawful = law(query, batches)
    told = f"seed {seed}\n{functions.text}\n{slots.program.source}"
    assert made == lawful, f"{_difference(made, lawful)}\n{told}"
    if not made[1]:
        assert made == interpreted, f"{_difference(made, interpreted)}\n{told}"
        assert kept == kept_by_python, f"{kept[:2]}\n{kept_by_python[:2]}\n{told}"
    tally = compiled_slots._tallies[slots.program.source]
    assert made[1] or tally.tried or not sum(table.num_rows for table, _ in batches), told
    return "failed" if made[1] else f"left {tally.left}" if tally.left else "compiled"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are compiled before their first tuple, and stay so."""
    monkeypatch.setattr(compiled_slots, "COMPILE_AFTER", 0)
    monkeypatch.setattr(compiled_slots, "LEAST_BATCH", 0)
    monkeypatch.setattr(compiled_slots, "TRY_FOR", 10**9)
    monkeypatch.setattr(compiled_slots, "_tallies", {})


def test_the_answer_is_the_same_either_way() -> None:
    became = [check(seed) for seed in range(6, 6 + examples(3))]
    refused = [each for each in became if each.startswith("refused")]
    assert all("too many ways" in each for each in refused), refused
    assert "compiled" in became and any(each.startswith("left") for each in became), became


@settings(max_examples=examples(4))
@given(data=st.data())
def test_the_output_is_the_laws_however_instances_change(data: st.DataObject) -> None:
    check_keyed_apply(data.draw(compiled_apply_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))


@settings(max_examples=examples(4), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_output_is_the_laws_whatever_the_batches(tmp_path: Path, data: st.DataObject) -> None:
    case = data.draw(compiled_apply_cases())
    check_on_driver(case, *data.draw(any_driver(case, tmp_path)))


def _difference(made: Outcome, lawful: Outcome) -> str:
    only = [sorted(set(one[0]) - set(two[0]))[:2] for one, two in ((made, lawful), (lawful, made))]
    return f"compiled alone: {only[0]} {made[1]}\nby the law alone: {only[1]} {lawful[1]}"
