"""Graphs for the engine of one operator whose functions other processes can import, and their answers by plain loops."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tidegate import micro

Rows = list[micro.Row]


def first_value(row: micro.Row) -> Any:
    return row[1]


def nothing(row: micro.Row) -> tuple[()]:
    return ()


def doubled(key: Any, at: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
    """A Map: every row twice, with another number."""
    return [(k, n + more) for _, k, n in rows for more in (0, 100)]


def odd(key: Any, at: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
    """A Filter."""
    return [(k, n) for _, k, n in rows if n % 2]


def summed(key: Any, start: int, rows: Sequence[micro.Row]) -> Iterator[micro.Row]:
    """Per key and window: its start, how many rows, and their sum; two rows where that is even."""
    total = sum(row[2] for row in rows)
    for turn in range(2 - total % 2):
        yield key, start, len(rows), total, turn


def pairs(key: Any, start: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
    """A Join of rows tagged 0 and 1."""
    sides: tuple[list[int], list[int]] = ([], [])
    for _, _, n, side in rows:
        sides[side].append(n)
    return [(key, left, right) for left in sides[0] for right in sides[1] if left < right]


def tagged_0(key: Any, at: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
    return [(*row[1:], 0) for row in rows]


def tagged_1(key: Any, at: int, rows: Sequence[micro.Row]) -> Iterable[micro.Row]:
    return [(*row[1:], 1) for row in rows]


def sums(source: micro.ReplayableSource, size_us: int, every_us: int) -> micro.AggregateStage:
    """A Map, a Filter and a windowed sum by key."""
    mapped = micro.aggregate("doubled", source, function=doubled, size_us=1, distributes=True)
    kept = micro.aggregate("odd", mapped, function=odd, size_us=1)
    return micro.aggregate("summed", kept, function=summed, size_us=size_us, every_us=every_us, key=first_value)


def self_join(source: micro.ReplayableSource, size_us: int, every_us: int) -> micro.AggregateStage:
    """Listing 2 of the paper: two Aggregates that tag, one that pairs."""
    left = micro.aggregate("left", source, function=tagged_0, size_us=1, distributes=True)
    right = micro.aggregate("right", source, function=tagged_1, size_us=1)
    return micro.aggregate("pairs", left, right, function=pairs, size_us=size_us, every_us=every_us, key=first_value)


def expected_sums(rows: Rows, size_us: int, every_us: int) -> Rows:
    """The answer of `sums`, from the definition: every window, key by key."""
    bags: dict[tuple[int, Any], Rows] = defaultdict(list)
    for time, k, n in rows:
        for number in (n, n + 100):
            if number % 2:
                for start in windows_of(time, size_us, every_us):
                    bags[start, k].append((time, k, number))
    found = []
    for (start, k), bag in bags.items():
        total = sum(n for _, _, n in bag)
        found += [(start + size_us - 1, k, start, len(bag), total, turn) for turn in range(1 if total % 2 else 2)]
    return sorted(found)


def expected_pairs(rows: Rows, size_us: int, every_us: int) -> Rows:
    """The answer of `self_join`: every pair of rows, window by window."""
    return sorted(
        (start + size_us - 1, k, n, m)
        for time, k, n in rows
        for other, l, m in rows
        if k == l and n < m
        for start in set(windows_of(time, size_us, every_us)) & set(windows_of(other, size_us, every_us))
    )


def windows_of(time: int, size_us: int, every_us: int) -> list[int]:
    """The starts of the windows that hold a time, by trying all near it."""
    near = range((time - size_us) // every_us - 1, time // every_us + 2)
    return [every_us * n for n in near if every_us * n <= time < every_us * n + size_us]


def generated(count: int, keys: int, seed: int, step: int = 3, begin: int = -50) -> Rows:
    """Rows in the order of time, with ties."""
    dice = random.Random(seed)
    time, rows = begin, []
    for _ in range(count):
        time += dice.randrange(step)
        rows.append((time, f"k{min(dice.randrange(keys), dice.randrange(keys))}", dice.randrange(100)))
    return rows


def numbered(split: tuple[int, int, float], skip: int) -> Iterator[Rows]:
    """A generated split: seed, rows, and how many seconds to wait after each batch of ten."""
    import time

    seed, count, pause = split
    rows = generated(count, 20, seed)
    for first in range(skip, count, 10):
        time.sleep(pause)
        yield rows[first : min(first + 10, count)]
