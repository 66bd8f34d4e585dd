"""What an observer sees when it looks: observations, nothing new, or the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate.control.events import Notice
from tidegate.control.observation import Observation


@dataclass(frozen=True, slots=True)
class Look:
    """One look at what runs: one observation of each subquery, none if there is nothing new, or why it has ended.

    ``failed`` says that it ended with an error. ``noticed`` is what the observer saw happen that nobody decided.
    """

    observations: tuple[Observation, ...] = ()
    ended: str | None = None
    failed: bool = False
    noticed: tuple[tuple[Notice, str], ...] = ()


class Observer(Protocol):
    """Whatever can look at a running query; a look may raise when figures cannot be had."""

    def look(self) -> Look: ...
