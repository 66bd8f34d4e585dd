"""Which controller needs which observations: the table that the loop, the tests and the guide go by."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.control.observation import OBSERVED, Observation
from tidegate.errors import InternalError


@dataclass(frozen=True, slots=True)
class Needs:
    """The fields of an observation without which a controller holds, and those it makes use of where they are there.

    Where it can do with one of several groups of fields, `either` has these groups, the preferred one last.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    either: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        named = (*self.required, *self.optional, *(name for group in self.either for name in group))
        unknown = [name for name in named if name not in OBSERVED]
        if unknown or len(set(named)) < len(named):
            raise InternalError(f"needs {named}: each must be named once and be one of {OBSERVED}")

    def missing(self, observation: Observation) -> tuple[str, ...]:
        """The fields that an observation lacks; of several groups, the one that lacks least counts."""
        groups = [observation.missing(group) for group in self.either]
        return (*observation.missing(self.required), *min(groups, key=len, default=()))


NEEDS: dict[str, Needs] = {
    "steady": Needs(
        ("processed", "busy"),
        ("backlog", "congestion", "admitted", "mapping", "shard_loads", "window_inputs"),
        (("offered",), ("demand",)),
    ),
    "thresholds": Needs(
        ("busy",), ("processed", "demand", "offered", "backlog", "mapping", "shard_loads", "shard_state_bytes")
    ),
    "saso": Needs(("congestion", "processed"), ("backlog",)),
    "queueing": Needs(("network", "network_arrival_rate"), ("demand", "backlog")),
    "predictive": Needs(("busy",), ("backlog",), (("offered", "processed"), ("window_inputs", "comparisons"))),
    "ds2": Needs(("demand", "processed", "busy"), ("offered", "admitted", "backlog")),
}
"""The controllers by name. One that is not listed is asked whatever is missing, and has to hold by itself."""


def needs_of(controller: str) -> Needs:
    """What a controller needs; nothing where the table does not know it."""
    return NEEDS.get(controller, Needs())


def needs_table() -> str:
    """The table in Markdown, as the guide shows it."""
    lines = ["| controller | needs | makes use of |", "|---|---|---|"]
    for name, needs in NEEDS.items():
        groups = " or ".join(" and ".join(f"`{field}`" for field in group) for group in needs.either)
        required = ", ".join([*(f"`{field}`" for field in needs.required), *([f"either {groups}"] if groups else [])])
        lines.append(f"| `{name}` | {required} | {', '.join(f'`{field}`' for field in needs.optional) or '–'} |")
    return "\n".join(lines)
