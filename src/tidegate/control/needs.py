"""Which controller needs which observations: the table that the loop, the tests and the guide go by."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.control.observation import OBSERVED
from tidegate.errors import InternalError


@dataclass(frozen=True, slots=True)
class Needs:
    """The fields of an observation without which a controller holds, and those it makes use of where they are there."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = (*self.required, *self.optional)
        unknown = [name for name in named if name not in OBSERVED]
        if unknown or len(set(named)) < len(named):
            raise InternalError(f"needs {named}: each must be named once and be one of {OBSERVED}")


NEEDS: dict[str, Needs] = {
    "thresholds": Needs(("busy",), ("processed", "mapping", "shard_loads", "shard_state_bytes")),
    "saso": Needs(("congestion", "processed")),
    "queueing": Needs(("network", "network_arrival_rate")),
    "predictive": Needs(("window_inputs", "comparisons", "busy"), ("backlog",)),
    "ds2": Needs(("demand", "processed", "busy")),
}
"""The controllers by name. One that is not listed is asked whatever is missing, and has to hold by itself."""


def needs_of(controller: str) -> Needs:
    """What a controller needs; nothing where the table does not know it."""
    return NEEDS.get(controller, Needs())
