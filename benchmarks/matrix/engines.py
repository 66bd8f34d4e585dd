"""A cell of the matrix in each engine: a table of keys, window_start and value, as it is computed from a table in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import duckdb
import polars as pl
import pyarrow as pa

import tidegate as tg
from benchmarks.matrix.cells import AGGREGATES, KEYS, WINDOWS, MatrixCell, WindowForm

Engine = Callable[[MatrixCell, pa.Table], pa.Table]
OURS, PEERS = "tidegate-local", ("duckdb", "polars")


def query_of(cell: MatrixCell, stream: tg.Stream) -> tg.Stream:
    """The query of a cell."""
    keyed = (
        stream.key_by(tg.each("words", name="word")) if cell.keys == "many keys" else stream.key_by(*KEYS[cell.keys])
    )
    form = WINDOWS[cell.window]
    value = AGGREGATES[cell.aggregate].ours
    if form.is_session:
        return keyed.session(f"{form.size} us").aggregate(value=value)
    return keyed.window(f"{form.size} us", every=f"{form.every} us").aggregate(value=value)


def in_process(cell: MatrixCell, table: pa.Table) -> pa.Table:
    """With two instances, as a stream."""
    query = query_of(cell, tg.stream(table, time="ts"))
    parts = list(tg.start(query, instances=2))
    joined = pa.concat_tables(parts) if parts else query.schema.empty_table()
    return joined.select(list(cell.columns))


def in_duckdb(cell: MatrixCell, table: pa.Table) -> pa.Table:
    """As one batch, on all cores."""
    keys, form, value = ", ".join(KEYS[cell.keys]), WINDOWS[cell.window], AGGREGATES[cell.aggregate].sql
    rows = "tuples"
    if cell.keys == "many keys":
        rows = "(select * exclude words, unnest(list_distinct(words)) as word from tuples)"
    connection = duckdb.connect()
    connection.register("tuples", table)
    sql = _session_sql if form.is_session else _window_sql
    return connection.sql(sql(rows, keys, form, value)).to_arrow_table()


def _window_sql(rows: str, keys: str, form: WindowForm, value: str) -> str:
    last = f"epoch_us(ts) // {form.every}"
    if form.size == form.every:
        return f"""
            select {keys}, make_timestamp({last} * {form.every}) as window_start, {value} as value
            from {rows} group by {keys}, window_start
        """
    # Windows begin before the tuple, at most a size before it.
    return f"""
        select {keys}, make_timestamp((last - back) * {form.every}) as window_start, {value} as value
        from (select *, {last} as last, unnest(range({form.size // form.every})) as back from {rows})
        group by {keys}, window_start
    """


def _session_sql(rows: str, keys: str, form: WindowForm, value: str) -> str:
    return f"""
        with gaps as (
            select *, epoch_us(ts) - lag(epoch_us(ts)) over (partition by {keys} order by ts) as gap from {rows}
        ), numbered as (
            select *, count(*) filter (gap is null or gap >= {form.size}) over (partition by {keys} order by ts) as number
            from gaps
        )
        select {keys}, min(ts) as window_start, {value} as value from numbered group by {keys}, number
    """


def in_polars(cell: MatrixCell, table: pa.Table) -> pa.Table:
    """As one batch, lazily, on all cores."""
    keys, form = KEYS[cell.keys], WINDOWS[cell.window]
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    rows = frame.lazy()
    if cell.keys == "many keys":
        rows = rows.with_columns(word=pl.col("words").list.unique()).drop("words").explode("word")
    value = AGGREGATES[cell.aggregate].polars.alias("value")
    if form.is_session:
        rows = rows.sort("ts").with_columns(gap=pl.col("ts").dt.epoch("us").diff().over(keys))
        new = pl.col("gap").is_null() | (pl.col("gap") >= form.size)
        rows = rows.with_columns(number=new.cum_sum().over(keys))
        found = rows.group_by([*keys, "number"]).agg(pl.col("ts").min().alias("window_start"), value).drop("number")
    else:
        last = pl.col("ts").dt.epoch("us").floordiv(form.every)
        starts = [(last - back) * form.every for back in range(form.size // form.every)]
        rows = rows.with_columns(window_start=pl.concat_list(starts) if len(starts) > 1 else starts[0])
        rows = rows.explode("window_start") if len(starts) > 1 else rows
        found = rows.group_by([*keys, "window_start"]).agg(value)
        found = found.with_columns(pl.col("window_start").cast(pl.Datetime("us")))
    return found.select(*keys, "window_start", "value").collect().to_arrow()


ENGINES: Mapping[str, Engine] = MappingProxyType({OURS: in_process, "duckdb": in_duckdb, "polars": in_polars})


def canonical(table: pa.Table) -> pl.DataFrame:
    """Results that compare equal if their rows are, in any order."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    casts = [pl.col(name).cast(pl.Int64) for name, kind in frame.schema.items() if kind.is_integer()]
    casts += [pl.col(name).cast(pl.Datetime("us")) for name, kind in frame.schema.items() if kind.is_temporal()]
    return frame.with_columns(casts).sort([name for name in frame.columns if name != "value"])
