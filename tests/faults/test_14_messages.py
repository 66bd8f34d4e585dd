"""A sentence where there was a raw exception: what is wrong, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import DataError, QueryError, UserError
from tidegate.testing import answer, difference, same_bag

TIME = pa.timestamp("us", tz="UTC")
TABLE = pa.table({"ts": pa.array([1, 2, 3], TIME), "k": ["a", "b", "a"], "x": [1, 2, 3]})
CALLS: Any = tg.stream(TABLE, time="ts", name="calls")
KEYED = CALLS.key_by("k")
WINDOWED = KEYED.window("1 second")
COUNTS = WINDOWED.aggregate(n=tg.count())
ITEMS = {"time": "ts", "schema": {"ts": TIME}}

STEPS: list[tuple[Callable[[], Any], str]] = [
    (lambda: CALLS.session_window("1 minute"), r"\.key_by\(.*\)\.session\(gap="),
    (lambda: KEYED.sessions("1 minute"), r"\.session\(gap="),
    (lambda: KEYED.session("1 minute").apply(print), r"sessions have aggregates alone"),
    (lambda: CALLS.merge_asof(CALLS, on="k"), r"\.join_asof\("),
    (lambda: KEYED.countWindow(100), r"\.count_window\(100, every=10\)"),
    (lambda: CALLS.tumbling_count(100), r"\.count_window\(100, every=10\)"),
    (lambda: KEYED.rolling(100), r"\.count_window\(100, every=1\)"),
    (lambda: KEYED.count_window(3).apply(print), r"count windows have aggregates alone"),
    (lambda: CALLS.aggregate(n=tg.count()), r"\.key_by\(.*\)\.window\(.*\)\.aggregate\("),
    (lambda: CALLS.agg(n=tg.count()), r"\.aggregate\("),
    (lambda: CALLS.group_by("k"), r"key_by"),
    (lambda: CALLS.groupby("k"), r"key_by"),
    (lambda: CALLS.groupBy("k"), r"key_by"),
    (lambda: CALLS.where(nw.col("x") > 1), r"filter"),
    (lambda: CALLS.map(print), r"map_batches"),
    (lambda: CALLS.flat_map(print), r"map_batches"),
    (lambda: CALLS.withColumn("y", nw.col("x")), r"with_columns"),
    (lambda: CALLS.drop("x"), r"select"),
    (lambda: CALLS.sort("k"), r"without end.*no order"),
    (lambda: CALLS.limit(3), r"without end"),
    (lambda: CALLS.show(), r"tg\.run\("),
    (lambda: CALLS.collect(), r"tg\.run\("),
    (lambda: CALLS.filtr(nw.col("x") > 1), r"did you mean 'filter'"),
    (lambda: KEYED.windwo("1 s"), r"did you mean 'window'"),
    (lambda: KEYED.aggregate(n=tg.count()), r"\.window\(.*\)\.aggregate\("),
    (lambda: KEYED.count(), r"aggregate\(n=tg\.count\(\)\)"),
    (lambda: KEYED.filter(nw.col("x") > 1), r"before key_by"),
    (lambda: WINDOWED.count(), r"aggregate\(n=tg\.count\(\)\)"),
    (lambda: WINDOWED.sum("x"), r"aggregate\(.*tg\.sum\("),
    (lambda: WINDOWED.filter(nw.col("n") > 1), r"before key_by.*or.*after.*aggregate"),
    (lambda: tg.gather(KEYED).aggregate(n=tg.count()), r"apply"),
    (lambda: tg.gather(KEYED).window("1 s").aggregate(n=tg.count()), r"apply"),
]


@pytest.mark.parametrize(("call", "message"), STEPS)
def test_a_step_of_another_library_is_answered_with_ours(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        call()
    with pytest.raises(AttributeError):
        call()


def test_asking_whether_a_step_exists_still_works() -> None:
    assert not hasattr(CALLS, "groupBy")
    assert not hasattr(CALLS, "__arrow_c_stream__")
    assert hasattr(CALLS, "filter")


ARGUMENTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: CALLS.join(CALLS, on="k", within="1 s", how="outer"), r"how='outer'.*'left', 'right', 'full'"),  # type: ignore[arg-type]
    (lambda: CALLS.join(CALLS, left_on="k", right_on="x", within="1 s"), r"left_on.*on=\[\('a', 'b'\)\]"),
    (lambda: CALLS.join(CALLS, onn="k", within="1 s"), r"there is no 'onn'; did you mean 'on'\?"),
    (lambda: KEYED.window("1 s", slide="1 s"), r"slide.*every="),
    (lambda: KEYED.window("1 s", "1 s"), r"every="),
    (lambda: KEYED.window(), r"window.*'size'"),
    (lambda: KEYED.session("1 minute", lateness="1 s"), r"emitted once.*disorder="),
    (lambda: KEYED.session(timeout="1 minute"), r"gap="),
    (lambda: WINDOWED.aggregate(tg.count()), r"name each aggregate, as in n=tg\.count\(\)"),
    (lambda: tg.stream(TABLE), r"stream.*time='ts'"),
    (lambda: tg.stream(TABLE, timestamp="ts"), r"timestamp.*time="),
    (lambda: tg.stream(TABLE, time="ts", watermark="1 s"), r"watermark.*disorder="),
    (lambda: CALLS.explain(on="local"), r"'on'.*runtime="),
    (lambda: CALLS.explain(5), r"runtime is 'spark'.*5"),  # type: ignore[arg-type]
    (lambda: CALLS.explain("local", 4), r"explain.*too many positional.*runtime"),  # type: ignore[call-arg]
    (lambda: CALLS.explain(instances="four"), r"explain: instances is a number; got 'four'"),
    (lambda: CALLS.explain(cores=4), r"explain: there is no 'cores'.*instances"),
    (lambda: tg.sum(), r"sum: missing a required argument: 'column'; it takes column"),  # type: ignore[call-arg]
    (lambda: tg.top_k("x"), r"top_k: missing a required argument: 'k'; it takes by, k, take"),  # type: ignore[call-arg]
    (lambda: tg.sum(col="x"), r"sum: there is no 'col'; did you mean 'column'\?"),  # type: ignore[call-arg]
    (lambda: tg.count("x"), r"count: too many positional arguments; it takes nothing"),  # type: ignore[call-arg]
    (lambda: tg.each(), r"each: missing a required argument: 'column'; it takes column, name"),  # type: ignore[call-arg]
    (lambda: tg.keys(len), r"keys: missing a required argument: 'columns'"),  # type: ignore[call-arg]
    (lambda: tg.paced([], 100), r"paced: too many positional arguments; it takes items, rate, every"),  # type: ignore[call-arg]
    (lambda: tg.monoid("x"), r"monoid: .*lift=.*merge="),  # type: ignore[call-arg]
    (lambda: tg.run(CALLS, output="x"), r"'output'.*to="),
    (lambda: tg.start(CALLS, threads=2), r"'threads'.*instances="),
    (lambda: CALLS.filter("x > 1"), r"Narwhals expression"),
    (lambda: CALLS.union(TABLE), r"union takes other streams.*Table"),
    (lambda: CALLS.union([CALLS]), r"union takes other streams.*list"),
    (lambda: tg.start(KEYED), r"start takes a query.*Keyed"),
    (lambda: tg.start(None), r"start takes a query.*NoneType"),  # type: ignore[arg-type]
    (lambda: answer(KEYED), r"answer takes a query.*Keyed"),
    (lambda: tg.start(CALLS, instances="2"), r"instances.*'2'"),  # type: ignore[arg-type]
    (lambda: tg.start(CALLS, instances=1.5), r"instances.*1\.5"),  # type: ignore[arg-type]
    (lambda: tg.start(CALLS, instances=(1, 2, 3)), r"instances.*\(1, 2, 3\)"),  # type: ignore[arg-type]
    (lambda: tg.run(CALLS, on="local", instances="2"), r"instances.*'2'"),  # type: ignore[arg-type]
    (lambda: tg.run(CALLS, on="local", show="all"), r"show.*'all'"),  # type: ignore[arg-type]
    (lambda: tg.run(CALLS, on="local", progress=5), r"progress.*5"),  # type: ignore[arg-type]
    (lambda: tg.paced([], rate="fast"), r"rate.*'fast'"),  # type: ignore[arg-type]
    (lambda: tg.marked(5), r"marked.*iterable.*5"),  # type: ignore[arg-type]
    (lambda: list(tg.start(tg.stream(tg.paced([{"ts": 1}]), **ITEMS))), r"pairs of seconds and a batch.*rate="),
    (lambda: tg.stream(TABLE, time="ts", dead_letters=5), r"dead_letters.*5"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), ARGUMENTS)
def test_an_argument_that_is_not_ours_is_answered_with_what_is(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UserError, match=re.compile(message, re.DOTALL)):
        call()


TYPES: list[tuple[Callable[[], Any], str]] = [
    (lambda: tg.stream([], time="ts", schema={"ts": TIME, "k": str}), r"'k'.*str.*pa\.string\(\)"),
    (lambda: tg.stream({"ts": datetime, "k": int}, time="ts"), r"'ts'.*datetime.*pa\.timestamp\('us'\)"),
    (lambda: tg.stream([], time="ts", schema=["ts", "k"]), r"schema.*names and types.*list"),
    (lambda: tg.stream([], time="ts", schema=5), r"schema.*names and types.*int"),
    (lambda: tg.stream({"ts": [1, 2], "k": [1, 2]}, time="ts"), r"'ts' is list.*pa\.table\("),
    (lambda: CALLS.map_batches(lambda batch: batch, schema={"ts": TIME, "k": float}), r"'k'.*pa\.float64\(\)"),
    (
        lambda: WINDOWED.apply(update=lambda window, row: None, state={"n": int}, returns={"n": pa.int64()}),
        r"'n'.*pa\.int64\(\)",
    ),
    (lambda: WINDOWED.apply(output=lambda window: None, returns={"n": bool}), r"'n'.*pa\.bool_\(\)"),
    (lambda: CALLS.key_by(tg.keys(lambda batch: batch, columns={"a": bytes})), r"'a'.*pa\.binary\(\)"),
    (
        lambda: tg.monoid("x", state={"a": int}, lift=print, merge=print, finish=print, returns=pa.int64()),
        r"'a'.*pa\.int64\(\)",
    ),
    (
        lambda: tg.monoid("x", state={"a": pa.int64()}, lift=print, merge=print, finish=print, returns=int),
        r"returns.*pa\.int64\(\)",
    ),
]


@pytest.mark.parametrize(("call", "message"), TYPES)
def test_a_type_of_python_is_answered_with_one_of_arrow(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        call()


NANO = pa.table({"ts": pa.array([1_000, 2_001], pa.timestamp("ns")), "k": ["a", "b"]})


def counted(origin: Any, **options: Any) -> tg.Stream:
    return tg.stream(origin, time="ts", name="calls", **options).key_by("k").window("1 second").aggregate(n=tg.count())


def test_nanoseconds_that_would_be_lost_are_told(tmp_path: Path) -> None:
    pq.write_table(NANO, tmp_path / "in.parquet")
    message = r"'ts'.*nanoseconds.*whole microseconds.*floor_temporal"
    for query in (counted(NANO), counted(NANO.to_batches(), schema=NANO.schema), counted(str(tmp_path / "in.parquet"))):
        with pytest.raises(DataError, match=message):
            list(tg.start(query))
    for query in (counted(NANO), counted(str(tmp_path / "in.parquet"))):
        with pytest.raises(DataError, match=message):
            answer(query)
    assert answer(counted(NANO.slice(0, 1))).rows.num_rows == 1, "those that are whole microseconds are taken"


def test_a_column_that_does_not_fit_is_named() -> None:
    wrong = pa.table({"ts": pa.array([1], TIME), "k": ["a"], "x": ["seven"]})
    for given in (wrong, wrong.drop_columns(["x"])):
        with pytest.raises(DataError, match=r"calls.*'x'"):
            answer(COUNTS.join(CALLS, within="1 s"), {"calls": given})
        items = tg.stream([given], time="ts", schema=TABLE.schema, name="calls")
        with pytest.raises(DataError, match=r"calls.*'x'|calls.*\"x\""):
            list(tg.start(items))


def not_utf8() -> pa.Table:
    texts = pa.array([b"fine", b"\xff\xfe"], pa.binary())
    column = pa.StringArray.from_buffers(2, texts.buffers()[1], texts.buffers()[2])
    return pa.table({"ts": pa.array([1, 2], TIME), "k": column})


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_text_that_is_no_utf8_is_told_on_the_way_to_json_lines(
    runtime: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = tg.stream(not_utf8(), time="ts")
    with pytest.raises(DataError, match=r"column 'k'.*not UTF-8.*format='parquet'|column 'k'.*not UTF-8.*binary"):
        tg.run(query, on=runtime, to=tmp_path / "out.jsonl", progress=False)
    assert not list((tmp_path / "out.jsonl").glob("part*"))
    if runtime == "local":
        tg.run(query, on=runtime, progress=False)
        assert r"\xff\xfe" in capsys.readouterr().out
        tg.run(query, on=runtime, to=tmp_path / "whole", progress=False)


def test_rows_are_compared_with_dicts() -> None:
    rows = COUNTS.select("ts", "k", "n")
    found = answer(rows).rows
    expected = found.to_pylist()
    assert difference(found, expected) is None
    assert difference(list(reversed(expected)), found) is None
    assert same_bag(found, expected)
    assert "only right" in str(difference(found, [*expected, expected[0]]))
    assert "columns differ" in str(difference(found, [{"k": "a"}]))
    assert difference(found.slice(0, 0), []) is None
    with pytest.raises(QueryError, match=r"difference.*Answer.*answer\(\.\.\.\)\.rows"):
        difference(answer(rows), found)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"difference.*tables or lists of dicts.*NoneType"):
        difference(found, None)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"difference.*'n'"):
        difference(found, [{**expected[0], "n": "many"}])


def test_a_table_for_a_stream_that_is_not_there_is_refused() -> None:
    with pytest.raises(QueryError, match=r"no stream 'call'; there is 'calls'"):
        answer(COUNTS, {"call": TABLE})
    with pytest.raises(QueryError, match=r"stream 'calls' holds no table"):
        answer(COUNTS, {"calls": TABLE.to_pylist()})  # type: ignore[dict-item]


def test_numbers_of_numpy_are_named_as_they_are() -> None:
    with pytest.raises(QueryError, match="write '7 seconds'"):
        KEYED.window(np.int64(7))
