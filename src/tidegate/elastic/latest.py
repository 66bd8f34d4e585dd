"""The last thing known of a subquery."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.control.decision import Decision
from tidegate.control.observation import Observation


@dataclass(frozen=True, slots=True)
class Latest:
    """What was observed last, what the loop settled on, and how many changes there were."""

    observation: Observation
    decision: Decision | None = None
    changes: int = 0
