"""Cells of whole queries: every kind of join, lookups, windows in number of tuples, dedup, top_n; beside SQL and Polars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import tidegate as tg
from benchmarks.matrix.cells import SECOND, SPAN_SECONDS

Inputs = Mapping[str, pa.Table]
OursForm = Callable[[tg.Stream, tg.Stream, pa.Table], tg.Stream]
PolarsForm = Callable[[pl.LazyFrame, pl.LazyFrame, pl.LazyFrame], pl.LazyFrame]
KEY_OF = MappingProxyType({"int keys": "k", "string keys": "name"})
TUPLES_PER_KEY = 10
"""So few that pairs are about as many as tuples; as-of joins have one cell with a key for each tuple."""


@dataclass(frozen=True, slots=True)
class QueryCell:
    """A query of the streams ``l`` and ``r``, or of ``l`` and the table ``t``, in the words of each engine that has some.

    Results are compared in ``columns``. ``native`` is the SQL of Spark, which cannot stream what has none.
    """

    name: str
    columns: tuple[str, ...]
    ours: OursForm
    sql: str
    polars: PolarsForm | None = None
    keys_for_each: int = TUPLES_PER_KEY
    native: str | None = None

    def tuples(self, most: int) -> int:
        """How many tuples each stream has."""
        return most // 4

    def engines(self, inputs: Inputs) -> dict[str, Callable[[], pa.Table]]:
        """Each engine with all of its input."""
        found = {"tidegate-local": partial(self._in_process, inputs), "duckdb": partial(self._in_duckdb, inputs)}
        return found if self.polars is None else {**found, "polars": partial(self._in_polars, inputs, self.polars)}

    def _in_process(self, inputs: Inputs) -> pa.Table:
        left, right = (tg.stream(inputs[name], time="ts", name=name) for name in ("l", "r"))
        query = self.ours(left, right, inputs["t"])
        parts = list(tg.start(query, instances=2))
        return pa.concat_tables([query.schema.empty_table(), *parts]).select(list(self.columns))

    def _in_duckdb(self, inputs: Inputs) -> pa.Table:
        connection = duckdb.connect()
        for name, table in inputs.items():
            connection.register(name, table)
        return connection.sql(self.sql).to_arrow_table().select(list(self.columns))

    def _in_polars(self, inputs: Inputs, form: PolarsForm) -> pa.Table:
        frames = []
        for name in ("l", "r", "t"):
            frame = pl.from_arrow(inputs[name])
            assert isinstance(frame, pl.DataFrame)
            frames.append(frame.lazy())
        return form(*frames).select(*self.columns).collect().to_arrow()


def query_inputs(tuples: int, keys_for_each: int, seed: int) -> Inputs:
    """Two streams in the order of time, no two tuples of one at the same, and a table of their keys."""
    draw = np.random.default_rng(seed)
    keys = max(1, tuples // keys_for_each)
    names = np.array([f"customer-{number}" for number in range(keys)])

    def stream() -> pa.Table:
        times, chosen = (
            np.sort(draw.choice(SPAN_SECONDS * SECOND, tuples, replace=False)),
            draw.integers(0, keys, tuples),
        )
        return pa.table(
            {
                "ts": pa.array(times).cast(pa.timestamp("us")),
                "k": pa.array(chosen),
                "name": pa.array(names[chosen]),
                "x": pa.array(draw.integers(0, 1_000, tuples)),
                "f": pa.array(draw.permutation(tuples) / 8),
                "id": pa.array(np.arange(tuples)),
            }
        )

    table = pa.table({"k": pa.array(np.arange(keys)), "name": pa.array(names), "weight": pa.array(np.arange(keys) * 3)})
    return {"l": stream(), "r": stream(), "t": table}


def _near(seconds: int) -> str:
    return f"r.ts between l.ts - interval {seconds} seconds and l.ts + interval {seconds} seconds"


def _joins(title: str, key: str) -> list[QueryCell]:
    pair, pairs = ("id", "id_right"), "select l.id, r.id as id_right from l"
    same = f"l.{key} = r.{key}"

    def joined(how: str, left: tg.Stream, right: tg.Stream, _: pa.Table) -> tg.Stream:
        return left.join(right, on=key, within="60 seconds", how=how)

    def near_in_x(left: tg.Stream, right: tg.Stream, _: pa.Table) -> tg.Stream:
        return left.join(right, on=key, within="300 seconds", where=lambda l, r: abs(l.x - r.x) <= 50)

    cells = [
        QueryCell(f"{how} join · {title}", pair, partial(joined, how), pairs_near, native=pairs_near)
        for how in ("inner", "left", "right", "full")
        for pairs_near in (f"{pairs} {how} join r on {same} and {_near(60)}",)
    ]
    cells += [
        QueryCell(
            f"{how} join · {title}",
            ("id",),
            partial(joined, how),
            f"select l.id from l where {'' if how == 'semi' else 'not'} exists (from r where {same} and {_near(60)})",
            native=f"select l.id from l left semi join r on {same} and {_near(60)}" if how == "semi" else None,
        )
        for how in ("semi", "anti")
    ]
    window = f"epoch_us(l.ts) // {60 * SECOND} = epoch_us(r.ts) // {60 * SECOND}"
    native_window = f"unix_micros(l.ts) div {60 * SECOND} = unix_micros(r.ts) div {60 * SECOND}"
    near_and_alike = f"{pairs} join r on {same} and {_near(300)} and abs(l.x - r.x) <= 50"
    looked_up = f"select l.id, t.weight from l join t on l.{key} = t.{key}"
    cells += [
        QueryCell(
            f"inner join with predicate · {title}",
            pair,
            near_in_x,
            near_and_alike,
            native=near_and_alike,
        ),
        QueryCell(
            f"window join · {title}",
            pair,
            lambda left, right, _: left.join(right, on=key, window="60 seconds"),
            f"{pairs} join r on {same} and {window}",
            lambda left, right, _: _by_minute(left).join(_by_minute(right), on=[key, "minute"]),
            native=f"{pairs} join r on {same} and {native_window} and {_near(60)}",
        ),
        *(
            QueryCell(
                f"as-of join · {title}{note}",
                pair,
                lambda left, right, _: left.join_asof(right, on=key),
                f"{pairs} asof join r on {same} and l.ts >= r.ts",
                lambda left, right, _: left.join_asof(right, on="ts", by=key, check_sortedness=False).drop_nulls(
                    "id_right"
                ),
                keys_for_each,
            )
            for note, keys_for_each in (("", TUPLES_PER_KEY), (" for each tuple", 1))
        ),
        QueryCell(
            f"lookup in a table · {title}",
            ("id", "weight"),
            lambda left, _, table: left.lookup(table.select([key, "weight"]), on=key),
            looked_up,
            lambda left, _, table: left.join(table, on=key),
            native=looked_up,
        ),
        QueryCell(
            f"lookup in changes · {title}",
            pair,
            lambda left, right, _: left.lookup(right, on=key),
            f"{pairs} asof join r on {same} and l.ts >= r.ts",
            lambda left, right, _: left.join_asof(right, on="ts", by=key, check_sortedness=False).drop_nulls(
                "id_right"
            ),
        ),
    ]
    return cells


def _in_order(title: str, key: str) -> list[QueryCell]:
    """What is decided tuple by tuple, in the order of time."""

    def top(rows: pl.LazyFrame) -> pl.LazyFrame:
        place = pl.col("f").rank("ordinal", descending=True).over(key, "minute").alias("rank").cast(pl.Int64)
        return _by_minute(rows).with_columns(place).filter(pl.col("rank") <= 3)

    last_five = f"over (partition by {key} order by ts rows 4 preceding)"
    return [
        QueryCell(
            f"count_window, every tuple · {title}",
            (key, "window_end", "value"),
            lambda left, _right, _table: left.key_by(key).count_window(5, every=1).aggregate(value=tg.sum("x")),
            f"select {key}, ts as window_end, sum(x) {last_five} as value from l qualify count(*) {last_five} = 5",
            lambda left, _right, _table: left.with_columns(
                window_end="ts", value=pl.col("x").rolling_sum(5).over(key, order_by="ts")
            ).drop_nulls("value"),
        ),
        QueryCell(
            f"count_window, every five · {title}",
            (key, "window_end", "value"),
            lambda left, _right, _table: left.key_by(key).count_window(5).aggregate(value=tg.sum("x")),
            f"""select {key}, max(ts) as window_end, sum(x) as value
                from (select *, (row_number() over (partition by {key} order by ts) - 1) // 5 as number from l)
                group by {key}, number having count(*) = 5""",
        ),
        QueryCell(
            f"dedup · {title}",
            ("id",),
            lambda left, _right, _table: left.dedup(key, within="2 hours"),
            f"select arg_min(id, ts) as id from l group by {key}",
            lambda left, _right, _table: left.unique(key, keep="first", maintain_order=True),
        ),
        QueryCell(
            f"top_n · {title}",
            ("id", "rank"),
            lambda left, _right, _table: left.key_by(key).window("60 seconds").top_n(3, by="f"),
            f"""select id, row_number() over (partition by {key}, epoch_us(ts) // {60 * SECOND} order by f desc) as rank
                from l qualify rank <= 3""",
            lambda left, _right, _table: top(left),
            native=f"""select best.id, place + 1 as rank from (
                    select {key}, slice(sort_array(collect_list((f, id)), false), 1, 3) as bests
                    from l group by {key}, window(ts, '60 seconds')
                ) lateral view posexplode(bests) as place, best""",
        ),
    ]


def _by_minute(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.with_columns(minute=pl.col("ts").dt.epoch("us") // (60 * SECOND))


BAND = QueryCell(
    "band join · no key",
    ("id", "id_right"),
    lambda left, right, _: left.join(right, within="1 second", where=lambda l, r: abs(l.x - r.x) <= 10),
    f"select l.id, r.id as id_right from l join r on {_near(1)} and abs(l.x - r.x) <= 10",
)
QUERY_CELLS = (
    *(cell for title, key in KEY_OF.items() for cell in _joins(title, key)),
    BAND,
    *(cell for title, key in KEY_OF.items() for cell in _in_order(title, key)),
)
