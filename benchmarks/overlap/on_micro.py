"""The queries over texts as graphs of the engine of one operator, as in listings 1 and 2 of the paper.

A join reads two feeds, as on the other engines, though both are of the same files.
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
    """f_M on every tuple."""

    function: MapFunction

    def __call__(self, rows: Sequence[micro.Row]) -> list[micro.Row]:
        function = self.function
        return [(row[0], *values) for row in rows for values in function(*row[1:])]


@dataclass(frozen=True, slots=True)
class LongTexts:
    """Tuples of one side of a join of texts that can match, with their key and side."""

    longer_than: int
    side: int

    def __call__(self, rows: Sequence[micro.Row]) -> list[micro.Row]:
        longer_than, side = self.longer_than, self.side
        return [(time, words_in(change), side, orig) for time, orig, change in rows if len(orig) > longer_than]


def key_of(row: micro.Row) -> Any:
    return row[1]


def matching(key: Any, start: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
    """Pairs of a bag that are equally long and distinct but for their case: by length, as all others cannot match."""
    sides: tuple[defaultdict[int, list[tuple[int, str, str]]], ...] = (defaultdict(list), defaultdict(list))
    for time, _, side, orig in rows:
        sides[side][len(orig)].append((time, orig, orig.lower()))
    lefts, rights = sides
    return [
        (left, right, one, other)
        for length, texts in lefts.items()
        if length in rights
        for left, one, one_lower in texts
        for right, other, other_lower in rights[length]
        if one_lower != other_lower
    ]


def graph(query: MapQuery | JoinQuery, files: Sequence[str | Path], splits: int) -> micro.AggregateStage:
    """A query over parquet files of texts, windows of joins tumbling."""
    if isinstance(query, MapQuery):
        tuples = micro.parquet("tuples", files, time="ts", columns=query.columns, splits=splits)
        function = EachTuple(query.function)
        return micro.aggregate("map", tuples, function=function, size_us=1, distributes=True, at_once=True)
    sides = []
    for side, name in enumerate(("left", "right")):
        tuples = micro.parquet(name, files, time="ts", columns=("orig", "change"), splits=splits)
        texts = LongTexts(int(query.bound), side)
        sides.append(micro.aggregate(f"long {name}", tuples, function=texts, size_us=1, distributes=True, at_once=True))
    return micro.aggregate("join", *sides, function=matching, size_us=query.tumbling_us, key=key_of)
