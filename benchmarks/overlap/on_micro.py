"""The queries over texts as graphs of the engine of one operator, as in listings 1 and 2 of the paper.

All joins are of a stream with itself, so both sides of listing 2 are one, and a bag is paired with itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.overlap.functions import MapFunction, words_in
from benchmarks.overlap.queries import JoinQuery, MapQuery
from tidegate import micro


@dataclass(frozen=True, slots=True)
class EachTuple:
    """f_M on every tuple of a bag; what it gives for a bag is what it gives for its tuples."""

    function: MapFunction

    def __call__(self, key: Any, at: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
        if len(rows) == 1:
            return self.function(*rows[0][1:])
        return [values for row in rows for values in self.function(*row[1:])]


@dataclass(frozen=True, slots=True)
class LongTexts:
    """Tuples of a join of texts that can match, with their key and own time."""

    longer_than: int

    def __call__(self, key: Any, at: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
        return [(words_in(change), time, orig) for time, orig, change in rows if len(orig) > self.longer_than]


def key_of(row: micro.Row) -> Any:
    return row[1]


def matching(key: Any, start: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
    """Pairs of a bag that are equally long and distinct but for their case: by length, as all others cannot match."""
    by_length: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for _, _, time, orig in rows:
        by_length[len(orig)].append((time, orig, orig.lower()))
    return [
        (left, right, one, other)
        for texts in by_length.values()
        for left, one, one_lower in texts
        for right, other, other_lower in texts
        if one_lower != other_lower
    ]


def graph(query: MapQuery | JoinQuery, files: Sequence[str | Path], splits: int) -> micro.AggregateStage:
    """A query over parquet files of texts, windows of joins tumbling."""
    if isinstance(query, MapQuery):
        tuples = micro.parquet("tuples", files, time="ts", columns=query.columns, splits=splits)
        return micro.aggregate("map", tuples, function=EachTuple(query.function), size_us=1, distributes=True)
    tuples = micro.parquet("tuples", files, time="ts", columns=("orig", "change"), splits=splits)
    texts = micro.aggregate("long", tuples, function=LongTexts(int(query.bound)), size_us=1, distributes=True)
    return micro.aggregate("join", texts, function=matching, size_us=query.tumbling_us, key=key_of)
