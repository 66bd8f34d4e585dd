"""From the events of one step to the rows of the ledger; pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.control.decision import Action, Alternative, Decision
from tidegate.control.events import (
    Acted,
    Advised,
    Decided,
    EffectMissed,
    EffectSeen,
    Event,
    Observed,
    Reading,
    Refused,
    ShadowDecided,
    ShadowFailed,
    Stepped,
    Withheld,
)
from tidegate.control.observation import Observation
from tidegate.errors import InternalError

Row = dict[str, str | int | float | None]


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision and what was rejected for it."""

    row: Row
    rejected: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRows:
    """What one step adds: its observation, the driver's decision first among the decisions, and effects of earlier steps."""

    subquery: str
    step: int
    observation: Row
    decisions: tuple[DecisionRow, ...]
    effects: tuple[tuple[int, Row], ...]

    @property
    def acted(self) -> bool:
        """Whether an effect is to be expected."""
        return self.decisions[0].row["result"] == "acted"


def step_rows(events: Sequence[Event]) -> StepRows:
    """The rows of a whole step, from `Observed` to `Stepped`."""
    observed, decided, stepped = None, None, None
    result: Row = {"result": "held"}
    shadows: list[DecisionRow] = []
    effects: list[tuple[int, Row]] = []
    for event in events:
        match event:
            case Observed():
                observed = event.observation
            case Decided():
                decided = event
            case Withheld(why=why):
                result["withheld"] = why
            case Acted(outcome=outcome):
                taken = {"takes_seconds": outcome.seconds, "state_bytes_moved": outcome.state_bytes_moved}
                result |= {"result": "acted", "note": outcome.note or None, **taken}
            case Refused(why=why):
                result |= {"result": "refused", "note": why}
            case Advised():
                result |= {"result": "advised"}
            case ShadowDecided(shadow=shadow, decision=decision, asked=asked):
                role: Row = {"role": "shadow", "controller": shadow, "asked": asked, "result": "opinion"}
                shadows.append(DecisionRow(role | _wanted(decision) | _settled(decision), decision.rejected))
            case ShadowFailed(shadow=shadow, error=error):
                shadows.append(DecisionRow(_failed(shadow, error, observed.instances if observed else 0)))
            case EffectSeen():
                effects.append((event.decided_step, _effect(event.time_seconds, event.before, event.seen)))
            case EffectMissed():
                effects.append((event.decided_step, {"time_seconds": event.time_seconds, "missed": event.why}))
            case Stepped():
                stepped = event
            case _:
                raise InternalError(f"the ledger does not know the event {type(event).__name__}")
    if observed is None or decided is None or stepped is None:
        raise InternalError("a step must have been observed, decided and ended before it is written")
    role = {"role": "driver", "controller": decided.controller, "asked": decided.asked}
    driver = DecisionRow(
        role | _wanted(decided.decision) | _settled(stepped.decision) | result, stepped.decision.rejected
    )
    summary = {"step": stepped.step, **summarise(observed)}
    return StepRows(stepped.subquery, stepped.step, summary, (driver, *shadows), tuple(effects))


def summarise(observation: Observation) -> Row:
    """An observation without its lists: of the busy shares and of the shards, the extremes and the sums."""
    seen = observation
    row: Row = {
        "subquery": seen.subquery,
        "time_seconds": seen.time_seconds,
        "period_seconds": seen.period_seconds,
        "instances": int(seen.instances),
        "offered": seen.offered,
        "admitted": seen.admitted,
        "processed": seen.processed,
        "demand": seen.demand,
        "backlog": seen.backlog,
        "congestion": seen.congestion,
        "watermark_lag_seconds": seen.watermark_lag_seconds,
        "latency_seconds": seen.latency_seconds,
    }
    if seen.busy:
        busy = np.asarray(seen.busy)
        row |= {"utilisation": float(busy.mean()), "deviation": float(busy.std())}
        row |= {"least_busy": float(busy.min()), "most_busy": float(busy.max())}
    if seen.shard_loads:
        row |= {"shards": len(seen.shard_loads), "largest_shard_load": float(max(seen.shard_loads))}
    if seen.shard_state_bytes:
        row |= {"shards": len(seen.shard_state_bytes), "state_bytes": int(sum(seen.shard_state_bytes))}
    return row


def _wanted(decision: Decision) -> Row:
    return {"wanted_action": decision.action.value, "wanted_instances": int(decision.instances)}


def _settled(decision: Decision) -> Row:
    expected = decision.expected
    return {
        "action": decision.action.value,
        "instances": int(decision.instances),
        "why": decision.why,
        "mapping": None if decision.mapping is None else json.dumps([int(instance) for instance in decision.mapping]),
        "missing": json.dumps(decision.missing) if decision.missing else None,
        "expected_utilisation": expected.utilisation,
        "expected_latency_seconds": expected.latency_seconds,
        "expected_processed": expected.processed,
        "expected_deviation": expected.deviation,
    }


def _failed(shadow: str, error: str, instances: int) -> Row:
    nothing = Decision("", Action.HOLD, instances, "")
    row: Row = {"role": "shadow", "controller": shadow, "asked": True, "result": "failed", "note": error}
    return row | _wanted(nothing) | _settled(nothing)


def _effect(time_seconds: float, before: Reading, seen: Reading) -> Row:
    row: Row = {"time_seconds": time_seconds}
    for prefix, values in (("before", before), ("seen", seen)):
        row[f"{prefix}_utilisation"] = values.utilisation
        row[f"{prefix}_latency_seconds"] = values.latency_seconds
        row[f"{prefix}_processed"] = values.processed
        row[f"{prefix}_deviation"] = values.deviation
    return row
