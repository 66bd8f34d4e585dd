"""What happened in a control loop, as typed values in the order in which it happened.

One step of a loop records `Observed`, then what became of earlier changes (`EffectSeen`, `EffectMissed`), then `Decided`,
then at most one of `Acted`, `Refused` and `Advised`, preceded by `Withheld` where the loop cut the decision down, then
what the shadows would have done, and at last `Stepped`. Whoever writes events down may treat everything up to `Stepped` as
one transaction. `Noticed` stands outside of steps: it comes when something happens that nobody decided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from tidegate.control.controller import Outcome
from tidegate.control.decision import Decision, Expectation
from tidegate.control.observation import Observation


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured of the things a decision may expect something of."""

    utilisation: float | None = None
    latency_seconds: float | None = None
    processed: float | None = None
    deviation: float | None = None


def reading(observation: Observation) -> Reading:
    """What an observation says about the things that can be expected; absent where it does not say.

    The deviation is that of StreamCloud's figure 12: the population standard deviation of the busy shares.
    """
    utilisation = observation.utilisation
    deviation = None
    if observation.busy and utilisation is not None:
        deviation = math.sqrt(sum((share - utilisation) ** 2 for share in observation.busy) / len(observation.busy))
    return Reading(utilisation, observation.latency_seconds, observation.processed, deviation)


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
    before: Reading
    expected: Expectation
    seen: Reading


@dataclass(frozen=True, slots=True)
class EffectMissed(Event):
    """A change was overtaken by another before its effect could be told."""

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
    outcome: Outcome


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
    asked: bool = True


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
    """What can happen to a query that nobody decided."""

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
    """Something happened that nobody decided; `step` is the last one before it, -1 before the first."""

    notice: Notice
    text: str
