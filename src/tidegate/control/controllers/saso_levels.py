"""The numbers of instances that the SASO controller moves between, and what it remembers of each of them."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum

from tidegate.control.controller import Limits


@dataclass(frozen=True, slots=True)
class Levels:
    """Numbers of instances in rising order; a level is an index into them (Gedik et al., principle P6).

    >>> Levels.rapid(Limits(1, 40)).numbers
    (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 40)
    """

    numbers: tuple[int, ...]

    @staticmethod
    def rapid(limits: Limits) -> Levels:
        """⌊0.5 + 2^(0.5(L+1))⌋ for L = 0, 1, …, each cut to the limits, up to and including the most."""
        numbers = [limits.least]
        for level in itertools.count():
            if numbers[-1] == limits.most:
                break
            number = limits.clamp(math.floor(0.5 + 2 ** (0.5 * (level + 1))))
            if number > numbers[-1]:
                numbers.append(number)
        return Levels(tuple(numbers))

    @staticmethod
    def single(limits: Limits) -> Levels:
        """One level for each number of instances: slower to get anywhere, finer once there."""
        return Levels(tuple(range(limits.least, limits.most + 1)))

    @property
    def top(self) -> int:
        return len(self.numbers) - 1

    def at_least(self, instances: int) -> int:
        """The lowest level with that many instances, or the top."""
        return min(bisect_left(self.numbers, instances), self.top)

    def step(self, level: int, other: int) -> int:
        """How many instances apart two neighbouring levels are; at an end of the range, the step on its other side."""
        if not 0 <= other <= self.top:
            other = 2 * level - other
        return abs(self.numbers[level] - self.numbers[other]) if 0 <= other <= self.top else self.numbers[level]


class LoadChange(Enum):
    """What an observation says about the load since the one before it."""

    LESS = "less load"
    MORE = "more load"
    NONE = "no change"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was observed the last time at a level.

    `last_throughput` and `congested` are of the latest period there (T⁻ and C in the paper), `first_throughput` of the
    first period of that stay, or of the latest one that showed a change of load (T⁺).
    """

    congested: bool
    last_throughput: float
    first_throughput: float


@dataclass(slots=True)
class Memory:
    """What is remembered of the levels. A level that was never visited, or was forgotten, is absent.

    The paper fills unknown levels with values that let its comparisons come out right (C true, T⁻ = ∞ above; C false,
    T⁻ = 0 below). Absence says the same without depending on the side it is looked at from.
    """

    seen: dict[int, Seen] = field(default_factory=dict)
    previous: int | None = None

    def at(self, level: int) -> Seen | None:
        return self.seen.get(level)

    def just_left(self, level: int) -> Seen | None:
        """What was seen at that level if it is where the previous period was spent (P_i = P − 1 in the paper)."""
        return self.seen.get(level) if self.previous == level else None

    def forget(self, level: int, change: LoadChange, *, too_little: float) -> None:
        """Principles P3 and P4: with less load forget the levels below, with more load those above.

        Levels below that were congested while they carried less than `too_little` are remembered.
        """
        if change is LoadChange.LESS:
            self.seen = {
                known: seen
                for known, seen in self.seen.items()
                if known >= level or (seen.congested and seen.last_throughput < too_little)
            }
        elif change is LoadChange.MORE:
            self.seen = {known: seen for known, seen in self.seen.items() if known <= level}

    def note(self, level: int, congested: bool, throughput: float, *, changed: bool) -> None:
        """Remember this period; a stay begins anew when the level or the load has changed."""
        stay = None if changed else self.just_left(level)
        first = throughput if stay is None else stay.first_throughput
        self.seen[level] = Seen(congested, throughput, first)
        self.previous = level
