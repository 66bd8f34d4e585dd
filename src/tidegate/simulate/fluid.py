"""The fluid simulation of one subquery: its instances, what waits in front of each, and the changes under way.

Tuples are a fluid that flows tick by tick. Nothing is lost: what arrived was completed, waits, or was not produced by a
source that slows down. Randomness is in the arrivals alone, and only if the noise asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from tidegate.control.balancers.balance import Ints
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.erlang import mean_sojourn
from tidegate.simulate.loads import Floats
from tidegate.simulate.model import JoinWindow, SubqueryModel, shard_shares

BUSIEST = 0.99
"""Utilisation up to which a stationary queue is assumed; beyond it, what waits is in the backlog.

A busier queue takes many minutes to become as long as its stationary mean. At a load that equals the capacity the backlog
shows what waits only if arrivals are uneven (`Noise.arrivals`)."""

EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class SubqueryHistory:
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
    def empty(cls, subquery: str, ticks: int) -> SubqueryHistory:
        """Room for so many ticks."""
        return cls(subquery, *(np.zeros(ticks) for _ in range(len(fields(cls)) - 1)))


@dataclass(frozen=True, slots=True)
class OrderedChange:
    """A change on its way: when it comes into force, to how many instances, and with which mapping, if one was given."""

    at_seconds: float
    instances: int
    mapping: tuple[int, ...] | None


def reordered(
    ordered: Sequence[OrderedChange],
    working: int,
    instances: int,
    mapping: tuple[int, ...] | None,
    now: float,
    wait: float,
) -> tuple[OrderedChange, ...]:
    """The changes on their way once `instances` are wanted of a subquery with `working` ones; times do not fall.

    What was ordered before comes when it was due. More are ordered on top of it, and take `wait` seconds of their own;
    of too many the youngest are called off; fewer than there are leave at once.

    >>> under_way = (OrderedChange(10.0, 4, None), OrderedChange(15.0, 7, None))
    >>> [(each.at_seconds, each.instances) for each in reordered(under_way, 2, 9, None, 8.0, 10.0)]
    [(10.0, 4), (15.0, 7), (18.0, 9)]
    >>> [(each.at_seconds, each.instances) for each in reordered(under_way, 2, 5, None, 8.0, 10.0)]
    [(10.0, 4), (15.0, 5)]
    """
    if instances <= working:
        return (OrderedChange(now, instances, mapping),)
    kept = [each for each in ordered if working < each.instances < instances]
    later = [each.at_seconds for each in ordered if each.instances >= instances]
    return (*kept, OrderedChange(later[0] if later else now + wait, instances, mapping))


class SubqueryFlow:
    """The state of one subquery, moved on tick by tick: `begin`, then `room`, then `advance`.

    A *lane* is a queue with its servers: with keys, one per instance, holding the shards mapped to it; without, a single
    one with all instances behind it. All lanes have the same capacity. While nothing waits, a tick costs O(lanes), else
    O(shards). `demand` and, where it has a source, `entering` are tuples per tick.
    """

    def __init__(
        self,
        model: SubqueryModel,
        instances: int,
        tick_seconds: float,
        demand: Floats,
        entering: Floats | None = None,
        *,
        waits: bool = True,
    ) -> None:
        self.model, self.instances, self.tick_seconds = model, instances, tick_seconds
        self.keyed = model.keys is not None
        shards = model.shards if self.keyed else 1
        self.mapping: Ints = np.arange(shards, dtype=np.int64) % (instances if self.keyed else 1)
        self.shares: Floats = np.full(shards, 1.0 / shards)
        self.waiting: Floats = np.zeros(shards)
        self.ordered: tuple[OrderedChange, ...] = ()
        self.entering, self.queued, self._waits = entering, 0.0, waits
        self.held, self.wanted, self.backlog = 0.0, 0.0, 0.0
        self.history = SubqueryHistory.empty(model.name, len(demand))
        self.history.offered[:] = demand / tick_seconds
        self.busy_seconds: Floats = np.zeros(instances)
        self.pause_until = -math.inf
        self._era: int | None = None
        self._largest = 1.0
        self._lane_served: Floats = self.waiting
        self._fill = None if model.window is None else WindowFill(model.window, len(demand), tick_seconds)
        self._regroup()

    @property
    def seconds_per_tuple(self) -> float:
        """An instance's time for a tuple at present: window joins cost more the more is held."""
        window, alone = self.model.window, self.model.service_seconds
        if window is not None:
            alone += window.seconds_per_comparison * 0.5 * self.held
        return alone / self.model.speed(self.instances)

    @property
    def lane_rate(self) -> float:
        """Tuples per second that a lane completes when it is never idle."""
        return (1 if self.keyed else self.instances) / self.seconds_per_tuple

    @property
    def full_rate(self) -> float:
        """Tuples per second at which the busiest lane is never idle: the most the subquery can keep up with."""
        return self.lane_rate / self._largest

    @property
    def watermark_lag(self) -> float:
        """Seconds until the longest lane and the source's queue are empty."""
        lag = float(self._lane_waiting.max()) / self.lane_rate if self.backlog else 0.0
        return lag + self.queued / self.full_rate

    def begin(self, index: int) -> None:
        """Take up the key distribution and the changes that hold from this tick on."""
        now, keys = index * self.tick_seconds, self.model.keys
        if keys is not None and (era := keys.era(now)) != self._era:
            self._era = era
            self.shares = shard_shares(keys, self.model.shards, era)
            self._regroup()
        while self.ordered and self.ordered[0].at_seconds <= now + EPSILON:
            change, *rest = self.ordered
            self.ordered = tuple(rest)
            if self.keyed:
                self.mapping = np.asarray(change.mapping or evened(self.mapping, change.instances), dtype=np.int64)
            self.pause_until = max(self.pause_until, now + self.model.cost.pause_seconds)
            self.instances = change.instances
            self._regroup()
        paused = max(min(self.pause_until, now + self.tick_seconds) - now, 0.0)
        self._open_capacity = self.lane_rate * self.tick_seconds
        self._capacity = self._open_capacity * (1.0 - paused / self.tick_seconds)

    def room(self, outlet: float = math.inf) -> float:
        """Tuples that can be taken in during the tick before a buffer is full, if `outlet` can be completed at most."""
        served = self._capacity * passed_share(outlet, self.wanted)
        buffer = self.model.buffer_tuples * (1 if self.keyed else self.instances)
        if self.backlog == 0.0:
            return (buffer + served) / self._largest
        free = np.maximum(buffer + served - self._lane_waiting, 0.0)
        with np.errstate(divide="ignore"):
            return float(np.min(np.where(self._lane_shares > 0, free / self._lane_shares, np.inf)))

    def advance(
        self, index: int, room: float, outlet: float = math.inf, arriving: float = 0.0, blocked: Sequence[float] = ()
    ) -> float:
        """Let the tick pass: take in `arriving` tuples and the source's, as there is room; returns those completed.

        `blocked` is, for each sender but the source, the share of the tick in which it was held up.
        """
        admitted, produced, held_up = self._admit(index, room)
        processed = self._serve(arriving + admitted, outlet)
        if self._fill is not None:
            self.held = self._fill.move(index, arriving + produced, processed)
        drain, rate = passed_share(outlet, self.wanted), (arriving + admitted) / self.tick_seconds
        busy = self._lane_served / self._open_capacity
        busy = busy if self.keyed else np.full(self.instances, busy[0])
        if len(self.busy_seconds) != len(busy):
            self.busy_seconds = np.pad(self.busy_seconds, (0, len(busy)))[: len(busy)]
        self.busy_seconds = self.busy_seconds + busy * self.tick_seconds
        queue_seconds = self.queued / (self.full_rate * max(drain, EPSILON)) if self.queued else 0.0
        shares = [*blocked, *held_up]
        row = self.history
        row.admitted[index], row.processed[index] = rate, processed / self.tick_seconds
        row.backlog[index] = self.backlog + self.queued
        row.latency[index] = self._delay(rate, drain, (index + 1) * self.tick_seconds) + queue_seconds
        row.instances[index] = self.instances
        row.paid[index] = max(self.instances, self.ordered[-1].instances if self.ordered else 0)
        row.utilisation[index], row.busiest[index] = busy.mean(), busy.max()
        row.congestion[index] = sum(shares) / len(shares) if shares else 0.0
        row.service_rate[index] = self.model.speed(self.instances) ** -1 / self.seconds_per_tuple
        return processed

    def _admit(self, index: int, room: float) -> tuple[float, float, tuple[float, ...]]:
        """Tuples taken in from the source, those it produced, and the share of the tick in which it was blocked."""
        if self.entering is None:
            return 0.0, 0.0, ()
        offered, queued = float(self.entering[index]), self.queued
        wanted = queued + offered
        admitted = min(wanted, room)
        left = wanted - admitted
        share = left / wanted if wanted > 0 else 0.0
        if not self._waits:
            return admitted, admitted, (share,)
        self.queued = left = left if left > EPSILON * wanted else 0.0
        if queued > 0:
            # The queue lasted the whole tick, or until it was drained by what the room left over.
            share = 1.0 if left > 0 else min(queued / max(room - offered, queued), 1.0)
        return wanted - left, offered, (share,)

    def _serve(self, arrived: float, outlet: float) -> float:
        """Complete what each lane's capacity and the common outlet allow; returns it."""
        capacity = self._capacity
        if self.backlog == 0.0 and arrived * self._largest <= capacity and arrived <= outlet:
            self._lane_served = arrived * self._lane_shares
            self.wanted = arrived
            return arrived
        work = self.waiting + arrived * self.shares
        lanes = self._by_lane(work)
        served = np.minimum(lanes, capacity)
        total = self.wanted = float(served.sum())
        if total > outlet:
            served *= outlet / total
            total = outlet
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(lanes > 0, 1.0 - served / lanes, 0.0)
        self.waiting = work * left[self.mapping]
        self._lane_served = served
        if float(self.waiting.sum()) <= EPSILON * max(arrived, 1.0):
            total += float(self.waiting.sum())
            self.waiting = np.zeros_like(self.waiting)
        self._lane_waiting = self._by_lane(self.waiting)
        self.backlog = float(self.waiting.sum())
        return total

    def _delay(self, arrival_rate: float, drain: float, now: float) -> float:
        """Mean time from arrival at the subquery to completion, for a tuple that comes at the end of the tick.

        What stands in front of it in its lane at the rate the lane works (`drain`, its share of full speed), what is left
        of a pause, and the mean of a stationary M/M/k queue at the present arrival rate (M/M/1 per lane, with keys).
        """
        rate = self.lane_rate
        if self.keyed:
            busy = np.minimum(arrival_rate * self._lane_shares / rate, BUSIEST)
            stationary = float(np.dot(self._lane_shares, 1.0 / (1.0 - busy))) / rate
        else:
            stationary = mean_sojourn(self.instances, min(arrival_rate, BUSIEST * rate), 1.0 / self.seconds_per_tuple)
        waiting = float(np.dot(self._lane_shares, self._lane_waiting)) if self.backlog else 0.0
        return stationary + waiting / (rate * max(drain, EPSILON)) + max(self.pause_until - now, 0.0)

    def _regroup(self) -> None:
        """Gather shards by lane anew, after the mapping or the shares have changed."""
        self._lane_shares = self._by_lane(self.shares)
        self._lane_waiting = self._by_lane(self.waiting)
        self._largest = float(self._lane_shares.max())
        self._lane_served = np.zeros(len(self._lane_shares))

    def _by_lane(self, shards: Floats) -> Floats:
        lanes = self.instances if self.keyed else 1
        summed: Floats = np.bincount(self.mapping, weights=shards, minlength=lanes).astype(np.float64, copy=False)
        return summed


class WindowFill:
    """What a join's windows hold: tuples produced within the window before the one that is being processed."""

    def __init__(self, window: JoinWindow, ticks: int, tick_seconds: float) -> None:
        self._ticks_held = window.window_seconds / tick_seconds
        self._produced = np.zeros(ticks + 1)
        self._processed = 0.0

    def move(self, index: int, produced: float, processed: float) -> float:
        """Let a tick pass in which so many tuples were produced and processed; returns how many are held at its end.

        The tuples come in order of event time, so the one processed last is the n-th produced, n being all processed.
        """
        self._produced[index + 1] = self._produced[index] + produced
        self._processed += processed
        known = self._produced[: index + 2]
        # Of several ticks in which nothing was produced, the last: an empty window is an old one.
        tick = min(int(np.searchsorted(known, self._processed, side="right")) - 1, index + 1)
        within = 0.0
        if tick <= index and known[tick + 1] > known[tick]:
            within = (self._processed - known[tick]) / (known[tick + 1] - known[tick])
        start = tick + within - self._ticks_held
        if start <= 0:
            return self._processed
        before = int(start)
        return float(self._processed - (known[before] + (start - before) * (known[before + 1] - known[before])))


def evened(mapping: Ints, instances: int) -> tuple[int, ...]:
    """A mapping to another number of instances, with counts of shards as even as can be and as few moved as that needs."""
    return MinimalMovement(1.0).balance(mapping, np.ones(len(mapping)), instances).mapping


def passed_share(outlet: float, wanted: float) -> float:
    """The share of what is wanted that an outlet lets through."""
    return 1.0 if outlet >= wanted or wanted <= 0 else outlet / wanted
