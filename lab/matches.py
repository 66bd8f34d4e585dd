"""Who takes part in the tournament, how a match is played, and what is counted."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from lab.contests import TARGET_SECONDS, Contest
from lab.merits import merits, needed_instances, passing
from lab.network import simulate
from tidegate.control.controller import Controller
from tidegate.control.controllers.ds2 import Ds2
from tidegate.control.controllers.predictive import Predictive
from tidegate.control.controllers.queueing import Queueing
from tidegate.control.controllers.saso import Saso
from tidegate.control.controllers.steady import Steady
from tidegate.control.controllers.thresholds import Thresholds
from tidegate.control.rules import Rule
from tidegate.simulate.run import SimulationSettings

OURS = "steady"
PUBLISHED = "ds2"
PEERS: Mapping[str, Ds2] = {
    PUBLISHED: Ds2(),
    "ds2, warm-up": Ds2(warm_up_periods=1),
    "ds2, warm-up, every decrease": Ds2(warm_up_periods=1, ignored_decrease=0),
    "ds2, warm-up, 1.05": Ds2(warm_up_periods=1, utilisation=1 / 1.05),
    "ds2, warm-up, 1.2": Ds2(warm_up_periods=1, utilisation=1 / 1.2),
    "ds2, warm-up, 1.43": Ds2(warm_up_periods=1, utilisation=1 / 1.43),
    "ds2, warm-up, 1.2, catch-up": Ds2(warm_up_periods=1, utilisation=1 / 1.2, catch_up_seconds=60.0),
    "ds2 as in Flink": Ds2(warm_up_periods=1, utilisation=0.7, boundary=0.3, catch_up_seconds=60.0),
}
"""DS2 as its scaling manager is published, and as those who deploy it set it; the numbers are target ratios."""

OTHERS: Mapping[str, Controller] = {
    "thresholds": Thresholds(),
    "saso": Saso(),
    "queueing": Queueing(TARGET_SECONDS),
    "predictive": Predictive(),
}
ABLATIONS: Mapping[str, Controller] = {
    "steady, no forecast": Steady(TARGET_SECONDS, horizon_seconds=0.0),
    "steady, no draining": Steady(TARGET_SECONDS, drain_seconds=math.inf),
    "steady, no patience": Steady(TARGET_SECONDS, patience_seconds=0.0),
    "steady, no intervals": Steady(TARGET_SECONDS, confidence=0.0),
    "steady, no verdicts": Steady(TARGET_SECONDS, heeds_limits=False),
    "steady, no balancing": Steady(TARGET_SECONDS, balances=False),
}
ENTRANTS: Mapping[str, Controller] = {OURS: Steady(TARGET_SECONDS), **PEERS, **OTHERS, **ABLATIONS}


@dataclass(frozen=True, slots=True)
class Result:
    """One match: a controller on one load with one seed.

    late
        share of the time with a mean latency above the target, and of the tuples that sources could not deliver.
    drained
        whether, at the end of the quiet time, no more waits than the target allows: all that was offered is done.
    needed_instance_seconds
        the cost of having at all times the least number that meets the target.
    """

    entrant: str
    contest: str
    seed: int
    seconds: float
    late: float
    instance_seconds: float
    needed_instance_seconds: float
    drained: bool
    changes: int
    oscillations: int
    reversals: int
    overshoot: float
    settling_seconds: float | None

    @property
    def late_seconds(self) -> float:
        return self.late * self.seconds


def fitted(controller: Controller, contest: Contest) -> Controller:
    """A controller as it would be set for a contest: DS2's warm-up covers the time that a change takes there."""
    if not isinstance(controller, Ds2) or controller.warm_up_periods == 0:
        return controller
    cost = contest.network.order[0].cost
    periods = math.ceil((cost.start_seconds + cost.pause_seconds) / contest.period_seconds)
    return Ds2(
        controller.utilisation,
        warm_up_periods=periods,
        ignored_decrease=controller.ignored_decrease,
        boundary=controller.boundary,
        catch_up_seconds=controller.catch_up_seconds,
    )


def play(entrant: str, controller: Controller, contest: Contest, seed: int) -> Result:
    """Play one match."""
    settings = SimulationSettings(
        contest.whole_seconds,
        start=contest.start,
        period_seconds=contest.period_seconds,
        tick_seconds=contest.tick_seconds,
        seed=seed,
    )
    run = simulate(contest.ending, Rule(fitted(controller, contest), contest.limits), settings)
    found = merits(run, TARGET_SECONDS, contest.limits)
    needed, drained = 0.0, True
    for subquery in contest.network.order:
        history = passing(subquery, run)
        each = needed_instances(subquery, history, TARGET_SECONDS, contest.limits, settings.ticks_per_period)
        needed += float(each.sum()) * contest.period_seconds
        drained &= bool(history.backlog[-1] <= TARGET_SECONDS * history.offered[-1])
    return Result(
        entrant,
        contest.name,
        seed,
        contest.whole_seconds,
        min(found.late_time + found.refused, 1.0),
        found.instance_seconds,
        needed,
        drained,
        found.changes,
        found.oscillations,
        found.reversals,
        found.overshoot,
        found.settling_seconds,
    )


def play_all(
    entrants: Mapping[str, Controller],
    contests: Sequence[Contest],
    seeds: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """All entrants on all contests with all seeds, on all cores; contest by contest."""
    matches = [(name, made, contest, seed) for contest in contests for name, made in entrants.items() for seed in seeds]
    found: list[Result] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(play, *zip(*matches, strict=True), chunksize=len(seeds)):
            found.append(result)
            if progress is not None:
                progress(len(found), len(matches))
    return found


@dataclass(frozen=True, slots=True)
class Total:
    """An entrant over all its matches. Sums are per seed: of one round through all contests.

    `late` and `cost` are means over contests, so that a long or a large one counts as much as any other; `cost` is
    instance-seconds over those needed.
    """

    entrant: str
    late: float
    late_seconds: float
    cost: float
    instance_seconds: float
    undrained: int
    changes: float
    oscillations: int
    reversals: int
    settling_seconds: float

    @classmethod
    def of(cls, entrant: str, results: Iterable[Result]) -> Total:
        own = [each for each in results if each.entrant == entrant]
        seeds = len({each.seed for each in own})
        settling = [each.settling_seconds for each in own if each.settling_seconds is not None]
        return cls(
            entrant,
            sum(each.late for each in own) / len(own),
            sum(each.late_seconds for each in own) / seeds,
            sum(each.instance_seconds / each.needed_instance_seconds for each in own) / len(own),
            sum(each.instance_seconds for each in own) / seeds,
            sum(not each.drained for each in own),
            sum(each.changes for each in own) / seeds,
            sum(each.oscillations for each in own),
            sum(each.reversals for each in own),
            sum(settling) / len(settling) if settling else math.nan,
        )
