"""What each runtime observes: the table of the guide, from what the runtimes declare."""

from __future__ import annotations

from dataclasses import fields

from tidegate.control.observation import Observation
from tidegate.runtime.local.observed import OBSERVED as IN_PROCESS
from tidegate.runtime.spark.observed import OBSERVED as ON_SPARK

GIVEN = ("subquery", "time_seconds", "period_seconds", "instances")
"""What no observation is without."""
OPTIONAL = tuple(field.name for field in fields(Observation) if field.name not in GIVEN)


def observed_table() -> str:
    """The table in Markdown, as the guide shows it."""
    lines = ["| observed | in process | on Spark |", "|---|---|---|"]
    lines += [f"| `{name}` | {IN_PROCESS.get(name, '–')} | {ON_SPARK.get(name, '–')} |" for name in OPTIONAL]
    return "\n".join(lines)


def present(observation: Observation) -> set[str]:
    """The optional fields that an observation has."""
    values = {name: getattr(observation, name) for name in OPTIONAL}
    return {name for name, value in values.items() if value is not None and value is not False}
