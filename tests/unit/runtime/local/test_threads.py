"""Threads are kept where they get more done: measured in turns, and tried again after growing times."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tidegate.runtime.local.threads import FIRST_SECONDS, LONGEST_WINDOW_SECONDS, ROUNDS, WARM_SEGMENTS, CoreChoice


@dataclass
class Load:
    """A load in segments of ``rows``, and how long one takes an instance where threads are together, or apart.

    ``changes`` are the moments at which threads came together or parted, with where they went.
    """

    together_seconds: float
    apart_seconds: float
    every_seconds: float = 0.001
    rows: int = 100
    now: float = 0.0
    changes: list[tuple[float, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.choice = CoreChoice(clock=lambda: self.now)

    def run(self, seconds: float) -> bool:
        """Go on for so long; where threads are then."""
        until = self.now + seconds
        while self.now < until:
            took = self.together_seconds if self.choice.together else self.apart_seconds
            self.choice.begin(self.now)
            self.now += took
            before = self.choice.together
            self.choice.seen(self.rows)
            self.now += max(self.every_seconds - took, 0.0)
            if self.choice.together is not before:
                self.changes.append((self.now, self.choice.together))
        return self.choice.together

    def trials(self) -> list[float]:
        """When trials began, by the first of the changes that follow each other closely."""
        moments = [at for at, _ in self.changes]
        return [at for at, before in zip(moments, [-10.0, *moments], strict=False) if at - before > 1]


def test_threads_come_together_where_that_gets_more_done_and_stay() -> None:
    load = Load(together_seconds=0.0002, apart_seconds=0.0006)
    assert not load.run(WARM_SEGMENTS * 0.001 - 0.01) and not load.changes, "the first segments say nothing"
    assert load.run(1.0)
    assert load.run(FIRST_SECONDS - 2.0) and len(load.changes) == 2 * ROUNDS - 1


def test_threads_stay_apart_where_that_gets_more_done() -> None:
    load = Load(together_seconds=0.002, apart_seconds=0.001)
    assert not load.run(3.0) and load.changes, "it was tried"
    assert not load.run(60.0)
    together = [later - at for (at, where), (later, _) in zip(load.changes, load.changes[1:], strict=False) if where]
    assert sum(together) < 0.02 * load.now


def test_at_about_the_same_rate_threads_are_together() -> None:
    """What sources and the output gain by it is not measured."""
    assert Load(together_seconds=0.00105, apart_seconds=0.001).run(30.0)


def test_threads_that_have_parted_come_back_at_the_same_rate_and_not_before() -> None:
    load = Load(together_seconds=0.002, apart_seconds=0.001)
    assert not load.run(3.0)
    load.together_seconds = 0.00105
    assert not load.run(30.0), "a difference that may be noise moves nobody to and fro"
    load.together_seconds = 0.00095
    assert load.run(60.0)


def test_trials_come_after_twice_as_long_each_time() -> None:
    load = Load(together_seconds=0.0002, apart_seconds=0.0006)
    load.run(70.0)
    first, *later = load.trials()
    gaps = [b - a for a, b in zip([first, *later], later, strict=False)]
    assert gaps == pytest.approx([4, 8, 16, 32], abs=1)


def test_under_a_load_that_one_core_cannot_take_threads_part_at_once() -> None:
    load = Load(together_seconds=0.0002, apart_seconds=0.0006)
    assert load.run(40.0), "the next trial is far away"
    load.together_seconds, load.apart_seconds, load.every_seconds, load.rows = 0.01, 0.005, 0.0, 5_000
    assert not load.run(3.0)


def test_two_that_work_at_the_same_time_count_once() -> None:
    """Apart, two instances take as long as together, but side by side."""
    now, seen = [0.0], []
    choice = CoreChoice(clock=lambda: now[0])
    for _ in range(2_000):
        side_by_side = not choice.together
        for _ in range(1 if side_by_side else 2):
            choice.begin(now[0])
            if side_by_side:
                choice.begin(now[0])
            now[0] += 0.001
            choice.seen(100)
            if side_by_side:
                choice.seen(100)
        seen.append(choice.together)
    assert any(seen) and not choice.together


def test_a_trial_with_large_segments_is_short() -> None:
    load = Load(together_seconds=0.1, apart_seconds=0.05)
    load.run(60.0)
    at = [at for at, _ in load.changes[: 2 * ROUNDS]]
    assert at and at[-1] - at[0] <= 2 * ROUNDS * (LONGEST_WINDOW_SECONDS + 0.1)
