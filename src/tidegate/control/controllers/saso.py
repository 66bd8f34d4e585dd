"""SASO: goes up while sources are blocked, down while they are not, and remembers what did not help.

Gedik, Schneider, Hirzel and Wu, "Elastic Scaling for Data Stream Processing", section 4, algorithms 1 to 3, principles
P1 to P6. It needs no model and no rate of the sources: each period it takes the share of time the sources stood
blocked, turns it into yes or no, and moves one level at a time. The aim is stability, accuracy, a short settling time
and no overshoot, hence the name: it settles at the lowest level without congestion, or at the level above which
throughput no longer grows.

The listings are followed except where a trace by hand shows that they do not settle. What differs, and why:

1.  *Series of levels.* The printed formula has a ceiling; the printed series 1, 2, 3, 4, 6, 8, 11, 16, 23, 32 is the
    floor. The series is cut to the limits.
2.  *Throughput is compared with a tolerance* (`noise`). Exact comparisons turn every measurement into "more" or "less".
    Worse, P5 goes down when throughput above is equal and P1 goes up when it is equal, so in front of a bottleneck
    elsewhere the listings alternate between two levels for ever. Here P5 and P1 ask for the same gain: more than the
    noise, or than half of what the step can bring at best where that is less.
3.  *P1 also returns to a level remembered as free of congestion*, however small its gain: with a low threshold a level
    may be congested although it carries almost all of the load.
4.  *Throughput tells of less load only without congestion.* A congested region delivers what it can, whatever is
    offered. As printed, throughput that falls on the way up is "less load", which clears the congestion remembered
    below, which disables P5: a region that gets slower with more instances climbs to the top.
5.  *Throughput tells of more load after a step down only if the level left was not congested.* A step down by P5 may
    raise throughput because there is less contention; as printed that clears what P5 has learnt, and it goes up again.
6.  *A level never visited is unknown, not congested.* The initial values assume a start at level 0; started higher, the
    listings never go down.
7.  *P2 ignores congestion below once throughput is smaller than what that level carried while congested*: then it has
    room. Load that falls while the region is saturated is otherwise invisible: throughput is the capacity before and
    after, and the next level up keeps the memory of congestion below it.
8.  *Less load does not clear levels that carried less than this load while they were congested.* As printed every
    decrease clears all levels below, and each time the controller goes down until the sources are blocked and comes back
    up. What could not be carried meanwhile then blocks the sources at the right level too, congestion ends there once it
    is caught up with, which counts as less load, and all begins again.
9.  *Under congestion any rise of throughput beyond the noise is taken for more load.* The bottleneck has moved, so what
    the level above did before says nothing. With the printed measure, a share of a whole level, a region that saturates
    soon after can never show enough of a rise, and stays congested for ever.
10. *The first throughput of a stay is taken anew when a change of load is seen during the stay.* A first period spoilt
    by the reconfiguration itself would hide every later decrease, and each further period would count as an increase.
11. *What counts as a change at the ends of the range.* The steps N_L − N_{L−1} at the bottom and N_{L+1} − N_L at the top
    are undefined; the step on the other side is taken. A step cut short by the limits is no reason to react to noise.
12. *The level is that of the observed instances*, so a change that is late, cut or refused is not taken for a fact.
13. *A shrinking backlog is no reason to go up.* The paper's sources lose what they cannot send. Sources that keep it stay
    blocked until it is sent, also at the right level, and the listings climb on past it. Used where it is observed.
14. *A step down that cost throughput is watched for a period before the next one.* Buffers take time to fill, so the
    first period at too low a level may look free of congestion, and the listings go one further.

Limits of the method: while congestion persists it goes down by at most the step it went up, so a bottleneck that arises
elsewhere leaves the instances where they are; and if such a bottleneck goes away without a visible rise of throughput,
the level above is not tried again. Instances that have become faster are not noticed while the load is beyond what the
level below carried when it was last congested.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

from tidegate.control.controller import Alternative, Decision, Effect, Limits, hold, require, resize
from tidegate.control.observation import Observation


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


@dataclass(frozen=True, slots=True)
class LevelMemory:
    """What was observed the last time at a level.

    `last_throughput` and `congested` are of the latest period there (T⁻ and C in the paper), `first_throughput` of the
    first period of that stay, or of the latest one that showed a change of load (T⁺).
    """

    congested: bool
    last_throughput: float
    first_throughput: float


LESS, SAME, MORE = -1, 0, 1
"""What an observation says about the load since the one before it."""

NEEDS = ("congestion", "processed")


@dataclass(frozen=True, slots=True)
class Saso:
    """Adds instances while sources are blocked, removes them while they are not, and remembers what did not help.

    Periods of about 5 s suit it.

    congestion_threshold
        the share of blocked time above which a period is congested. The paper finds 0.01 to 0.3 robust; too low and it
        never goes down, too high and it never goes up.
    sensitivity
        α in [0, 1]: 1 reacts to small changes of throughput at one level, 0 only to such as a whole level would make.
    noise
        two throughputs that differ by no more than this share are the same.
    catch_up_seconds
        congestion is no reason to go up while the backlog, where it is known, shrinks fast enough to be gone within this
        time. Shorter catches up sooner, with more instances than the load needs.
    """

    congestion_threshold: float = 0.2
    sensitivity: float = 0.5
    noise: float = 0.05
    catch_up_seconds: float = 300.0
    name: ClassVar[str] = "saso"

    def __post_init__(self) -> None:
        for name in ("congestion_threshold", "noise"):
            require(0 <= getattr(self, name) < 1, "saso", name, getattr(self, name), "a share: at least 0, less than 1")
        require(0 <= self.sensitivity <= 1, "saso", "sensitivity", self.sensitivity, "between 0 and 1")
        require(self.catch_up_seconds >= 0, "saso", "catch_up_seconds", self.catch_up_seconds, "0 or more")

    @property
    def significant_share(self) -> float:
        """s of algorithm 1: the share of a level's ideal gain that counts as a change of load."""
        return 0.1 + (1.0 - self.sensitivity) * 0.9

    def start(self, limits: Limits) -> SasoRun:
        return SasoRun(self, Levels.rapid(limits))


@dataclass(frozen=True, slots=True)
class _Period:
    """An observation that has what is needed, at a level."""

    observation: Observation
    level: int
    blocked_share: float
    congested: bool
    throughput: float

    def __str__(self) -> str:
        return f"{self.blocked_share:.0%} of the time blocked, {self.throughput:g} tuples/s"


class SasoRun:
    """SASO at work: the memory of its levels. A decision takes time in proportion to the number of levels.

    A level that was never visited, or was forgotten, is absent. The paper fills unknown levels with values that let its
    comparisons come out right (C true, T⁻ = ∞ above; C false, T⁻ = 0 below). Absence says the same without depending on
    the side it is looked at from.
    """

    def __init__(self, settings: Saso, levels: Levels) -> None:
        self._settings, self._levels = settings, levels
        self._seen: dict[int, LevelMemory] = {}
        self._previous: int | None = None
        self._aim: int | None = None
        self._waiting: float | None = None

    def decide(self, observation: Observation) -> Decision:
        """Algorithm 2: detect a change of load, forget what it invalidates, remember this period, move by one level."""
        blocked_share, throughput = observation.congestion, observation.processed
        missing = observation.missing(NEEDS)
        if missing or blocked_share is None or throughput is None:
            return hold(observation, missing=missing)
        level = self._levels.at_least(observation.instances)
        if self._levels.numbers[level] != observation.instances:
            return self._to_a_level(observation, level)
        congested = blocked_share > self._settings.congestion_threshold
        now = _Period(observation, level, blocked_share, congested, throughput)
        changes = {self._change_by_congestion(now), self._change_by_throughput(now)} - {SAME}
        self._forget(now, changes)
        remote, slowed, catching_up = self._remote(now), self._slowed(now), self._catching_up(observation)
        stay = None if changes else self._just_left(level)
        first = throughput if stay is None else stay.first_throughput
        self._seen[level], self._previous = LevelMemory(congested, throughput, first), level
        if remote:
            return self._move(now, level - 1, "congested, and no better than with fewer instances (P5)")
        if congested and catching_up:
            return self._stay(now, "congested, but catching up with what waits")
        if slowed:
            return self._stay(now, "slower than with more instances, which may be congestion to come")
        return self._expand(now) if congested else self._contract(now)

    def _just_left(self, level: int) -> LevelMemory | None:
        """What was seen at that level if it is where the previous period was spent (P_i = P − 1 in the paper)."""
        return self._seen.get(level) if self._previous == level else None

    def _forget(self, now: _Period, changes: set[int]) -> None:
        """Principles P3 and P4: with less load forget the levels below, with more load those above.

        Levels below that were congested while they carried less than this load are remembered.
        """
        if LESS in changes:
            for level in [level for level in self._seen if level < now.level]:
                if not self._seen[level].congested or self._seen[level].last_throughput >= now.throughput:
                    del self._seen[level]
        if MORE in changes:
            self._seen = {level: seen for level, seen in self._seen.items() if level <= now.level}

    def _change_by_congestion(self, now: _Period) -> int:
        """Algorithm 3, first part: congestion that came or went where only the load can explain it."""
        here, above, below = self._neighbours(now)
        if here and here.congested != now.congested:
            return MORE if now.congested else LESS
        if above and above.congested and not now.congested:
            return LESS
        if below and not below.congested and now.congested:
            return MORE
        return SAME

    def _change_by_throughput(self, now: _Period) -> int:
        """Algorithm 3, second part, with the conditions on congestion of deviations 4, 5 and 9."""
        here, above, below = self._neighbours(now)
        if here:
            first = here.first_throughput
            if first - now.throughput > self._significant(now.level, now.level - 1, first) and not now.congested:
                return LESS
            rise = self._settings.noise * first if now.congested else self._significant(now.level, now.level + 1, first)
            if now.throughput - first > rise:
                return MORE
        if above and not above.congested and self._exceeds(now.throughput, above.last_throughput):
            return MORE
        if below and not now.congested and self._exceeds(below.last_throughput, now.throughput):
            return LESS
        return SAME

    def _neighbours(self, now: _Period) -> tuple[LevelMemory | None, LevelMemory | None, LevelMemory | None]:
        """This level, the one above and the one below: that one of them where the previous period was spent."""
        left = self._just_left
        return left(now.level), left(now.level + 1), left(now.level - 1)

    def _significant(self, level: int, other: int, first: float) -> float:
        """The change of throughput that matters at a level: a share of what the step to its neighbour would bring."""
        ideal = self._levels.step(level, other) * first / self._levels.numbers[level]
        return max(self._settings.significant_share * ideal, self._settings.noise * first)

    def _exceeds(self, more: float, less: float) -> bool:
        return more > less * (1 + self._settings.noise)

    def _gains(self, level: int, throughput: float, above: float) -> bool:
        """Whether the step up from a level was worth it: more than noise, or than half of what a small step can bring."""
        ideal = self._levels.step(level, level + 1) / self._levels.numbers[level]
        return above > throughput * (1 + min(self._settings.noise, ideal / 2))

    def _remote(self, now: _Period) -> bool:
        """P5: came up from a congested level, is congested still, and delivers no more: the bottleneck is elsewhere."""
        below = self._just_left(now.level - 1)
        if below is None or not (now.congested and below.congested):
            return False
        return not self._gains(now.level - 1, below.last_throughput, now.throughput)

    def _slowed(self, now: _Period) -> bool:
        """Whether a step down has cost throughput while nothing is blocked yet, because buffers are still filling."""
        above = self._just_left(now.level + 1)
        return above is not None and not now.congested and self._exceeds(above.last_throughput, now.throughput)

    def _catching_up(self, observation: Observation) -> bool:
        """Whether what waits will be gone in time at the pace of this period; not if it is not known."""
        waited, self._waiting = self._waiting, None
        if observation.backlog is None or observation.missing(("backlog",)):
            return False
        self._waiting = observation.backlog
        if waited is None:
            return False
        pace = (waited - observation.backlog) / observation.period_seconds
        return pace > 0 and observation.backlog <= pace * self._settings.catch_up_seconds

    def _expand(self, now: _Period) -> Decision:
        """P1: go up unless the level above is known to be congested and to deliver no more."""
        if now.level == self._levels.top:
            return self._stay(now, "congested, but these are the most instances allowed")
        above = self._seen.get(now.level + 1)
        if above and above.congested and not self._gains(now.level, now.throughput, above.last_throughput):
            number = self._levels.numbers[now.level + 1]
            why_not = f"congested too when last tried, and delivered {above.last_throughput:g} tuples/s"
            return self._stay(now, f"congested, but {number} instances did no better", Alternative(number, why_not))
        return self._move(now, now.level + 1, "congested (P1)")

    def _contract(self, now: _Period) -> Decision:
        """P2: go down unless the level below is known to be congested by such a load."""
        if now.level == 0:
            return self._stay(now, "not congested, and these are the fewest instances allowed")
        below = self._seen.get(now.level - 1)
        if below and below.congested and not self._exceeds(below.last_throughput, now.throughput):
            number = self._levels.numbers[now.level - 1]
            why_not = f"congested when last tried, at {below.last_throughput:g} tuples/s"
            return self._stay(now, f"not congested, but {number} instances were", Alternative(number, why_not))
        return self._move(now, now.level - 1, "not congested (P2)")

    def _stay(self, now: _Period, why: str, *rejected: Alternative) -> Decision:
        return hold(now.observation, f"{now}: {why}", rejected=rejected)

    def _move(self, now: _Period, to: int, why: str) -> Decision:
        """Expects what is offered, as far as more instances can carry it; no loss with fewer."""
        self._aim = to
        before, after, processed = now.observation.instances, self._levels.numbers[to], now.throughput
        if after > before:
            offered = now.throughput / (1 - now.blocked_share) if now.blocked_share < 1 else math.inf
            processed = min(now.throughput * after / before, offered)
        expected = Effect(processed=processed)
        return resize(now.observation, after, f"{now}: {why}", expected=expected)

    def _to_a_level(self, observation: Observation, next_up: int) -> Decision:
        """Between two levels nothing can be learnt: go on to the level aimed at, or else to the next one up."""
        aim = next_up if self._aim is None or abs(self._aim - next_up) > 1 else self._aim
        number = self._levels.numbers[aim]
        why = f"{observation.instances} instances are between levels or outside the limits; the level is {number}"
        return resize(observation, number, why)
