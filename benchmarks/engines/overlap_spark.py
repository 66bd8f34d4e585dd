"""The queries of the Semantic Overlap paper on Spark: native, as SQL or with pandas functions, and by tidegate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.engines.overlap import columns_of
from benchmarks.engines.spark_native import NATIVE, WATERMARK_DELAY, rows_counted
from benchmarks.engines.spark_streaming import checkpoint_of, read_rows, session, sink_of, timed, to_parquet
from benchmarks.engines.tidegate_spark import ON_SPARK, SETTINGS, rows_reported
from benchmarks.overlap.functions import LONG_WORD, texts_match
from benchmarks.overlap.on_tidegate import query_over
from benchmarks.overlap.queries import QUERIES, JoinQuery, MapQuery


class OverlapOnSpark:
    """An engine on a Spark session that lives as long as it does; a file is a micro-batch."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._spark = session(NATIVE.get(engine, SETTINGS))
        self._sink, self._columns = Path(), ()

    def run(self, query: str, form: str, files: Sequence[str], scratch: str) -> dict[str, Any]:
        """The folder of the files holds one without rows too, which starts the query."""
        asked, place, folder = QUERIES[query], Path(scratch), Path(files[0]).parent
        self._sink, self._columns = sink_of(place), columns_of(asked)
        if self._engine in NATIVE:
            results, rows_of = self._native(asked, form, folder), rows_counted
        else:
            whole = partial(query_over, query=asked)
            results, rows_of = (
                ON_SPARK[self._engine].results(self._spark, whole, (folder,), checkpoint_of(place)),
                rows_reported,
            )
        writer = to_parquet(results.select(*self._columns), place).trigger(availableNow=True)
        timing = timed(writer, len(files), rows_of)
        return {"seconds": timing.seconds, "start_s": timing.start_seconds}

    def collect(self, target: str) -> None:
        found = self._spark.read.parquet(str(self._sink))
        named = [F.unix_micros(name).alias(name) if name.startswith("ts") else F.col(name) for name in self._columns]
        found.select(*named).write.parquet(target)

    def close(self) -> None:
        self._spark.stop()

    def _native(self, query: MapQuery | JoinQuery, form: str, folder: Path) -> DataFrame:
        if isinstance(query, JoinQuery):
            left, right = (_side(read_rows(self._spark, folder), query, side) for side in ("left", "right"))
            return (_join_sql if form == "sql" else _join_pandas)(left, right, query)
        tuples = read_rows(self._spark, folder)
        return (_map_sql if form == "sql" else _map_pandas)(tuples, query)


def _map_pandas(tuples: DataFrame, query: MapQuery) -> DataFrame:
    """The function itself, on every row of a frame."""
    function, columns, gives = query.function, list(query.columns), list(query.gives)

    def apply(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            rows = [
                (time, *row)
                for time, *values in zip(frame["ts"], *(frame[name] for name in columns), strict=True)
                for row in function(*values)
            ]
            yield pd.DataFrame(rows, columns=["ts", *gives])

    schema = ", ".join(["ts timestamp", *(f"{name} string" for name in gives)])
    return tuples.select("ts", *columns).mapInPandas(apply, schema)


def _map_sql(tuples: DataFrame, query: MapQuery) -> DataFrame:
    """The same by built-in expressions."""
    most = 3 if query.name[0] == "H" else 1
    tops = [_top(F.split(name, " "), most) for name in query.columns]
    if most == 3:
        if len(tops) == 1:
            return tuples.select("ts", F.explode(tops[0]).alias("word"))
        zipped = F.explode(F.arrays_zip(*(top.alias(name) for top, name in zip(tops, query.gives, strict=True))))
        triples = tuples.select("ts", zipped.alias("t")).select("ts", *(f"t.{name}" for name in query.gives))
        return triples.dropna()
    words = tuples.select("ts", *(top[0].alias(name) for top, name in zip(tops, query.gives, strict=True)))
    if query.name[0] == "L":
        for name in query.gives:
            words = words.where(F.length(name) > LONG_WORD)
    return words


def _top(words: Column, most: int) -> Column:
    """The most frequent words of a list; of equally frequent ones those that come first."""
    distinct = F.array_distinct(words)

    def ranked(word: Column, at: Column) -> Column:
        count = F.size(F.filter(words, lambda other: other == word))
        return F.struct((-count).alias("count"), at.alias("at"), word.alias("word"))

    ranking = F.transform(distinct, ranked)
    if most == 1:
        return F.array(F.array_min(ranking)["word"])
    return F.transform(F.slice(F.array_sort(ranking), 1, most), lambda each: each["word"])


def _side(tuples: DataFrame, query: JoinQuery, side: str) -> DataFrame:
    """Its window is a number: Spark takes no window of a stream that has another event time, the tuple's own."""
    return tuples.select(
        F.col("ts").alias(f"ts_{side}"),
        F.col("orig").alias(f"orig_{side}"),
        F.size(F.split("change", " ")).alias(f"words_{side}"),
        F.floor(F.unix_micros("ts") / query.tumbling_us).alias(f"window_{side}"),
    ).withWatermark(f"ts_{side}", WATERMARK_DELAY)


def _same_window(query: JoinQuery) -> str:
    """The equalities that are there in any case, and the distance in time from which Spark knows what it may forget."""
    size = f"interval {query.tumbling_us} microseconds"
    near = f"ts_right between ts_left - {size} and ts_left + {size}"
    return f"window_left = window_right and words_left = words_right and {near}"


def _join_sql(left: DataFrame, right: DataFrame, query: JoinQuery) -> DataFrame:
    """Everything that is an equality is one to Spark too, and what one side decides it may decide before the join."""
    fits = (
        f"{_same_window(query)} and length(orig_left) = length(orig_right) and length(orig_left) > {query.bound:.0f} "
        "and lower(orig_left) != lower(orig_right)"
    )
    return left.join(right, F.expr(fits))


def _join_pandas(left: DataFrame, right: DataFrame, query: JoinQuery) -> DataFrame:
    """By window and key; the predicate is a pandas function."""
    bound = int(query.bound)

    def match(lefts: pd.Series, rights: pd.Series) -> pd.Series:
        return pd.Series([texts_match(one, other, bound) for one, other in zip(lefts, rights, strict=True)], dtype=bool)

    fits = F.pandas_udf(match, "boolean")
    joined = left.join(right, F.expr(_same_window(query)))
    return joined.where(fits("orig_left", "orig_right"))
