"""What happened in a control loop, as typed values in the order in which it happened.

One step of a loop records `Observed`, then what became of earlier changes (`EffectSeen`, `EffectMissed`), then `Decided`,
then at most one of `Acted`, `Refused` and `Advised`, preceded by `Withheld` where the loop cut the decision down, then
what the shadows would have done, and at last `Stepped`. Everything up to `Stepped` may be written as
one transaction. `Noticed` stands outside of steps: it reports what happened unplanned.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tidegate.control.controller import ChangeOutcome, Decision, Effect
from tidegate.control.observation import Observation


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
class Observed(Event):
    """An observation came in, which begins a step."""

    observation: Observation


@dataclass(frozen=True, slots=True)
class EffectSeen(Event):
    """A change has settled, and this is the first whole period under it."""

    decided_step: int
    before: Effect
    expected: Effect
    seen: Effect


@dataclass(frozen=True, slots=True)
class EffectMissed(Event):
    """A change was overtaken by another before its effect could be measured."""

    decided_step: int
    why: str


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """The driving controller said what it wants; or the loop held without asking it, and says why."""

    controller: str
    decision: Decision
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Withheld(Event):
    """The loop allowed less than the controller wanted: by its limits, or because that change is under way already."""

    wanted: Decision
    allowed: Decision
    why: str


@dataclass(frozen=True, slots=True)
class Acted(Event):
    """The actuator accepted a change."""

    decision: Decision
    outcome: ChangeOutcome


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """The actuator did not accept a change, or failed; things are as they were."""

    decision: Decision
    why: str


@dataclass(frozen=True, slots=True)
class Advised(Event):
    """A change that would have been made, were this not a dry run."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class ShadowDecided(Event):
    """A controller in the shadow said what it would have done; nothing follows from it."""

    shadow: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class ShadowFailed(Event):
    """A controller in the shadow raised an error; the loop went on without its opinion."""

    shadow: str
    error: str


@dataclass(frozen=True, slots=True)
class Stepped(Event):
    """The step is over, and this is what the loop settled on."""

    decision: Decision


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

    ``failed`` says that it ended with an error. ``noticed`` are the unplanned events that the observer saw.
    """

    observations: tuple[Observation, ...] = ()
    ended: str | None = None
    failed: bool = False
    noticed: tuple[tuple[Notice, str], ...] = ()


class Observer(Protocol):
    """Polls a running query; a poll may raise when figures cannot be had."""

    def poll(self) -> Poll: ...
