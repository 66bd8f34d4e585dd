"""Steps over a DataFrame give the law's values, whether Spark runs them or Arrow: values that engines differ on."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import tidegate as tg
from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Place
from tidegate.compile.same_in_spark import FUNCTIONS, is_same_in_spark
from tidegate.query.expressions import all_calls
from tidegate.runtime.spark.types import spark_schema
from tidegate.testing import answer, difference

MOMENT = pa.timestamp("us", tz="UTC")
INTS = [None, -(2**63), -7, -1, 0, 1, 3, 2**53 + 1, 2**63 - 1]
FLOATS = [None, math.nan, -math.inf, -1.5, -0.0, 0.0, 2.5, 1e308, math.inf]
TEXTS = [None, "", "a", "Ab", " a.b\t", "ß", "İi", "😀x", "e\u0301", "%a"]
BOOLS = [None, True, False]
TIMES = [
    None,
    datetime(1500, 3, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
]
DATES = [None, date(1500, 3, 1), date(1969, 12, 31), date(9999, 12, 31)]
ROWS = 100


def every(values: list[Any], kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Two columns in which every value meets every other."""
    count = len(values)
    first, second = ([values[row // by % count] for row in range(ROWS)] for by in (1, count))
    return pa.array(first, kind), pa.array(second, kind)


def tuples() -> pa.Table:
    columns: dict[str, pa.Array] = {"ts": pa.array(range(ROWS), pa.int64()).cast(MOMENT)}
    columns["n"], columns["m"] = every(INTS, pa.int64())
    columns["x"], columns["y"] = every(FLOATS, pa.float64())
    columns["s"], columns["t"] = every(TEXTS, pa.string())
    columns["p"], columns["q"] = every(BOOLS, pa.bool_())
    columns["at"], columns["to"] = every(TIMES, MOMENT)
    columns["d"], columns["e"] = every(DATES, pa.date32())
    columns["small"] = pa.array([None, -(2**31), -1, 0, 2**31 - 1] * (ROWS // 5), pa.int32())
    return pa.table(columns)


n, m, small, x, y, s, t, p, q, at, to, d, e = map(nw.col, ("n", "m", "small", *"xystpq", "at", "to", "d", "e"))


def compared(left: nw.Expr, right: Any) -> list[nw.Expr]:
    return [left == right, left != right, left < right, left <= right, left > right, left >= right]


SAME = [
    *compared(n, m), *compared(n, 3), *compared(small, n), *compared(s, t), *compared(s, "a"), *compared(p, q),
    *compared(at, to), *compared(d, e), p & q, p | q, ~p, nw.lit(True) & p, nw.lit(True) | p, n.is_null(),
    s.is_null(), at.is_null(), nw.coalesce("n", "m"), nw.coalesce(s, t), nw.coalesce(small, n), n.fill_null(0),
    s.fill_null(""), p.fill_null(False), nw.when(p).then(n).otherwise(m), nw.when(n > m).then(s),
    nw.when(p, q).then(at).otherwise(to), n.is_in([0, 3]), ~n.is_in([0, 3]), s.is_in(["", "😀x"]), ~s.is_in(["a"]),
    n.is_between(m, 3), s.is_between(nw.lit("a"), t, closed="left"), nw.all_horizontal("p", q, ignore_nulls=False),
    nw.all_horizontal(p, q, ignore_nulls=True), nw.any_horizontal(p, q, ignore_nulls=False),
    nw.any_horizontal(p, q, ignore_nulls=True), s.str.starts_with("a"), s.str.starts_with(""), s.str.starts_with("😀"),
    s.str.ends_with("b"), s.str.ends_with("\u0301"), s.str.len_chars(), nw.lit(7), nw.lit("é"), x, y,
]  # fmt: skip
"""What Spark runs."""
near = n.is_between(-9, 9) & m.is_between(-9, 9)
BEYOND = [n + m, n - m, n * 3, n.abs()]
"""What leaves the whole numbers for some of the tuples, which is an error of the query."""
OTHER = [
    *compared(x, y), *compared(x, 2.5), ~x.is_in([2.5]), x.is_between(0.0, 2.5), nw.max_horizontal(x, y),
    nw.min_horizontal("x", "y"), x.is_nan(), x.is_finite(), x.fill_nan(0.0), x.fill_null(1.5),
    nw.when(x > 0).then(x).otherwise(y), x.clip(0.0, 2.0), nw.coalesce(x, y), x + y, x - y, x * y, x / y, 1 / x,
    x % 2.5, x.abs(), x.ceil(), x.floor(), x.sqrt(), x.exp(), x.log(), x.sin(), x.cast(nw.String), x.cast(nw.Float32),
    nw.when(near).then(n + m).otherwise(n), nw.when(near).then(n - m), nw.when(near).then(n * 3), n / m, n // 3, n % 3,
    nw.when(near).then(n.abs()), n.cast(nw.String), nw.when(small < 3).then(small + 1), small.cast(nw.Float64),
    s.str.to_uppercase(), s.str.to_lowercase(), s.str.contains("a.b"), s.str.contains(".", literal=True),
    s.str.split("."), s.str.replace("a", "*", literal=True), s.str.replace_all(r"\w", "*"), s.str.strip_chars(),
    s.str.slice(1, 1), s.str.head(1), s.str.tail(1), nw.concat_str(s, t, separator="-"), at.dt.microsecond(),
    at.dt.millisecond(), at.dt.year(), at.dt.weekday(), at.dt.timestamp("us"), at.dt.truncate("1h"),
    at > datetime(1970, 1, 1, tzinfo=UTC), at.cast(nw.String), at.dt.date(),
]  # fmt: skip
"""What Arrow runs, as in process."""


def named(stream: tg.Stream, exprs: list[nw.Expr]) -> tg.Stream:
    return stream.select("ts", **{f"c{number}": expr for number, expr in enumerate(exprs)}, name="values")


@pytest.fixture
def frame(spark: Any, tmp_path: Path) -> Any:
    (tmp_path / "in").mkdir()
    pq.write_table(tuples(), tmp_path / "in" / "all.parquet")
    return spark.readStream.schema(spark_schema(tuples().schema)).parquet(str(tmp_path / "in"))


def given(query: tg.Stream, folder: Path) -> pa.Table:
    """What Spark gives for a query without state."""
    found: list[pa.Table] = []
    writer = query.to_spark().writeStream.foreachBatch(
        lambda batch, _: found.append(batch.toArrow().cast(query.schema))
    )
    writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start().awaitTermination()
    return pa.concat_tables(found)


def check(frame: Any, folder: Path, exprs: list[nw.Expr], place: Place) -> None:
    query, law = (named(tg.stream(source, time="ts"), exprs) for source in (frame, tuples()))
    (feed,) = compile_query(query.node).subqueries[0].feeds
    assert feed.steps[0].place is place
    assert difference(given(query, folder), answer(law).rows) is None


def test_what_spark_computes_is_the_laws(frame: Any, tmp_path: Path) -> None:
    check(frame, tmp_path / "checkpoint", SAME, Place.NATIVE)


def test_what_spark_would_compute_otherwise_is_the_laws(frame: Any, tmp_path: Path) -> None:
    assert not [expr for expr in OTHER if is_same_in_spark(expr, tuples().schema)]
    check(frame, tmp_path / "checkpoint", OTHER, Place.KERNEL)


def test_what_leaves_the_whole_numbers_stops_the_query_and_is_named(frame: Any, tmp_path: Path) -> None:
    """Spark itself might wrap: `spark.sql.ansi.enabled` says whether it does."""
    for number, expr in enumerate(BEYOND):
        query = named(tg.stream(frame, time="ts"), [expr])
        with pytest.raises(StreamingQueryException, match=r"step 'values': .* is beyond the whole numbers of its type"):
            given(query, tmp_path / str(number))


def test_every_function_that_is_said_to_be_the_same_is_tried() -> None:
    tried = {call.name for expr in SAME for call in all_calls(expr) if call is not None}
    assert FUNCTIONS - {"alias"} <= tried | {"__rand__", "__ror__"}


def test_a_filter_takes_the_laws_tuples(frame: Any, tmp_path: Path) -> None:
    """NaN is above 2.5 to Spark, and is not here."""

    def query(source: Any) -> tg.Stream:
        stream = tg.stream(source, time="ts").filter(n.is_null(), name="native").filter(x > 2.5)
        return stream.select("ts", "x")

    made = given(query(frame), tmp_path / "checkpoint")
    assert difference(made, answer(query(tuples())).rows) is None
    assert not any(math.isnan(value) for value in made.column("x").to_pylist())
