"""What is known of one subquery over one period; what is not known is absent, never zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

NEGLIGIBLE = 1e-9
"""A rate below this, one tuple in thirty years, is none; nor is it worth dividing by."""

RATES = ("offered", "admitted", "processed", "demand", "comparisons")


@dataclass(frozen=True, slots=True)
class Station:
    """One subquery as a queue of the whole network, for models that look past their own subquery.

    `arrival_rate` is in tuples per second, `service_rate` the tuples per second that one busy instance completes.
    """

    subquery: str
    instances: int
    arrival_rate: float
    service_rate: float


@dataclass(frozen=True, slots=True)
class WindowInput:
    """One input of a windowed subquery: how fast it comes, how much is held, how long it is held."""

    rate: float
    held: float
    window_seconds: float


@dataclass(frozen=True, slots=True)
class HotKey:
    """The key that comes most often in a shard, as text, and its share of all tuples of the subquery."""

    shard: int
    key: str
    share: float

    def __str__(self) -> str:
        return f"key {self.key}, {self.share:.0%} of all tuples"


@dataclass(frozen=True, slots=True)
class Observation:
    """One subquery over the `period_seconds` that end at `time_seconds`.

    Rates are tuples per second; one below NEGLIGIBLE is 0. Every field after `instances` may be absent; the guide
    says which controller needs which, and a controller never acts on what is missing.

    offered
        what its sources would deliver if nothing held them back; `admitted` is what was let in, `processed` what was
        completed.
    demand
        what would arrive here if every subquery upstream kept up with its own input: offered rates propagated from
        the sources through the measured selectivities (`with_demand`).
    backlog
        tuples that wait, here and in the sources in front of it, at the end of the period.
    queued
        those of them that are past the sources, in front of this subquery's instances.
    congestion
        share of the period in which sources stood blocked, averaged over them, in [0, 1].
    busy
        for each instance, the share of the period it worked.
    shard_loads, shard_state_bytes
        for each shard, tuples per second that it received and bytes that it holds; `mapping` names its instance.
    pooled
        whether any instance may do the work of any shard, so that no shard is a limit and no mapping changes a load.
    hot_key
        of the shard that received most, the key that comes most often.
    window_inputs, comparisons
        for windowed joins: what is held of each input, and pairs compared per second.
    cores
        where the cells of a step share cores, how many instances they may have in all.
    network
        the subqueries of the query as queues, this one among them, but for those that get nothing: empty in an idle
        query. `network_arrival_rate` is what enters from outside.
    """

    subquery: str
    time_seconds: float
    period_seconds: float
    instances: int
    mapping: tuple[int, ...] | None = None
    offered: float | None = None
    admitted: float | None = None
    processed: float | None = None
    demand: float | None = None
    backlog: float | None = None
    queued: float | None = None
    congestion: float | None = None
    busy: tuple[float, ...] | None = None
    shard_loads: tuple[float, ...] | None = None
    shard_state_bytes: tuple[int, ...] | None = None
    pooled: bool = False
    hot_key: HotKey | None = None
    watermark_lag_seconds: float | None = None
    latency_seconds: float | None = None
    window_inputs: tuple[WindowInput, ...] | None = None
    comparisons: float | None = None
    network: tuple[Station, ...] | None = None
    network_arrival_rate: float | None = None
    cores: int | None = None

    def __post_init__(self) -> None:
        for name in RATES:
            value = getattr(self, name)
            if value is not None and 0 < value < NEGLIGIBLE:
                object.__setattr__(self, name, 0.0)

    def missing(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the named fields that are absent, empty where that says nothing, or not finite, in their given order."""
        return tuple(
            name
            for name in names
            if not _known(value := getattr(self, name)) and not (name == "network" and value == ())
        )

    @property
    def due(self) -> float | None:
        """Tuples per second that should be completed here: the demand, else what its sources offer."""
        if not self.missing(("demand",)):
            return self.demand
        return None if self.missing(("offered",)) else self.offered

    @property
    def waiting(self) -> float:
        """The backlog; 0 where it is not known."""
        return 0.0 if self.missing(("backlog",)) else self.backlog or 0.0

    @property
    def utilisation(self) -> float | None:
        """The busy share averaged over instances."""
        return None if not self.busy else sum(self.busy) / len(self.busy)

    @property
    def busy_instances(self) -> float:
        """How many instances would have been busy all the time; 0 where that is not known, or next to none."""
        total = sum(self.busy or ())
        return total if total >= NEGLIGIBLE else 0.0

    @property
    def seconds_per_tuple(self) -> float | None:
        """What a tuple costs: the time at work of all instances, over the tuples completed."""
        rate = self.service_rate
        return None if rate is None else 1 / rate

    @property
    def service_rate(self) -> float | None:
        """Tuples per second that one instance would complete if it were busy all the time: DS2's true rate."""
        if self.processed is None or not self.busy:
            return None
        busy = self.busy_instances
        return self.processed / busy if busy > 0 and self.processed > 0 else None


def _known(value: object) -> bool:
    match value:
        case None:
            return False
        case float() | int():
            return math.isfinite(value)
        case tuple():
            try:
                # Thousands of shards, every period: a finite sum has finite terms alone, and is quick to come by.
                return len(value) > 0 and (math.isfinite(sum(value)) or all(map(math.isfinite, value)))
            except TypeError:
                return all(_known(item) for item in value)
        case WindowInput():
            return math.isfinite(value.rate + value.held + value.window_seconds)
        case _:
            return True


@dataclass(frozen=True, slots=True)
class DataflowEdge:
    """Tuples that go from one subquery to another: `selectivity` of them for each that `upstream` processes.

    `upstream` is None for a subquery's own sources; one without any edge has those alone, and needs no edge to say so.
    A selectivity that was not measured is None.
    """

    upstream: str | None
    downstream: str
    selectivity: float | None = 1.0


def with_demand(observations: Sequence[Observation], edges: Sequence[DataflowEdge]) -> tuple[Observation, ...]:
    """The observations of one period, in their order, with `demand`, `network` and `network_arrival_rate` filled in.

    A subquery that lags hides what its successors will get once it no longer does, so a controller that goes by observed
    input rates repairs one subquery at a time. DS2 (Kalavri et al., OSDI 2018, equations 7 and 8) therefore starts from
    the rates of the sources and multiplies by measured selectivities along the dataflow.

    A demand is absent where anything upstream of it is unknown. The network is there for all or for none: a model of
    the whole needs each subquery's demand and service rate. Left out of it is a subquery that gets nothing and has no
    service rate because of that, so the network of an idle query is empty. O(subqueries + edges).
    """
    by_name = {each.subquery: each for each in observations}
    incoming: dict[str, list[DataflowEdge]] = {name: [] for name in by_name}
    for edge in edges:
        incoming.setdefault(edge.downstream, []).append(edge)
        if edge.upstream is not None:
            incoming.setdefault(edge.upstream, [])
    for name, into in incoming.items():
        if not into:
            into.append(DataflowEdge(None, name))
    # NaN is what is not known: it makes all that follows from it unknown.
    offered = {name: _or_nan(by_name[name].offered) if name in by_name else math.nan for name in incoming}
    demands: dict[str, float] = {}
    upstream = {name: [edge.upstream for edge in into if edge.upstream] for name, into in incoming.items()}
    for name in TopologicalSorter(upstream).static_order():
        rates = [(demands[edge.upstream] if edge.upstream else offered[name], edge) for edge in incoming[name]]
        # Nothing comes of nothing; nor can a selectivity be measured then.
        demands[name] = math.fsum(rate * _or_nan(edge.selectivity) if rate != 0 else 0.0 for rate, edge in rates)
    stations, known = [], True
    for name, demand in demands.items():
        seen = by_name.get(name)
        if seen is not None and seen.service_rate is not None and not math.isnan(demand):
            stations.append(Station(name, seen.instances, demand, seen.service_rate))
        else:
            known &= seen is not None and demand == 0
    entering = math.fsum(offered[name] for name in by_name if any(edge.upstream is None for edge in incoming[name]))
    known &= not math.isnan(entering)
    return tuple(
        replace(
            each,
            demand=None if math.isnan(demands[each.subquery]) else demands[each.subquery],
            network=tuple(stations) if known else None,
            network_arrival_rate=entering if known else None,
        )
        for each in observations
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
