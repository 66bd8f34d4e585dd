"""What happened in a control loop, as typed values in the order in which it happened.

Each step of a loop is one `Stepped`. `Noticed` stands outside of steps: it reports what happened unplanned.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tidegate.control.controller import ChangeOutcome, Decision, Effect, MoveCost
from tidegate.control.observation import Observation
from tidegate.control.protocols.planner import MovePlan


def measured_effect(observation: Observation) -> Effect:
    """The effect that an observation shows; absent where it does not tell."""
    deviation = statistics.pstdev(observation.busy) if observation.busy else None
    return Effect(observation.utilisation, observation.latency_seconds, observation.processed, deviation)


@dataclass(frozen=True, slots=True)
class Event:
    """Where an event belongs: the subquery, the step of its loop, counted from 0, and the time of the observation."""

    subquery: str
    step: int
    time_seconds: float


@dataclass(frozen=True, slots=True)
class ChangeEffect:
    """What became of the change of an earlier step: what it led to, or why that was missed."""

    decided_step: int
    before: Effect
    seen: Effect | None
    missed: str | None = None


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a controller in the shadow would have done, or the error that it raised; nothing follows from it."""

    shadow: str
    decision: Decision | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Stepped(Event):
    """One whole step of a loop.

    asked, wanted
        whether the driving controller was asked, and what it said; otherwise the loop held, for the reason in `wanted`.
    decision, withheld
        what the loop settled on, and why that is less than was wanted: by its limits, or because that change is under way.
    outcome
        the actuator's answer; None if nothing was to be changed, or nothing was in a dry run.
    plan
        how shards were to change owners, and what that should cost; None where none did or nobody planned it.
    effects
        of earlier changes: one that has settled, of which this was the first whole period, or one that was overtaken.
    """

    observation: Observation
    controller: str
    asked: bool
    wanted: Decision
    withheld: str | None
    decision: Decision
    outcome: ChangeOutcome | None
    effects: tuple[ChangeEffect, ...]
    opinions: tuple[Opinion, ...]
    plan: MovePlan | None = None

    @property
    def result(self) -> str:
        """What became of the decision: it was held, advised (in a dry run), acted upon or refused."""
        if self.outcome is None:
            return "advised" if self.decision.changes else "held"
        return "acted" if self.outcome.accepted else "refused"


@dataclass(frozen=True, slots=True)
class MoveMeasured(Event):
    """What the move of an earlier step cost, where that is known only later; `step` is the one that decided it."""

    measured: MoveCost


@dataclass(frozen=True, slots=True)
class Flowed(Event):
    """Tuples per second between the boxes of a query's graph, and how late results left; of the query, so `subquery` is ''.

    ``rates`` are (from, to, rate). ``latencies`` are p50, p99 and the highest, in seconds, of the results of the period.
    """

    rates: tuple[tuple[str, str, float], ...]
    latencies: tuple[float, float, float] | None


class Notice(StrEnum):
    """Unplanned events in the life of a query."""

    REQUEST_OVERDUE = "request overdue"
    REQUEST_FULFILLED = "request fulfilled late"
    INSTANCES_LOST = "instances lost"
    INSTANCES_CAME = "instances came"
    SILENT = "no observations"
    HEARD = "observations again"
    CONTROLLER_FAILED = "controller failed"
    QUERY_ENDED = "query ended"
    QUERY_FAILED = "query failed"


@dataclass(frozen=True, slots=True)
class Noticed(Event):
    """Something unplanned happened; `step` is the last one before it, -1 before the first."""

    notice: Notice
    text: str


@dataclass(frozen=True, slots=True)
class Poll:
    """One poll of what runs: one observation of each subquery, none if there is nothing new, or why it has ended.

    ``failed`` says that it ended with an error. ``noticed`` are the unplanned events that the observer saw, ``measured``
    what moves of shards have cost, by subquery, where that is known only now. ``flow`` comes about once a second.
    """

    observations: tuple[Observation, ...] = ()
    ended: str | None = None
    failed: bool = False
    noticed: tuple[tuple[Notice, str], ...] = ()
    measured: tuple[tuple[str, MoveCost], ...] = ()
    flow: Flowed | None = None


class Observer(Protocol):
    """Polls a running query; a poll may raise when figures cannot be had."""

    def poll(self) -> Poll: ...
