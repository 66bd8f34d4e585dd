"""Which pairs of features the generated cases have met."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from tests.kit.cases import AGGREGATES, BOUNDARIES, KEYS, LATENESS, WINDOWS, Features

Pair = tuple[str, str, str, str]

FEATURES = {
    "key": sorted(KEYS),
    "window": sorted(WINDOWS),
    "aggregate": sorted(AGGREGATES),
    "lateness": sorted(LATENESS),
    "boundary": sorted(BOUNDARIES),
}

ALL_PAIRS = [
    (left, a, right, b) for left, right in combinations(FEATURES, 2) for a in FEATURES[left] for b in FEATURES[right]
]


def covering_features(seed: int = 0) -> list[Features]:
    """Combinations of features that together hold every pair; few, because each is the best of many drawn."""
    source, left, made = random.Random(seed), set(ALL_PAIRS), []
    while left:
        drawn = [
            Features(
                source.choice(FEATURES["key"]),
                source.choice(FEATURES["window"]),
                tuple(sorted(source.sample(FEATURES["aggregate"], 4))),
                source.choice(FEATURES["lateness"]),
                source.choice(FEATURES["boundary"]),
            )
            for _ in range(200)
        ]
        best = max(drawn, key=lambda features: len(left & set(_pairs(features))))
        left -= set(_pairs(best))
        made.append(best)
    return made


def _pairs(features: Features) -> Iterator[Pair]:
    values = {
        "key": (features.key,),
        "window": (features.window,),
        "aggregate": features.aggregates,
        "lateness": (features.lateness,),
        "boundary": (features.boundary,),
    }
    for left, right in combinations(FEATURES, 2):
        yield from ((left, a, right, b) for a in values[left] for b in values[right])


class Coverage:
    """Counts, for every two kinds of features, the pairs that occurred together."""

    def __init__(self) -> None:
        self.seen: Counter[Pair] = Counter()
        self.cases = 0

    def add(self, features: Features) -> None:
        """Note one case."""
        self.cases += 1
        self.seen.update(_pairs(features))

    def missing(self) -> list[Pair]:
        """Pairs that never occurred."""
        return [pair for pair in ALL_PAIRS if not self.seen[pair]]

    def table(self) -> str:
        """For every two kinds of features: pairs met, pairs there are, and the fewest times one was met."""
        lines = [f"{self.cases} cases", f"{'features':<24}{'pairs met':>10}{'of':>6}{'fewest':>8}"]
        for left, right in combinations(FEATURES, 2):
            counts = [self.seen[left, a, right, b] for a in FEATURES[left] for b in FEATURES[right]]
            met = sum(count > 0 for count in counts)
            lines.append(f"{left + ' × ' + right:<24}{met:>10}{len(counts):>6}{min(counts):>8}")
        return "\n".join(lines)
