"""The planner: which protocol carries out a move, from what each would cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tidegate.control.controller import Decision, MoveCost
from tidegate.control.observation import Observation
from tidegate.control.protocols.move import MoveProtocol, ShardMove, move_of
from tidegate.errors import UserError, choices

NEW_WEIGHT = 0.5
"""The weight of the last move among those before it."""
MOST_OFF = 10.0
"""How many times an estimate may be corrected; a move that took more met something else."""
NOTICEABLE_SECONDS = 0.001
"""Times below this say nothing about how good an estimate was."""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The protocol that was chosen, the move, what it should cost, and why each of the others was not."""

    protocol: str
    move: ShardMove
    estimate: MoveCost
    why: str
    rejected: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MovePlanner:
    """Picks the cheapest of the protocols that can carry out a move in time.

    place
        what is the same for all moves there: windows, files, speeds, whether memory is shared.
    places
        the same of single subqueries, by their names.
    negligible_seconds
        delays that are shorter are none.
    deadline_seconds
        when the new owners must do all of the work; None if that does not matter.
    protocol
        the name of the one to take, whatever it costs.

    Cheapest is what delays results least, then what is in force soonest, reads and writes least and doubles fewest tuples.
    Where none is in time, the one that is in force soonest is taken, and the plan says so. `corrections` are what measured
    moves have told about estimates, times of each protocol: `learned` gives a planner with more of them.
    """

    protocols: tuple[MoveProtocol, ...]
    place: ShardMove = ShardMove(0)  # noqa: RUF009 - a frozen value
    deadline_seconds: float | None = None
    protocol: str | None = None
    corrections: tuple[tuple[str, float, float], ...] = ()
    places: tuple[tuple[str, ShardMove], ...] = ()
    negligible_seconds: float = NOTICEABLE_SECONDS

    def __post_init__(self) -> None:
        names = [each.name for each in self.protocols]
        if self.protocol is not None and self.protocol not in names:
            raise UserError(f"protocol {self.protocol!r} cannot be had here; choose one of {choices(names)}")
        if self.deadline_seconds is not None and not self.deadline_seconds > 0:
            raise UserError(f"deadline_seconds is above 0, or None for no deadline; got {self.deadline_seconds}")

    def plan_of(self, observation: Observation, decision: Decision) -> MovePlan | None:
        """The plan for what a decision moves; None where nothing changes its owner."""
        move = move_of(observation, decision, dict(self.places).get(observation.subquery, self.place))
        return None if move is None else self.plan(move)

    def plan(self, move: ShardMove) -> MovePlan:
        """The plan for a move; refused with the reasons where no protocol can carry it out."""
        refusals = [(each.name, refusal) for each in self.protocols if (refusal := each.refused(move)) is not None]
        refused = dict(refusals)
        able = [(each.name, self.estimate(each, move)) for each in self.protocols if each.name not in refused]
        if self.protocol is not None:
            if self.protocol in refused:
                raise UserError(f"protocol {self.protocol!r} cannot carry out this move: {refused[self.protocol]}")
            rest = [(name, f"{self.protocol} was asked for") for name, _ in able if name != self.protocol]
            return MovePlan(self.protocol, move, dict(able)[self.protocol], "asked for", (*refusals, *rest))
        if not able:
            told = "; ".join(f"{name}: {why}" for name, why in refusals)
            raise UserError(f"no protocol can carry out this move of {move.shards} shards: {told}")
        deadline = self.deadline_seconds
        timely = [each for each in able if deadline is None or each[1].in_force_seconds <= deadline]
        chosen, cost = min(timely, key=self._price) if timely else min(able, key=lambda each: each[1].in_force_seconds)
        why = "the least delay" if timely else f"none is in force within {deadline:g} s, this one soonest"
        rest = [(name, _why_not(other, cost, deadline)) for name, other in able if name != chosen]
        return MovePlan(chosen, move, cost, why, (*refusals, *rest))

    def estimate(self, protocol: MoveProtocol, move: ShardMove) -> MoveCost:
        """What a protocol would cost, corrected by what it took before."""
        cost = protocol.estimate(move)
        for name, delay, in_force in self.corrections:
            if name == protocol.name:
                return replace(
                    cost,
                    delay_seconds=cost.delay_seconds * delay,
                    in_force_seconds=cost.in_force_seconds * in_force,
                )
        return cost

    def _price(self, each: tuple[str, MoveCost]) -> tuple[float, ...]:
        cost = each[1]
        delay = cost.delay_seconds if cost.delay_seconds >= self.negligible_seconds else 0.0
        return delay, cost.in_force_seconds, cost.bytes_read + cost.bytes_written, cost.tuples_doubled

    def learned(self, plan: MovePlan, measured: MoveCost) -> MovePlanner:
        """The planner that also knows what a planned move took."""
        before = next((each[1:] for each in self.corrections if each[0] == plan.protocol), (1.0, 1.0))
        estimates = plan.estimate.delay_seconds, plan.estimate.in_force_seconds
        took = measured.delay_seconds, measured.in_force_seconds
        delay, in_force = (_corrected(*each) for each in zip(before, estimates, took, strict=True))
        kept = [each for each in self.corrections if each[0] != plan.protocol]
        return replace(self, corrections=(*kept, (plan.protocol, delay, in_force)))


def _corrected(before: float, estimated: float, took: float) -> float:
    if min(estimated, took) < NOTICEABLE_SECONDS:
        return before
    factor = before * math.pow(took / estimated, NEW_WEIGHT)
    return min(max(factor, 1 / MOST_OFF), MOST_OFF)


def _why_not(other: MoveCost, chosen: MoveCost, deadline: float | None) -> str:
    if deadline is not None and other.in_force_seconds > deadline:
        return f"in force after {other.in_force_seconds:.3g} s, later than {deadline:g} s"
    if other.delay_seconds > chosen.delay_seconds:
        return f"a delay of {other.delay_seconds:.3g} s instead of {chosen.delay_seconds:.3g} s"
    if other.in_force_seconds > chosen.in_force_seconds:
        return f"in force after {other.in_force_seconds:.3g} s instead of {chosen.in_force_seconds:.3g} s"
    return f"{other.bytes_read + other.bytes_written:,} bytes and {other.tuples_doubled:,} tuples for the same delay"
