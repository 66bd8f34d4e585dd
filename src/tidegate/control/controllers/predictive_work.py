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


@dataclass(frozen=True, slots=True)
class Filling:
    """One input's window on its way to what it will hold if the rate stays: `rate · window_seconds`.

    `leaving_rate` is how many tuples per second grow too old.

    >>> Filling(WindowInput(rate=10, held=0, window_seconds=60), leaving_rate=0).held_ahead(30)
    300
    """

    window: WindowInput
    leaving_rate: float

    @property
    def full(self) -> float:
        return self.window.rate * self.window.window_seconds

    @property
    def full_after_seconds(self) -> float:
        """When the window holds what it will hold, at the latest when all it holds now is gone."""
        growth = self.window.rate - self.leaving_rate
        missing = self.full - self.window.held
        return min(missing / growth, self.window.window_seconds) if missing * growth > 0 else 0.0

    def held_ahead(self, ahead_seconds: float) -> float:
        if ahead_seconds >= self.full_after_seconds:
            return self.full
        return self.window.held + (self.window.rate - self.leaving_rate) * ahead_seconds


def filling(window: WindowInput, before: WindowInput | None, elapsed_seconds: float) -> Filling:
    """How a window fills: what leaves it is measured against what it held `elapsed_seconds` before.

    Without that, or where it would lead away from the full window, tuples are taken to be of even age.
    """
    even = window.held / window.window_seconds if window.window_seconds > 0 else 0.0
    if before is None or elapsed_seconds <= 0:
        return Filling(window, even)
    growth = (window.held - before.held) / elapsed_seconds
    towards = growth * (window.rate * window.window_seconds - window.held) > 0
    return Filling(window, max(window.rate - growth, 0.0) if towards else even)


def comparisons_ahead(inputs: tuple[Filling, ...], ahead_seconds: float) -> tuple[float, float]:
    """Comparisons per second some time ahead, and comparisons per tuple, each tuple against every other input's window.

    Tuples are of the inputs in the proportion of their rates, or of all alike if nothing arrives.
    """
    held = [each.held_ahead(ahead_seconds) for each in inputs]
    against = [sum(held) - own for own in held]
    rate = sum(each.window.rate for each in inputs)
    if rate == 0:
        return 0.0, sum(against) / len(inputs)
    per_second = sum(each.window.rate * others for each, others in zip(inputs, against, strict=True))
    return per_second, per_second / rate


def join_work(
    observation: Observation, before: Observation | None, horizon_seconds: float, drain_seconds: float
) -> Work:
    """The work of a join: the greatest until the horizon, and every pending tuple as dear as at the dearest moment.

    `before` is an earlier observation of the same join, if there is one. Work changes linearly until a window is full,
    so only those moments, now and the horizon have to be looked at.
    """
    windows = observation.window_inputs or ()
    earlier = (before.window_inputs or ()) if before else ()
    elapsed_seconds = observation.time_seconds - before.time_seconds if before else 0.0
    known = earlier if len(earlier) == len(windows) else (None,) * len(windows)
    inputs = tuple(filling(window, past, elapsed_seconds) for window, past in zip(windows, known, strict=True))
    moments = {0.0, horizon_seconds, *(min(each.full_after_seconds, horizon_seconds) for each in inputs)}
    predicted, per_tuple = max(comparisons_ahead(inputs, moment) for moment in moments)
    catching_up = _waiting(observation) / drain_seconds
    rate = sum(window.rate for window in windows)
    now, _ = comparisons_ahead(inputs, 0.0)
    return Work("comparisons", now, predicted, per_tuple * catching_up, rate + catching_up)


def tuple_work(observation: Observation, drain_seconds: float) -> Work:
    """The work of a subquery without windowed inputs: as many tuples as are offered, and those that wait."""
    offered, catching_up = observation.offered or 0.0, _waiting(observation) / drain_seconds
    return Work("tuples", offered, offered, catching_up, offered + catching_up)


def _waiting(observation: Observation) -> float:
    """The backlog, or none where it is not known."""
    return 0.0 if observation.backlog is None or observation.missing(("backlog",)) else observation.backlog
