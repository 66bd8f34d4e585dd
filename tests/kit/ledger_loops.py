"""Loops to fill a ledger with: controllers that swing, hold and fail, and what they see."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidegate.control.controller import Action, Alternative, ChangeOutcome, Decision, Effect, Limits, hold
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule
from tidegate.telemetry.ledger import Ledger


@dataclass(frozen=True)
class Swinging:
    """Goes up at even steps and down at odd ones, with many alternatives, so that a step has many rows."""

    name: str = "swinging"
    alternatives: int = 20

    def start(self, limits: Limits) -> Swinging:
        return self

    def decide(self, observation: Observation) -> Decision:
        up = observation.instances == 1
        rejected = tuple(Alternative(count, f"{count} would be too many") for count in range(3, 3 + self.alternatives))
        return Decision(
            observation.subquery,
            Action.PROVISION if up else Action.DECOMMISSION,
            2 if up else 1,
            f"busy {observation.utilisation:.0%}",
            expected=Effect(utilisation=0.5),
            rejected=rejected,
        )


@dataclass(frozen=True)
class Failing:
    name: str = "failing"

    def start(self, limits: Limits) -> Failing:
        return self

    def decide(self, observation: Observation) -> Decision:
        raise ZeroDivisionError("no rate")


@dataclass(frozen=True)
class Holding:
    name: str = "holding"

    def start(self, limits: Limits) -> Holding:
        return self

    def decide(self, observation: Observation) -> Decision:
        return hold(observation, "content")


class Machine:
    def __init__(self) -> None:
        self.instances = 1

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        self.instances = instances
        return ChangeOutcome(True, "", 0.0, 4_096)


class Endless:
    """A loop that makes up its observations; called with the number of the step."""

    def __init__(self, ledger: Ledger) -> None:
        self.machine = Machine()
        self.loop = ControlLoop(Rule(Swinging(), Limits(1, 40), shadows=(Holding(),)), self.machine, ledger)

    def __call__(self, step: int) -> None:
        count = self.machine.instances
        self.loop.step(Observation("q", 5.0 * (step + 1), 5.0, count, busy=(1.0 / count,) * count, processed=100.0))


def observed(time: float, instances: int = 1, subquery: str = "q", busy: float = 1.0) -> Observation:
    return Observation(
        subquery,
        time,
        5.0,
        instances,
        offered=200.0,
        processed=150.0,
        busy=(busy,) * instances,
        shard_loads=(100.0, 50.0),
        shard_state_bytes=(1_000, 24),
        latency_seconds=0.25,
    )


def column(table: pa.Table, name: str) -> list[object]:
    values: list[object] = table[name].to_pylist()
    return values
