"""What the 24 queries do with a tuple or a pair of tuples: plain functions, the same for every engine.

A map function takes the values of a tuple, without its time, and returns result rows, without their time. Words are what
single spaces separate. Of words that are equally frequent the one that comes first is taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

Values = tuple[Any, ...]
MapFunction = Callable[..., list[Values]]

LONG_WORD = 10
FAR_M = 3.0
REFERENCE_POINT = (1.75, -1.0)
PARTS = 3


def most_frequent(text: str) -> str:
    """The most frequent word of a text."""
    counts = Counter(text.split(" "))
    return max(counts, key=counts.__getitem__)


def top_3(text: str) -> list[str]:
    """Its three most frequent words, or fewer."""
    counts = Counter(text.split(" "))
    return sorted(counts, key=counts.__getitem__, reverse=True)[:3]


def llm(orig: str) -> list[Values]:
    word = most_frequent(orig)
    return [(word,)] if len(word) > LONG_WORD else []


def alm(orig: str) -> list[Values]:
    return [(most_frequent(orig),)]


def hlm(orig: str) -> list[Values]:
    return [(word,) for word in top_3(orig)]


def lhm(orig: str, change: str, updated: str) -> list[Values]:
    words = (most_frequent(orig), most_frequent(change), most_frequent(updated))
    return [words] if min(map(len, words)) > LONG_WORD else []


def ahm(orig: str, change: str, updated: str) -> list[Values]:
    return [(most_frequent(orig), most_frequent(change), most_frequent(updated))]


def hhm(orig: str, change: str, updated: str) -> list[Values]:
    return list(zip(top_3(orig), top_3(change), top_3(updated), strict=False))


def words_in(text: str) -> int:
    """How many words a text has: the key of the joins of texts."""
    return text.count(" ") + 1


def texts_match(left: str, right: str, longer_than: int) -> bool:
    """Whether two texts are equally long, longer than a bound, and distinct but for their case."""
    return len(left) == len(right) > longer_than and left.lower() != right.lower()


def cartesian(dist: Sequence[float], centre: tuple[float, float] = (0.0, 0.0)) -> tuple[list[float], list[float]]:
    """The points of a scan over half a circle, seen from a centre."""
    step = math.pi / len(dist)
    xs = [distance * math.cos(step * number) - centre[0] for number, distance in enumerate(dist)]
    ys = [distance * math.sin(step * number) - centre[1] for number, distance in enumerate(dist)]
    return xs, ys


def llm_scan(scan: int, dist: Sequence[float]) -> list[Values]:
    points = cartesian(dist)
    return [(scan, *points)] if sum(dist) / len(dist) > FAR_M else []


def alm_scan(scan: int, dist: Sequence[float]) -> list[Values]:
    return [(scan, *cartesian(dist))]


def hlm_scan(scan: int, dist: Sequence[float]) -> list[Values]:
    return _in_parts(scan, *cartesian(dist))


def lhm_scan(scan: int, dist: Sequence[float]) -> list[Values]:
    xs, ys = cartesian(dist, REFERENCE_POINT)
    far = sum(map(math.hypot, xs, ys)) / len(dist) > FAR_M
    return [(scan, xs, ys)] if far else []


def ahm_scan(scan: int, dist: Sequence[float]) -> list[Values]:
    return [(scan, *cartesian(dist, REFERENCE_POINT))]


def hhm_scan(scan: int, dist: Sequence[float]) -> list[Values]:
    return _in_parts(scan, *cartesian(dist, REFERENCE_POINT))


def scans_match(left: Sequence[float], right: Sequence[float], less_than_m: float) -> bool:
    """Whether the distances of two scans differ by less than a bound in all."""
    return sum(abs(one - other) for one, other in zip(left, right, strict=True)) < less_than_m


def _in_parts(scan: int, xs: list[float], ys: list[float]) -> list[Values]:
    length = -(-len(xs) // PARTS)
    return [(scan, xs[at : at + length], ys[at : at + length]) for at in range(0, len(xs), length)]
