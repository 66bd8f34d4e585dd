"""What reaches cells: which tuples are late, where the others go, and what is told of them."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

import tidegate as tg
from tidegate.errors import DataError
from tidegate.operators import exchange
from tidegate.operators.exchange import (
    Arrived,
    Intake,
    PaneIntake,
    RouteByKeys,
    TupleIntake,
    first_in_time,
    tuple_piece,
)
from tidegate.operators.keys import key_hashes, step_shards
from tidegate.operators.windowed_aggregate import SLICE
from tidegate.query.event_time import AFTER_LATEST_US
from tidegate.query.keys import Columns
from tidegate.query.nodes import KeyedApply, Stateful
from tidegate.state import chunks
from tidegate.state.epochs import CellEpoch, first_mapping
from tidegate.watermark import END, START

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("words", pa.list_(pa.string()))])
WORDS = [["a", "b", "a", "c"], [], None, ["b"], ["c", "d", "e", "f", "g"]]


def calls(name: str = "calls") -> tg.Stream:
    return tg.stream(SCHEMA, time="ts", name=name)


def applied(stream: tg.Stream, size: str | None = "5us") -> tg.Stream:
    keyed = stream.key_by(tg.each("words")).window(size)
    return keyed.apply(update=lambda window, arriving: None, state={"n": pa.int64()}, returns={"n": pa.int64()})


def counted(size: int, every: int, lateness: int = 0) -> tg.Stream:
    windows = calls().key_by("k").window(f"{size}us", every=f"{every}us", lateness=f"{lateness}us")
    return windows.aggregate(n=tg.count(), name="counts")


def late_for_windows(size: int, every: int, lateness: int = 0) -> Callable[[int, int], bool]:
    """Whether the last window over a time has ended by a watermark."""
    return lambda time, watermark: time // every * every + size + lateness <= watermark


OPERATORS: dict[str, tuple[Stateful, Callable[[int, int], bool]]] = {
    "tumbling": (counted(4, 4).node, late_for_windows(4, 4)),  # type: ignore[dict-item]
    "sliding": (counted(9, 3).node, late_for_windows(9, 3)),  # type: ignore[dict-item]
    "sliding unevenly": (counted(5, 2).node, late_for_windows(5, 2)),  # type: ignore[dict-item]
    "lateness": (counted(4, 4, 7).node, late_for_windows(4, 4, 7)),  # type: ignore[dict-item]
    "uneven with lateness": (counted(7, 5, 3).node, late_for_windows(7, 5, 3)),  # type: ignore[dict-item]
    "join within": (calls().join(calls("others"), within="3us", on="k").node, lambda t, w: t < w),  # type: ignore[dict-item]
    "join in windows": (
        calls().join(calls("others"), window="5us", every="2us", on="k").node,  # type: ignore[dict-item]
        late_for_windows(5, 2),
    ),
    "apply": (applied(calls()).node, lambda t, w: t < w),  # type: ignore[dict-item]
}


def tuples(times: list[int], keys: list[int] | None = None, words: list[Any] | None = None) -> pa.Table:
    columns = (times, keys or [0] * len(times), words or [["a"]] * len(times))
    return pa.table([pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def mapping_to(cells: int) -> CellEpoch:
    return CellEpoch(0, first_mapping(cells))


def cells_of(keys: pa.Array, cells: int) -> set[int]:
    return set(mapping_to(cells).array[step_shards(key_hashes((keys,)))].tolist()) if len(keys) else set()


def intake(node: Stateful, least: int | None, cells: int = 1, keep_late: bool = False, **changes: Any) -> Intake:
    given = (
        node,
        changes.pop("side", 0),
        mapping_to(cells) if cells > 1 else None,
        SCHEMA,
        "ts",
        changes.pop("prepare", lambda table: table),
        least,
        keep_late,
    )
    if isinstance(node, KeyedApply):
        return TupleIntake(RouteByKeys(node.keys[0], mapping_to(cells)), *given)
    if hasattr(node, "on"):
        return TupleIntake(RouteByKeys(Columns(("k",)), mapping_to(cells)), *given)
    return PaneIntake(*given)


def given(found: Intake) -> dict[int, pa.Table]:
    """What each cell is given; a cell is given one delta at a time."""
    rows: dict[int, pa.Table] = {}
    for cell, delta in found.finish():
        assert cell not in rows
        rows[cell] = delta.rows
    return rows


def times(table: pa.Table) -> list[int]:
    moments: list[int] = table.column("ts").cast(pa.int64()).to_pylist()
    return moments


@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.parametrize("watermark", [-13, -4, 0, 1, 4, 5, 6, 7, 8, 23])
def test_a_tuple_is_late_from_the_very_microsecond_on(kind: str, watermark: int) -> None:
    node, is_late = OPERATORS[kind]
    least = first_in_time(node, watermark)
    assert [time for time in range(-60, 60) if is_late(time, watermark)] == list(range(-60, least))
    around = [least + 1, least - 1, least, least - 2]
    taken = intake(node, least, keep_late=True)
    taken.add(tuples(around))
    kept = given(taken)[0]
    assert (taken.arrived.tuples, taken.arrived.late) == (4, 2)
    assert [sorted(times(table)) for table in taken.late_tuples] == [[least - 2, least - 1]]
    if isinstance(taken, TupleIntake):
        assert times(kept) == [least, least + 1], "in the order of time"
    else:
        window = node.window
        assert window is not None
        slices = {int(window.slice_of(least)), int(window.slice_of(least + 1))}
        assert kept.column(SLICE).to_pylist() == sorted(slices)


@pytest.mark.parametrize("kind", OPERATORS)
def test_before_the_first_watermark_nothing_is_late_and_after_the_last_all_is(kind: str) -> None:
    node, _ = OPERATORS[kind]
    for watermark, late in ((START, 0), (END, 3)):
        taken = intake(node, first_in_time(node, watermark))
        taken.add(tuples([-(10**15), 0, 10**15]))
        given(taken)
        assert (taken.arrived.late, taken.late_tuples) == (late, []), "late tuples are not kept unasked"


def test_what_comes_from_another_step_is_never_late() -> None:
    taken = intake(OPERATORS["tumbling"][0], None)
    taken.add(tuples([-(2**62), 5]))
    assert given(taken)[0].num_rows == 2
    assert taken.arrived.late == 0


@pytest.mark.parametrize("kind", ["sliding unevenly", "join within", "apply"])
def test_what_arrived_does_not_depend_on_order_or_cut(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ROWS_AT_ONCE", 50)
    chance = random.Random(3)
    moments = [chance.randrange(-(10**15), 10**17) for _ in range(400)]
    keys = [chance.randrange(20) for _ in moments]
    least = sorted(moments)[50]

    def taken(order: list[int], cuts: int) -> tuple[Arrived, dict[int, pa.Table]]:
        found = intake(OPERATORS[kind][0], least, cells=3)
        table = tuples([moments[place] for place in order], [keys[place] for place in order])
        edges = [0, *sorted(chance.sample(range(400), cuts)), 400]
        for start, stop in pairwise(edges):
            found.add(table.slice(start, stop - start))
        rows = given(found)
        return found.arrived, {cell: rows[cell].sort_by([(rows[cell].column_names[0], "ascending")]) for cell in rows}

    arrived, rows = taken(list(range(400)), 0)
    assert (arrived.tuples, arrived.late) == (400, 50)
    for cuts in (1, 10, 200):
        order = chance.sample(range(400), 400)
        again, others = taken(order, cuts)
        assert again == arrived
        assert {cell: table.num_rows for cell, table in others.items()} == {c: t.num_rows for c, t in rows.items()}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tidegate")]


@pytest.mark.parametrize("change", [lambda times: [*times[:-1], times[-1] + 1], lambda times: times[:-1]])
def test_other_tuples_are_told_apart(change: Callable[[list[int]], list[int]]) -> None:
    one = np.arange(10**15, 10**15 + 1000)
    assert Arrived.of(one, 0) != Arrived.of(np.array(change(one.tolist())), 0)
    # Sums alone would not do: two tuples that move by as much in opposite directions have the same.
    swapped = one.copy()
    swapped[[0, 9]] += (5, -5)
    assert Arrived.of(one, 0).times == Arrived.of(swapped, 0).times
    assert Arrived.of(one, 0) != Arrived.of(swapped, 0)


def test_sums_of_any_times_add_up() -> None:
    moments = np.array([2**62, 2**62, 2**62, -(2**62), 5, -(2**63), 2**63 - 1])
    whole = Arrived.of(moments, 1)
    assert Arrived.of(moments[:3], 1) + Arrived.of(moments[3:], 0) == whole
    assert whole.times == sum(moments.tolist()) % 2**64
    assert whole.squares == sum(moment**2 for moment in moments.tolist()) % 2**64
    assert Arrived() + whole == whole == whole + Arrived()


@pytest.mark.parametrize("cells", [1, 2, 3, 7])
def test_a_tuple_goes_once_to_each_cell_of_its_keys(cells: int) -> None:
    routing = RouteByKeys(tg.each("words"), mapping_to(cells))(tuples([5, 4, 3, 2, 1], words=WORDS))
    for row, words in enumerate(WORDS):
        keys = pa.array(sorted(set(words or [])), pa.string())
        assert sorted(routing.cells[routing.rows == row].tolist()) == sorted(cells_of(keys, cells))


def test_one_key_per_tuple_is_one_cell() -> None:
    routing = RouteByKeys(Columns(("k",)), mapping_to(4))(pa.table({"k": ["a", None, "b"]}))
    assert routing.rows.tolist() == [0, 1, 2]


@pytest.mark.parametrize("cells", [1, 2, 5])
def test_tuples_are_given_to_the_cells_of_their_keys_in_the_order_of_time(cells: int) -> None:
    node = OPERATORS["apply"][0]
    taken = intake(node, 3, cells, side=1)
    table = tuples([5, 4, 3, 2, 1], words=WORDS)
    taken.add(table)
    routing = RouteByKeys(tg.each("words"), mapping_to(cells))(table)
    found = dict(taken.finish())
    # Times are 5 to 1, of which 2 and 1 are late. With one cell, tuples without a key travel with the others.
    expected = {
        cell: sorted(5 - row for row in routing.rows[routing.cells == cell].tolist() if row < 3)
        for cell in range(cells)
    }
    if cells == 1:
        expected = {0: [3, 4, 5]}
    assert {cell: times(delta.rows) for cell, delta in found.items()} == {
        c: each for c, each in expected.items() if each
    }
    assert all(delta.side == 1 for delta in found.values())
    assert (taken.arrived.tuples, taken.arrived.late) == (5, 2), "a tuple counts once, wherever it goes"
    for delta in found.values():
        piece = tuple_piece(delta.rows, "ts")
        assert (piece.low, piece.high, piece.rows) == (times(delta.rows)[0], times(delta.rows)[-1], delta.rows.num_rows)
        assert chunks.decode(piece.data).equals(delta.rows)


@pytest.mark.parametrize("cells", [1, 2, 5])
def test_panes_are_given_to_the_cells_of_their_keys_in_the_order_of_slices(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "ROWS_AT_ONCE", 40)
    chance = random.Random(cells)
    moments, keys = [chance.randrange(100) for _ in range(500)], [chance.randrange(9) for _ in range(500)]
    taken = intake(OPERATORS["tumbling"][0], 20, cells)
    for at in range(0, 500, 30):
        taken.add(tuples(moments[at : at + 30], keys[at : at + 30]))
    found = given(taken)
    for cell, panes in found.items():
        slices = panes.column(SLICE).to_pylist()
        assert slices == sorted(slices)
        assert cells_of(panes.column("k0").combine_chunks(), cells) == {cell}
    held = [
        pair
        for panes in found.values()
        for pair in zip(*(panes.column(n).to_pylist() for n in (SLICE, "k0")), strict=True)
    ]
    expected = {(2 * (moment // 4), key) for moment, key in zip(moments, keys, strict=True) if moment >= 20}
    assert len(held) == len(set(held)) and set(held) == expected, "one pane for each key and slice"
    assert taken.arrived.late == sum(moment < 20 for moment in moments)
    assert taken.loads.sum() == (len(held) if cells > 1 else 0), "with one cell nothing is routed, and nothing counted"


def test_what_takes_much_memory_is_given_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(exchange, "THREADS", 1)
    monkeypatch.setattr(exchange, "MOST_PANES", 25)
    monkeypatch.setattr(exchange, "MOST_BYTES", 500)
    for kind in ("tumbling", "join within"):
        taken, rows, parts = intake(OPERATORS[kind][0], 0), 0, 0
        for at in range(0, 200, 10):
            taken.add(tuples(list(range(at, at + 10)), list(range(at, at + 10))))
            if taken.is_full:
                rows += sum(delta.rows.num_rows for _, delta in taken.give())
                parts += 1
                assert not taken.is_full
        rows += sum(delta.rows.num_rows for _, delta in taken.finish())
        assert (rows, parts > 1) == (200, True)


def test_steps_before_the_exchange_are_run_and_columns_nobody_reads_stay_behind() -> None:
    def prepare(table: pa.Table) -> pa.Table:
        wide = table.append_column("more", pa.nulls(table.num_rows, pa.int64()))
        return nw.from_native(wide).filter(nw.col("k") > 0).to_native()

    taken = intake(OPERATORS["apply"][0], 2, prepare=prepare)
    taken.add(tuples([1, 2, 3], [1, 0, 1]))
    assert given(taken)[0].schema == SCHEMA
    assert (taken.arrived.tuples, taken.arrived.late) == (2, 1), "what a step leaves out has not arrived"


def test_nothing_comes_of_nothing() -> None:
    for kind in ("tumbling", "apply"):
        taken = intake(OPERATORS[kind][0], 100, cells=2)
        taken.add(SCHEMA.empty_table())
        assert given(taken) == {}
        taken.add(tuples([1]))
        assert given(taken) == {}, "late, all of it"
        assert taken.arrived.late == 1


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_tuple_without_event_time_is_refused(kind: str) -> None:
    node = OPERATORS[kind][0]
    taken = intake(node, START)
    taken.add(pa.table([pa.array([None, 1], SCHEMA.types[0]), *tuples([1, 2]).columns[1:]], schema=SCHEMA))
    with pytest.raises(DataError, match=f"step '{node.name}': 1 tuples have no event time in 'ts'; filter them out"):
        given(taken)


def test_a_time_that_no_tuple_may_have_is_refused() -> None:
    taken = intake(OPERATORS["tumbling"][0], START)
    taken.add(tuples([1, AFTER_LATEST_US]))
    with pytest.raises(DataError, match=r"step 'counts': row 1 of a batch has the event time .* in 'ts'"):
        given(taken)


def test_an_apply_travels_with_its_initial_state() -> None:
    """Records refuse to be filled item by item, as pickle would."""
    state = {"seen": pa.list_(pa.struct([("n", pa.int64())])), "last": pa.timestamp("us")}
    query = (
        calls()
        .key_by(tg.each("words"))
        .window("5us")
        .apply(
            update=lambda window, arriving: None,
            state=state,
            initial={"seen": [{"n": 1}], "last": 7},
            returns={"n": pa.int64()},
        )
    )
    node = pickle.loads(cloudpickle.dumps(query.node))
    assert isinstance(node, KeyedApply)
    assert isinstance(query.node, KeyedApply)
    assert node.form.initial == query.node.form.initial
    again = pickle.loads(cloudpickle.dumps(node.form.initial[0]))
    assert again.shape is node.form.initial[0].shape
    with pytest.raises(TypeError, match="cannot be changed"):
        again["last"] = np.int64(1)
