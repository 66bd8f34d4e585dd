"""What a controller wants done, why, what it expects of it, and what it considered and rejected."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """The three reconfigurations, and leaving things as they are."""

    PROVISION = "provision"
    DECOMMISSION = "decommission"
    BALANCE = "balance"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What should be observed once the decision has taken effect; the ledger sets it beside what was observed."""

    utilisation: float | None = None
    latency_seconds: float | None = None
    processed: float | None = None
    deviation: float | None = None


NOTHING_EXPECTED = Expectation()


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
    expected: Expectation = NOTHING_EXPECTED
    rejected: tuple[Alternative, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether something is to be done."""
        return self.action is not Action.HOLD


def resize(
    subquery: str,
    before: int,
    after: int,
    why: str,
    *,
    mapping: tuple[int, ...] | None = None,
    expected: Expectation = NOTHING_EXPECTED,
    rejected: tuple[Alternative, ...] = (),
) -> Decision:
    """The decision to go from `before` to `after` instances: provision, decommission, or hold if they are equal."""
    action = Action.PROVISION if after > before else Action.DECOMMISSION if after < before else Action.HOLD
    return Decision(subquery, action, after, why, mapping, expected, rejected)


def hold(
    subquery: str, instances: int, why: str, *, missing: tuple[str, ...] = (), rejected: tuple[Alternative, ...] = ()
) -> Decision:
    """The decision to leave things as they are."""
    return Decision(subquery, Action.HOLD, instances, why, rejected=rejected, missing=missing)


def hold_without(missing: tuple[str, ...], subquery: str, instances: int) -> Decision:
    """The decision to leave things as they are because observations that are needed are missing."""
    return hold(subquery, instances, f"not known: {', '.join(missing)}", missing=missing)
