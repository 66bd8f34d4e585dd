"""The seams of the control plane: decisions, the controllers that take them, and the actuators that carry them out."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Protocol, runtime_checkable

from tidegate.control.observation import Observation
from tidegate.errors import UserError


class Action(StrEnum):
    """The three reconfigurations, and leaving things as they are."""

    PROVISION = "provision"
    DECOMMISSION = "decommission"
    BALANCE = "balance"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change leads to, as it is expected or as it was measured; the ledger sets one beside the other.

    The deviation is the population standard deviation of the instances' busy shares (StreamCloud, figure 12).
    """

    utilisation: float | None = None
    latency_seconds: float | None = None
    processed: float | None = None
    deviation: float | None = None


NOTHING_EXPECTED = Effect()


@dataclass(frozen=True, slots=True)
class Alternative:
    """Something else that could have been decided, and why it was not."""

    instances: int
    why_not: str


@dataclass(frozen=True, slots=True)
class Decision:
    """How many instances `subquery` should have and, where it matters, which shard goes to which of them.

    `why` is a sentence with the numbers that led here. `mapping` is None where the runtime may choose. `missing` names
    the observations that were needed and absent; such a decision always holds.
    """

    subquery: str
    action: Action
    instances: int
    why: str
    mapping: tuple[int, ...] | None = None
    expected: Effect = NOTHING_EXPECTED
    rejected: tuple[Alternative, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether anything is to be changed."""
        return self.action is not Action.HOLD


def resize(
    observation: Observation,
    after: int,
    why: str,
    *,
    mapping: tuple[int, ...] | None = None,
    expected: Effect = NOTHING_EXPECTED,
    rejected: tuple[Alternative, ...] = (),
) -> Decision:
    """The decision to go to `after` instances: provision, decommission, or hold if there are as many already."""
    before = observation.instances
    action = Action.PROVISION if after > before else Action.DECOMMISSION if after < before else Action.HOLD
    return Decision(observation.subquery, action, after, why, mapping, expected, rejected)


def hold(
    observation: Observation, why: str = "", *, missing: tuple[str, ...] = (), rejected: tuple[Alternative, ...] = ()
) -> Decision:
    """The decision to leave things as they are; without a reason given, because of the observations that are missing."""
    why = why or f"not known: {', '.join(missing)}"
    return Decision(observation.subquery, Action.HOLD, observation.instances, why, rejected=rejected, missing=missing)


@dataclass(frozen=True, slots=True)
class Limits:
    """How few and how many instances a subquery may have; the same for every controller.

    Where not every number between them can be had, ``sizes`` are those that can, from ``least`` to ``most``.

    >>> [Limits(1, 4, sizes=(1, 2, 4)).clamp(wanted) for wanted in (0, 2, 3, 9)]
    [1, 2, 4, 4]
    """

    least: int = 1
    most: int = 32
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise UserError(
                f"limits: least ({self.least}) and most ({self.most}) must satisfy 1 ≤ least ≤ most; "
                "give the range of instances the subquery may have"
            )
        rising = all(after > before for before, after in pairwise(self.sizes))
        if self.sizes and not (rising and (self.sizes[0], self.sizes[-1]) == (self.least, self.most)):
            raise UserError(f"limits: sizes {self.sizes} must rise from least ({self.least}) to most ({self.most})")

    def clamp(self, instances: int) -> int:
        """The number within the limits that is nearest to `instances`; of sizes, the next that is enough."""
        within = min(max(instances, self.least), self.most)
        return within if not self.sizes else self.sizes[bisect_left(self.sizes, within)]

    def __str__(self) -> str:
        return ", ".join(map(str, self.sizes)) if self.sizes else f"{self.least} to {self.most}"


def require(holds: bool, controller: str, setting: str, value: object, rule: str) -> None:
    """Refuse a controller's setting that breaks its rule."""
    if not holds:
        raise UserError(f"{controller}: {setting} must be {rule}, got {value!r}")


class Deciding(Protocol):
    """A controller at work on one subquery. It may remember; given the same observations it decides the same."""

    def decide(self, observation: Observation) -> Decision: ...


class Controller(Protocol):
    """A controller's settings: a frozen value, validated when built, that starts any number of independent runs."""

    @property
    def name(self) -> str:
        """The name it has in rules, on the command line and in the ledger."""
        ...

    def start(self, limits: Limits) -> Deciding: ...


@dataclass(frozen=True, slots=True)
class MoveCost:
    """What a move costs, as it is estimated or as it was measured.

    ``delay_seconds`` is how much later results leave because of it, at the worst moment; ``in_force_seconds`` the time until
    the new owners do all of the work.
    """

    delay_seconds: float
    in_force_seconds: float
    bytes_read: int = 0
    bytes_written: int = 0
    tuples_doubled: int = 0


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """An actuator's answer: whether the change was accepted, and when it is in force if that is known.

    ``measured`` is what the move of shards cost, where that is known at once.
    """

    accepted: bool
    note: str = ""
    seconds: float | None = None
    state_bytes_moved: int | None = None
    measured: MoveCost | None = None


@runtime_checkable
class MovesShards(Protocol):
    """An actuator that is told by which protocol shards change owners, where that is planned."""

    def move(self, subquery: str, mapping: tuple[int, ...], protocol: str) -> ChangeOutcome: ...


class Actuator(Protocol):
    """Gives a subquery more or fewer instances: the simulator, threads in a process, Spark's executors."""

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome: ...
