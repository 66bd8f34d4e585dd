"""The work ahead of a subquery: what arrives, what its windows will hold, and what waits already.

The model of a join is r_L·|W_R| + r_R·|W_L| comparisons per second (STRETCH, section 8.5, after its reference 22), summed
over all ordered pairs of inputs. Work is in comparisons for joins and in tuples for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.control.observation import Observation, WindowInput


@dataclass(frozen=True, slots=True)
class Work:
    """Work per second: now, at the worst moment of the horizon, and on top of it while pending tuples are caught up with.

    `tuples_per_second` is what would be completed if all of it were done.
    """

    unit: str
    now: float
    predicted: float
    pending: float
    tuples_per_second: float

    @property
    def greatest(self) -> float:
        return self.predicted + self.pending

    def __str__(self) -> str:
        return f"{self.now:.4g} {self.unit}/s now, {self.predicted:.4g} predicted, {self.pending:.4g} to catch up"


def held_ahead(window: WindowInput, ahead_seconds: float) -> float:
    """How many tuples an input's window holds some time ahead, if its rate stays and what it holds is of even age.

    >>> held_ahead(WindowInput(rate=10, held=0, window_seconds=60), 30)
    300.0
    """
    passed = min(ahead_seconds / window.window_seconds, 1.0) if window.window_seconds > 0 else 1.0
    return window.held * (1 - passed) + window.rate * window.window_seconds * passed


def comparisons_ahead(inputs: tuple[WindowInput, ...], ahead_seconds: float) -> tuple[float, float]:
    """Comparisons per second some time ahead, and comparisons per tuple, each tuple against every other input's window.

    Tuples are of the inputs in the proportion of their rates, or of all alike if nothing arrives.
    """
    held = [held_ahead(window, ahead_seconds) for window in inputs]
    against = [sum(held) - own for own in held]
    rate = sum(window.rate for window in inputs)
    if rate == 0:
        return 0.0, sum(against) / len(inputs)
    per_second = sum(window.rate * others for window, others in zip(inputs, against, strict=True))
    return per_second, per_second / rate


def join_work(observation: Observation, horizon_seconds: float, drain_seconds: float) -> Work:
    """The work of a join: the greatest until the horizon, and every pending tuple as dear as at the dearest moment.

    Work changes linearly up to the end of each window, so only those moments and the horizon have to be looked at.
    """
    inputs = observation.window_inputs or ()
    moments = {0.0, horizon_seconds, *(min(window.window_seconds, horizon_seconds) for window in inputs)}
    predicted, per_tuple = max(comparisons_ahead(inputs, moment) for moment in moments)
    catching_up = _waiting(observation) / drain_seconds
    rate = sum(window.rate for window in inputs)
    now, _ = comparisons_ahead(inputs, 0.0)
    return Work("comparisons", now, predicted, per_tuple * catching_up, rate + catching_up)


def tuple_work(observation: Observation, drain_seconds: float) -> Work:
    """The work of a subquery without windowed inputs: as many tuples as are offered, and those that wait."""
    offered, catching_up = observation.offered or 0.0, _waiting(observation) / drain_seconds
    return Work("tuples", offered, offered, catching_up, offered + catching_up)


def _waiting(observation: Observation) -> float:
    """The backlog, or none where it is not known."""
    return 0.0 if observation.backlog is None or observation.missing(("backlog",)) else observation.backlog
