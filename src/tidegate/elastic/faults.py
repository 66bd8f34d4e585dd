"""Noticing what nobody decided: requests that are not fulfilled, instances that are lost, figures that stop coming.

Pure: times come with what is seen. A fault is told once, and its end once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.control.decision import Decision
from tidegate.control.events import Notice
from tidegate.control.observation import Observation


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request may take, and how long nothing may be heard of a query, before that is worth telling."""

    overdue_seconds: float = 60.0
    silent_seconds: float = 60.0


Told = list[tuple[Notice, str]]


class FaultWatch:
    """Watches one subquery. Call `asked` for each change that was accepted, `seen` for each observation."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._asked: tuple[int, float] | None = None
        self._overdue = False
        self._instances: int | None = None
        self._heard_seconds: float | None = None
        self._silent = False

    def asked(self, decision: Decision, seconds: float) -> None:
        """A change was accepted at this time."""
        self._asked, self._overdue = (decision.instances, seconds), False

    def seen(self, observation: Observation, at_seconds: float) -> Told:
        """What an observation says about requests and about instances that came or went by themselves.

        ``at_seconds`` is the time of the look, by the clock that `unheard` goes by.
        """
        now, seconds, told = observation.instances, observation.time_seconds, Told()
        if self._silent and self._heard_seconds is not None:
            told.append((Notice.HEARD, f"observed again after {at_seconds - self._heard_seconds:.0f} s"))
        self._silent, self._heard_seconds = False, at_seconds
        before, self._instances = self._instances, now
        if self._asked is None:
            if before is not None and now != before:
                told.append(_moved(before, now, "and nobody asked for that"))
            return told
        wanted, since = self._asked
        if now == wanted:
            if self._overdue:
                told.append(
                    (Notice.REQUEST_FULFILLED, f"{wanted} are there, {seconds - since:.0f} s after the request")
                )
            self._asked, self._overdue = None, False
        elif before is not None and (now - before) * (wanted - before) < 0:
            told.append(_moved(before, now, f"while {wanted} were asked for"))
        elif seconds - since >= self._patience.overdue_seconds and not self._overdue:
            self._overdue = True
            why = f"{wanted} were asked for {seconds - since:.0f} s ago and there are {now}"
            told.append((Notice.REQUEST_OVERDUE, f"{why}; the query goes on with what there is"))
        return told

    def unheard(self, seconds: float, why: str) -> Told:
        """Nothing was observed until this time, for this reason if one is known."""
        if self._heard_seconds is None:
            self._heard_seconds = seconds
        if self._silent or seconds - self._heard_seconds < self._patience.silent_seconds:
            return []
        self._silent = True
        text = f"nothing could be observed for {seconds - self._heard_seconds:.0f} s"
        return [(Notice.SILENT, f"{text}{f': {why}' if why else ''}; the query is left as it is")]


def _moved(before: int, now: int, how: str) -> tuple[Notice, str]:
    kind = Notice.INSTANCES_LOST if now < before else Notice.INSTANCES_CAME
    return kind, f"{before} became {now}, {how}"
