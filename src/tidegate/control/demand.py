"""What would arrive at each subquery if all the others kept up: offered rates, propagated through selectivities.

A subquery that lags hides what its successors will get once it no longer does, so a controller that goes by observed
input rates repairs one subquery at a time. DS2 (Kalavri et al., OSDI 2018, equations 7 and 8) therefore starts from the
rates of the sources and multiplies by measured selectivities along the dataflow; queueing models need the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from tidegate.control.observation import Observation, Station
from tidegate.errors import UserError


@dataclass(frozen=True, slots=True)
class Feed:
    """Tuples that go from one subquery to another: `selectivity` of them for each that `upstream` processes.

    `upstream` is None for a subquery's own sources; one without any feed has those alone, and needs no feed to say so.
    A selectivity that was not measured is None.
    """

    upstream: str | None
    downstream: str
    selectivity: float | None = 1.0

    def __post_init__(self) -> None:
        if self.selectivity is not None and not 0 <= self.selectivity < math.inf:
            raise UserError(
                f"feed {self.upstream} → {self.downstream}: selectivity must be finite and at least 0, got "
                f"{self.selectivity}; it is output tuples over input tuples, None where it is not known"
            )


def with_demand(observations: Sequence[Observation], feeds: Sequence[Feed]) -> tuple[Observation, ...]:
    """The observations of one period, in their order, with `demand`, `network` and `network_arrival_rate` filled in.

    A demand is absent where anything upstream of it is unknown. The network is there for all or for none: a model of
    the whole needs each subquery's demand and service rate. Left out of it is a subquery that gets nothing and has no
    service rate because of that, so the network of an idle query is empty. O(subqueries + feeds).
    """
    by_name = {each.subquery: each for each in observations}
    if len(by_name) < len(observations):
        raise UserError(
            f"demand: each subquery may be observed once in a period, got "
            f"{', '.join(each.subquery for each in observations)}; give the observations of one period"
        )
    incoming = _incoming(by_name, feeds)
    demands = _demands(by_name, incoming)
    outside = [by_name[name].offered for name, into in incoming.items() if name in by_name and _from_outside(into)]
    network = _network(by_name, demands)
    entering = [rate for rate in outside if rate is not None]
    known = network is not None and len(entering) == len(outside)
    return tuple(
        replace(
            each,
            demand=demands[each.subquery],
            network=network if known else None,
            network_arrival_rate=math.fsum(entering) if known else None,
        )
        for each in observations
    )


def _incoming(by_name: Mapping[str, Observation], feeds: Sequence[Feed]) -> dict[str, list[Feed]]:
    names = dict.fromkeys(by_name)
    for feed in feeds:
        names |= dict.fromkeys(name for name in (feed.upstream, feed.downstream) if name is not None)
    incoming: dict[str, list[Feed]] = {name: [] for name in names}
    for feed in feeds:
        incoming[feed.downstream].append(feed)
    return incoming


def _from_outside(into: Sequence[Feed]) -> bool:
    return not into or any(feed.upstream is None for feed in into)


def _demands(by_name: Mapping[str, Observation], incoming: Mapping[str, list[Feed]]) -> dict[str, float | None]:
    upstream = {name: [feed.upstream for feed in into if feed.upstream is not None] for name, into in incoming.items()}
    try:
        order = tuple(TopologicalSorter(upstream).static_order())
    except CycleError as error:
        raise UserError(
            f"feeds: {' → '.join(error.args[1])} is a cycle; a query's subqueries form a directed acyclic graph"
        ) from error
    demands: dict[str, float | None] = {}
    for name in order:
        offered = by_name[name].offered if name in by_name else None
        arriving = [
            _times(offered if feed.upstream is None else demands[feed.upstream], feed.selectivity)
            for feed in incoming[name] or (Feed(None, name),)
        ]
        known = [rate for rate in arriving if rate is not None]
        demands[name] = math.fsum(known) if len(known) == len(arriving) else None
    return demands


def _times(rate: float | None, selectivity: float | None) -> float | None:
    if rate == 0:  # Nothing comes of nothing; nor can a selectivity be measured then.
        return 0.0
    return None if rate is None or selectivity is None else rate * selectivity


def _network(by_name: Mapping[str, Observation], demands: Mapping[str, float | None]) -> tuple[Station, ...] | None:
    stations = []
    for name, demand in demands.items():
        observed = by_name.get(name)
        if observed is None or demand is None:
            return None
        if observed.service_rate is not None:
            stations.append(Station(name, observed.instances, demand, observed.service_rate))
        elif demand > 0:
            return None
    return tuple(stations)
