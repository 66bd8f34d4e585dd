"""Tuples routed to cells, and packed for them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

import tidegate as tg
from tidegate.errors import DataError
from tidegate.operators.exchange import PRIMARY, Delta, RouteByKeys, cells_of, timely_tuples, tuple_piece
from tidegate.operators.keys import key_hashes
from tidegate.query.keys import Columns
from tidegate.query.nodes import KeyedApply
from tidegate.runtime.spark.codec import COLUMNS, decode_delta
from tidegate.runtime.spark.operator import FusedSteps, TupleStage
from tidegate.state import chunks

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("words", pa.list_(pa.string()))])
WORDS = [["a", "b", "a", "c"], [], None, ["b"], ["c", "d", "e", "f", "g"]]


def tuples(words: list[Any] = WORDS) -> pa.Table:
    times = pa.array(range(len(words), 0, -1), pa.int64()).cast(pa.timestamp("us"))
    return pa.table([times, pa.array(words, pa.list_(pa.string()))], schema=SCHEMA)


def sent(stage: TupleStage, table: pa.Table) -> dict[int, list[Delta]]:
    made: dict[int, list[Delta]] = {}
    for batch in stage(iter(table.to_batches())):
        row = batch.to_pylist()[0]
        made.setdefault(row["cell"], []).append(decode_delta(*(row[name] for name in COLUMNS[:-1])))
    return made


def stage(cells: int, derived: bool = False) -> TupleStage:
    router = RouteByKeys(tg.each("words"), cells)
    return TupleStage(FusedSteps(SCHEMA, ()), SCHEMA, "applied", "ts", 1, router, tuple(range(cells)), derived)


@pytest.mark.parametrize("cells", [1, 2, 3, 7])
def test_a_tuple_goes_once_to_each_cell_of_its_keys_and_has_one_primary_cell(cells: int) -> None:
    routing = RouteByKeys(tg.each("words"), cells)(tuples())
    for row, words in enumerate(WORDS):
        keys = pa.array(sorted(set(words or [])), pa.string())
        expected = set(cells_of(key_hashes((keys,)), cells).tolist()) if len(keys) else set()
        mine = routing.rows == row
        assert sorted(routing.cells[mine].tolist()) == sorted(expected)
        assert int(routing.primary[mine].sum()) == (1 if expected else 0)


def test_one_key_per_tuple_is_one_cell() -> None:
    table = pa.table({"k": ["a", None, "b"]})
    routing = RouteByKeys(Columns(("k",)), 4)(table)
    assert routing.rows.tolist() == [0, 1, 2]
    assert routing.primary.all()


def test_every_tuple_is_counted_in_one_cell_and_late_ones_stay_out() -> None:
    late, kept = 0, 0
    for deltas in sent(stage(3), tuples()).values():
        for delta in deltas:
            table, count = timely_tuples(delta, "ts", 4)
            late += count
            if table is not None and table.num_rows:
                assert PRIMARY not in table.column_names
                times = table.column("ts").cast(pa.int64()).to_pylist()
                assert times == sorted(times)
                assert times[0] >= 4
                piece = tuple_piece(table, "ts")
                assert (piece.low, piece.high, piece.rows) == (times[0], times[-1], len(times))
                kept += 1
    # Times are 5 to 1: those of 3, 2 and 1 are late, two of them without a key.
    assert (late, kept > 0) == (3, True)


def test_derived_tuples_carry_no_marks() -> None:
    for deltas in sent(stage(2, derived=True), tuples()).values():
        for delta in deltas:
            assert (delta.derived, delta.side, delta.tuples) == (True, 1, ())
            assert delta.piece is not None
            assert PRIMARY not in chunks.decode(delta.piece.data).column_names


def test_a_tuple_without_event_time_is_refused() -> None:
    broken = pa.table(
        [pa.array([None, 1], pa.int64()).cast(pa.timestamp("us")), pa.array([["a"], ["b"]])], SCHEMA.names
    )
    with pytest.raises(DataError, match="step 'applied': 1 tuples have no event time in 'ts'"):
        list(stage(1)(iter(broken.to_batches())))


def test_an_apply_travels_with_its_initial_state() -> None:
    """Records refuse to be filled item by item, as pickle would."""
    state = {"seen": pa.list_(pa.struct([("n", pa.int64())])), "last": pa.timestamp("us")}
    query = (
        tg.stream(SCHEMA, time="ts", name="s")
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
