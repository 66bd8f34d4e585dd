"""The two forms of O+: the defaults of STRETCH's table 1, and what is said of functions that break their declaration."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.query.column_form import ColumnForm, Contributions
from tidegate.query.forms import KeyedWindow, Tuple, TupleForm
from tidegate.query.nodes import KeyedApply
from tidegate.query.user_functions import Misfit, Record, record_of, shape_of
from tidegate.testing import answer

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("ts", TIME), ("k", pa.string()), ("x", pa.int64())])
TABLE = pa.table({"ts": pa.array([1, 2, 3], TIME), "k": ["a", "b", "a"], "x": [10, 20, 30]}, schema=SCHEMA)
STREAM = tg.stream(TABLE, time="ts", name="s")
KEYED = STREAM.key_by("k")
WINDOWED = KEYED.window("1 minute")
COUNT: dict[str, Any] = {"state": {"count": pa.int64()}, "initial": {"count": 0}, "returns": {"count": pa.int64()}}


def form_of(stream: tg.Stream) -> Any:
    assert isinstance(stream.node, KeyedApply)
    return stream.node.form


def arriving(x: int, time: int, side: int = 0) -> Tuple:
    values = {"ts": datetime.fromtimestamp(time / 1e6, UTC), "k": "a", "x": x}
    return Tuple(values, record_of(SCHEMA), 0, time, side)


# Table 1.


def stored() -> TupleForm:
    two = tg.gather(KEYED, KEYED).window("1 minute").apply(output=lambda window: None, returns={}, windows="single")
    form = form_of(two)
    assert isinstance(form, TupleForm)
    return form


def test_by_default_update_stores_the_tuple_in_the_state_of_its_sender() -> None:
    form = stored()
    window = KeyedWindow("a", 0, 60_000_000, form.initial)
    step = form.updates("s", window, arriving(7, 5, side=1))
    assert [len(state["tuples"]) for state in step.states] == [0, 1]
    assert step.states[1]["tuples"][0]["x"] == 7
    assert step.rows == []


def test_by_default_slide_purges_tuples_before_the_windows_start() -> None:
    form = stored()
    states = form.initial
    for time, side in ((5, 0), (9, 1), (10, 0)):
        states = form.updates("s", KeyedWindow("a", 0, 60, states), arriving(time, time, side)).states
    slid = form.slides("s", KeyedWindow("a", 10, 70, states))
    assert [[one["x"] for one in state["tuples"]] for state in slid] == [[10], []]
    assert not form.is_empty(slid, {})
    assert form.is_empty(form.slides("s", KeyedWindow("a", 11, 71, slid)), {})


def test_by_default_output_gives_nothing() -> None:
    query = WINDOWED.apply(update=lambda window, one: None, returns={})
    assert form_of(query).outputs("s", KeyedWindow("a", 0, 60, form_of(query).initial)) == []


def test_state_and_tuples_cannot_be_changed_in_place() -> None:
    def change(window: Any, one: Any) -> None:
        window.state["count"] += 1

    with pytest.raises(tg.DataError, match=r"update failed for the tuple .*'x': 10.*cannot be changed"):
        answer(WINDOWED.apply(update=change, **COUNT))


def test_lists_of_a_tuple_cannot_be_changed_and_what_is_stored_is_columns_alone() -> None:
    table = pa.table({"ts": pa.array([1, 2], TIME), "k": [["a"], ["a", "b"]]})
    seen: list[Any] = []

    def look(window: Any, one: Any) -> Any:
        assert isinstance(one["k"], tuple)
        seen.extend(type(held) for held in window.state["tuples"])
        return tg.updated({"tuples": [*window.state["tuples"], one]})

    keyed = tg.stream(table, time="ts", name="s").key_by(tg.each("k"))
    query = keyed.window("1 minute").apply(update=look, returns={})
    answer(query)
    tg.start(query, to=lambda made: None, instances=1).wait(60)
    assert seen == [Record, Record]


# Mistakes found when the query is built.


def ok(window: Any, one: Any) -> Any:
    return tg.updated({"count": 1})


def columns(batch: Any) -> Any:
    return tg.updated({"count": np.asarray(batch.windows.states["count"])})


BUILT: list[tuple[Callable[[], Any], str]] = [
    (lambda: WINDOWED.apply(returns={}), "neither update nor output is given"),
    (lambda: WINDOWED.apply(output=len, state={"n": pa.int64()}, returns={}), "the default update stores whole tuples"),
    (lambda: WINDOWED.apply(update=ok, windows="many", **COUNT), "windows is 'multi' or 'single'; got 'many'"),
    (lambda: WINDOWED.apply(update=ok, slide=len, **COUNT), "slide belongs to windows='single'"),
    (lambda: WINDOWED.apply(update=ok, windows="single", **COUNT), "the default slide purges stored tuples"),
    (lambda: KEYED.unbounded().apply(update=ok, output=len, **COUNT), "an unbounded window neither expires nor slides"),
    (lambda: KEYED.window("1 m", lateness="1 m").apply(update=ok, **COUNT), "it allows no lateness"),
    (lambda: WINDOWED.apply(update=ok, returns={"ts": TIME}), "two columns would be called 'ts'"),
    (lambda: WINDOWED.apply(update=ok, returns={"d": pa.duration("us")}), "'d' has the type duration"),
    (
        lambda: WINDOWED.apply(update=ok, state={"n": pa.int64()}, initial={"n": "x"}, returns={}),
        "initial does not fit the declared state: n: 'x' is not int64",
    ),
    (lambda: WINDOWED.apply(update=ok, state=[{}, {}], returns={}), "one for each of 1 inputs"),
    (lambda: tg.gather(KEYED, STREAM.key_by("x")), r"keys of the same types; \(x: int64\) is not \(k: string\)"),
    (lambda: tg.gather(STREAM), "takes streams with keys"),
    (
        lambda: (
            KEYED.window("1 m", lateness="1 m")
            .aggregate(n=tg.count(), name="g")
            .key_by("k")
            .unbounded()
            .apply(update=ok, **COUNT)
        ),
        "'g' allows lateness",
    ),
    (
        lambda: WINDOWED.apply_columns(update=columns, windows="single", **COUNT),
        "windows that slide need slide=...",
    ),
    (
        lambda: WINDOWED.apply_columns(update=columns, slide=columns, windows="single", ordered=False, **COUNT),
        "leave ordered=False out",
    ),
    (
        lambda: WINDOWED.apply_columns(update=lambda batch: batch.column("q"), **COUNT),
        r"update failed on 0 rows: KeyError.*\(tried without rows",
    ),
    (lambda: WINDOWED.apply_columns(update=lambda batch: 3, **COUNT), "update returned int; return tg.updated"),
    (
        lambda: WINDOWED.apply_columns(update=lambda batch: tg.updated({"n": []}), **COUNT),
        r"state \['n'\]; the declared columns are \['count'\]",
    ),
    (
        lambda: (
            WINDOWED.apply_columns(update=lambda batch: tg.updated({"count": pa.array([], pa.string())}), **COUNT)
            and WINDOWED.apply_columns(update=lambda batch: tg.updated({"count": pa.array([[1]])}), **COUNT)
        ),
        "state 'count' that is not int64",
    ),
    (
        lambda: WINDOWED.apply_columns(update=lambda batch: tg.updated(retire=[]), **COUNT),
        "only the keys of an unbounded window can be retired",
    ),
    (
        lambda: WINDOWED.apply_columns(update=lambda batch: tg.updated(rows={"count": []}), **COUNT),
        "rows without of=...",
    ),
]


@pytest.mark.parametrize(("build", "told"), BUILT)
def test_a_mistake_is_told_when_the_query_is_built(build: Callable[[], Any], told: str) -> None:
    with pytest.raises(tg.QueryError, match=told):
        build()


# Mistakes that only a tuple shows; the runtime tells them as the law does.

RUN: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda window, one: 1 // 0, r"step 'apply_1': update failed for the tuple .*'x': \d0.*ZeroDivisionError"),
    (lambda window, one: {"count": 1}, r"update returned, for the tuple .*return tg.updated\(state, rows=\[...\]\)"),
    (lambda window, one: tg.updated({"count": "x"}), r"a state that was not declared: count: 'x' is not int64"),
    (lambda window, one: tg.updated({"count": 2**63}), r"count: 9223372036854775808 is not int64"),
    (lambda window, one: tg.updated({"n": 1}), r"it is without 'count' and with the unknown 'n'"),
    (lambda window, one: tg.updated(None, None), r"2 states; there is one per input, and 1 inputs"),
    (lambda window, one: tg.updated(rows=[{"count": 1.5}]), r"rows that were not declared: count: 1.5 is not int64"),
    (lambda window, one: tg.updated(rows=7), r"7 is not a row or a list of rows"),
    (lambda window, one: tg.updated(retire=True), r"only the keys of an unbounded window can be retired"),
]


@pytest.mark.parametrize(("update", "told"), RUN)
def test_a_wrong_return_names_step_tuple_and_field(update: Callable[[Any, Any], Any], told: str) -> None:
    query = WINDOWED.apply(update=update, **COUNT)
    with pytest.raises(tg.DataError, match=told):
        answer(query)
    with pytest.raises(tg.DataError, match=told):
        tg.start(query, to=lambda table: None, instances=3).wait(60)


def test_a_columnar_return_is_checked_against_the_rows_there_are() -> None:
    query = WINDOWED.apply_columns(
        update=lambda batch: tg.updated(rows={"count": [1] * len(batch)}, of=np.arange(len(batch)) + 1), **COUNT
    )
    with pytest.raises(tg.DataError, match=r"of=... with the index 1 or 1; there are 0 to 0"):
        answer(query)


def test_a_generator_that_fails_in_output_is_named_too() -> None:
    def output(window: Any) -> Any:
        yield {"count": 1}
        raise ValueError("no more")

    with pytest.raises(tg.DataError, match=r"output failed for the key 'a': ValueError: no more"):
        answer(WINDOWED.apply(output=output, returns={"count": pa.int64()}))


# Values of declared types.


def test_values_take_the_form_of_their_type() -> None:
    assert shape_of(pa.float64()).take(3) == (3.0, 8)
    assert shape_of(TIME).take(1_000_000)[0] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert shape_of(pa.int8()).take(np.int64(5))[0] == 5
    assert shape_of(pa.list_(pa.string())).take(["a", None])[0] == ("a", None)


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (pa.int8(), 128, "128 is not int8"),
        (pa.int64(), True, "True is not int64"),
        (pa.float64(), "1", "'1' is not double"),
        (pa.bool_(), 1, "1 is not bool"),
        (pa.timestamp("us"), datetime(2024, 1, 1, tzinfo=UTC), r"is not timestamp\[us\]"),
        (pa.list_(pa.struct([("a", pa.int64())])), [{"a": 1}, {"a": "x"}], r"^\[1\].a: 'x' is not int64"),
        (pa.struct([("a", pa.list_(pa.int64()))]), {"a": [1, 2.5]}, r"^a\[1\]: 2.5 is not int64"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_place(kind: pa.DataType, value: Any, told: str) -> None:
    with pytest.raises(Misfit, match=told):
        shape_of(kind).take(value)


def test_a_checked_part_is_not_checked_again() -> None:
    kind = pa.list_(pa.struct([("a", pa.int64())]))
    first = shape_of(kind).take([{"a": 1}])[0]
    longer = shape_of(kind).take([*first, {"a": 2}])[0]
    assert longer[0] is first[0]
    assert shape_of(kind).take(longer)[0] is longer


def test_contributions_share_tuples() -> None:
    seen: list[Contributions] = []

    def look(batch: Contributions) -> Any:
        seen.append(batch)
        return tg.updated()

    query = KEYED.window("4us", every="1us").apply_columns(update=look, **COUNT)
    assert isinstance(form_of(query), ColumnForm)
    tg.start(query, to=lambda table: None, instances=1).wait(60)
    whole = [batch for batch in seen if len(batch)]
    assert sum(len(batch) for batch in whole) == 3 * 4
    assert sum(batch.tuples.num_rows for batch in whole) == 3
