"""The queries over texts as graphs of the engine of one operator, as in listings 1 and 2 of the paper."""

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
class OneSide:
    """Tuples of one side of a join of texts that can match, with their key, side and own time."""

    side: int
    longer_than: int

    def __call__(self, key: Any, at: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
        return [
            (words_in(change), self.side, time, orig) for time, orig, change in rows if len(orig) > self.longer_than
        ]


def key_of(row: micro.Row) -> Any:
    return row[1]


def matching(key: Any, start: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
    """Pairs of a bag that are equally long and distinct but for their case: by length, as all others cannot match."""
    by_length: dict[int, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for _, _, side, time, orig in rows:
        by_length[len(orig)][side].append((time, orig, orig.lower()))
    return [
        (left, right, one, other)
        for lefts, rights in by_length.values()
        for left, one, one_lower in lefts
        for right, other, other_lower in rights
        if one_lower != other_lower
    ]


def graph(query: MapQuery | JoinQuery, files: Sequence[str | Path], splits: int) -> micro.AggregateStage:
    """A query over parquet files of texts, windows of joins tumbling."""
    if isinstance(query, MapQuery):
        tuples = micro.parquet("tuples", files, time="ts", columns=query.columns, splits=splits)
        return micro.aggregate("map", tuples, function=EachTuple(query.function), size_us=1, distributes=True)
    tuples = micro.parquet("tuples", files, time="ts", columns=("orig", "change"), splits=splits)
    sides = [
        micro.aggregate(name, tuples, function=OneSide(side, int(query.bound)), size_us=1, distributes=True)
        for side, name in enumerate(("left", "right"))
    ]
    return micro.aggregate("join", *sides, function=matching, size_us=query.tumbling_us, key=key_of)
