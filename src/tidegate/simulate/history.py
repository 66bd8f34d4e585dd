"""What happened in a simulation, in columns: a row per tick for each subquery, and the decisions taken."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from tidegate.control.decision import Decision
from tidegate.simulate.keys import Floats
from tidegate.simulate.network import Network


@dataclass(frozen=True, slots=True)
class History:
    """One subquery, a row per tick; rates in tuples per second, averaged over the tick.

    offered
        what would arrive if every subquery upstream kept up; `admitted` what was taken in, `processed` completed.
    backlog
        tuples that wait, here and in the source in front of it, at the end of the tick.
    latency
        mean seconds from arrival to completion for a tuple that arrives at the end of the tick.
    instances, paid
        how many work; how many are paid for, those still starting among them.
    utilisation
        busy share, averaged over instances; `busiest` is the highest of them.
    congestion
        share of the tick in which those that send to it stood blocked.
    service_rate
        tuples per second of one instance, were it alone and always busy.
    """

    subquery: str
    offered: Floats
    admitted: Floats
    processed: Floats
    backlog: Floats
    latency: Floats
    instances: Floats
    paid: Floats
    utilisation: Floats
    busiest: Floats
    congestion: Floats
    service_rate: Floats

    @classmethod
    def empty(cls, subquery: str, ticks: int) -> History:
        """Room for so many ticks."""
        return cls(subquery, *(np.zeros(ticks) for _ in range(len(fields(cls)) - 1)))


@dataclass(frozen=True, slots=True)
class Taken:
    """A decision to change something, when it was taken, and whether it was carried out."""

    time_seconds: float
    decision: Decision
    accepted: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A finished simulation. `times` are the ends of the ticks."""

    network: Network
    controller: str
    seed: int
    tick_seconds: float
    period_seconds: float
    times: Floats
    subqueries: dict[str, History]
    decisions: tuple[Taken, ...]
    state_bytes_moved: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, subquery: str) -> History:
        return self.subqueries[subquery]

    @property
    def only(self) -> History:
        """The history of the subquery, where there is one."""
        (history,) = self.subqueries.values()
        return history

    @property
    def entering(self) -> Floats:
        """What the sources offer, all together, in tuples per second."""
        return np.asarray(np.sum([self.subqueries[source.into].offered for source in self.network.sources], axis=0))

    @property
    def latency(self) -> Floats:
        """Seconds through the whole network: each subquery's latency, times how often a tuple comes by there."""
        entering = np.maximum(self.entering, 1e-12)
        return np.asarray(np.sum([each.latency * each.offered / entering for each in self.subqueries.values()], axis=0))

    @property
    def processed(self) -> Floats:
        """Tuples per second that the subqueries with sources completed, all together."""
        return np.asarray(np.sum([self.subqueries[source.into].processed for source in self.network.sources], axis=0))

    @property
    def instances(self) -> Floats:
        """Instances of all subqueries together."""
        return np.asarray(np.sum([each.instances for each in self.subqueries.values()], axis=0))

    @property
    def paid(self) -> Floats:
        """Instances of all subqueries together that are paid for."""
        return np.asarray(np.sum([each.paid for each in self.subqueries.values()], axis=0))
