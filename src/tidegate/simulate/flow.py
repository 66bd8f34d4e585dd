"""One subquery at work: its instances, what waits in front of each, and the changes that are under way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.control.erlang import mean_sojourn
from tidegate.simulate.keys import Floats, Integers, respread, shard_shares, spread
from tidegate.simulate.network import Stops, Subquery

BUSIEST = 0.99
"""Utilisation up to which a stationary queue is assumed; beyond it, what waits is in the backlog.

A busier queue takes many minutes to become as long as its stationary mean. At a load that equals the capacity the backlog
shows what waits only if arrivals are uneven (`Noise.arrivals`)."""

EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Change:
    """A change on its way: when it comes into force, to how many instances, and with which mapping, if one was given."""

    at_seconds: float
    instances: int
    mapping: tuple[int, ...] | None


def reordered(
    ordered: Sequence[Change], working: int, instances: int, mapping: tuple[int, ...] | None, now: float, wait: float
) -> tuple[Change, ...]:
    """The changes on their way once `instances` are wanted of a subquery with `working` ones; times do not fall.

    What was ordered before comes when it was due. More are ordered on top of it, and take `wait` seconds of their own;
    of too many the youngest are called off; fewer than there are leave at once.

    >>> under_way = (Change(10.0, 4, None), Change(15.0, 7, None))
    >>> [(each.at_seconds, each.instances) for each in reordered(under_way, 2, 9, None, 8.0, 10.0)]
    [(10.0, 4), (15.0, 7), (18.0, 9)]
    >>> [(each.at_seconds, each.instances) for each in reordered(under_way, 2, 5, None, 8.0, 10.0)]
    [(10.0, 4), (15.0, 5)]
    """
    if instances <= working:
        return (Change(now, instances, mapping),)
    kept = [each for each in ordered if working < each.instances < instances]
    later = [each.at_seconds for each in ordered if each.instances >= instances]
    return (*kept, Change(later[0] if later else now + wait, instances, mapping))


class Flow:
    """The state of one subquery, moved on tick by tick.

    A *lane* is a queue with its servers: with keys, one per instance, holding the shards mapped to it; without, a single
    one with all instances behind it. All lanes have the same capacity. While nothing waits, a tick costs O(lanes), else
    O(shards).
    """

    def __init__(self, subquery: Subquery, instances: int) -> None:
        self.subquery = subquery
        self.instances = instances
        self.keyed = subquery.keys is not None
        shards = subquery.shards if self.keyed else 1
        self.mapping: Integers = spread(shards, instances if self.keyed else 1)
        self.shares: Floats = np.full(shards, 1.0 / shards)
        self.waiting: Floats = np.zeros(shards)
        self.held = 0.0
        self.pause_until = -math.inf
        self.frozen: Floats | None = None
        self.frozen_until = -math.inf
        self.ordered: tuple[Change, ...] = ()
        self.moved_bytes = 0
        self._era: int | None = None
        self.wanted = 0.0
        self.lane_served: Floats = np.zeros(0)
        self._lane_shares: Floats = self.shares
        self._lane_waiting: Floats = self.waiting
        self._largest = 1.0
        self._backlog = 0.0
        self._regroup()

    # What holds for the tick that begins at `now`.

    def begin(self, now: float) -> None:
        """Take up the key distribution that holds now, and the changes that are due."""
        keys = self.subquery.keys
        if keys is not None and (era := keys.era(now)) != self._era:
            self._era = era
            self.shares = shard_shares(keys, self.subquery.shards, era)
            self._regroup()
        while self.ordered and self.ordered[0].at_seconds <= now + EPSILON:
            self._apply(self.ordered[0], now)
            self.ordered = self.ordered[1:]
        if self.frozen is not None and self.frozen_until <= now + EPSILON:
            self.frozen = None

    def open_share(self, now: float, tick_seconds: float) -> float:
        """The share of the tick in which the subquery is not paused."""
        paused = min(self.pause_until, now + tick_seconds) - now
        return 1.0 - max(paused, 0.0) / tick_seconds

    @property
    def seconds_per_tuple(self) -> float:
        """An instance's time for a tuple at present: window joins cost more the more is held."""
        window = self.subquery.window
        alone = self.subquery.service_seconds
        if window is not None:
            alone += window.seconds_per_comparison * window.comparisons_per_held * self.held
        return alone / self.subquery.speed(self.instances)

    @property
    def lane_rate(self) -> float:
        """Tuples per second that a lane completes when it is never idle."""
        return (1 if self.keyed else self.instances) / self.seconds_per_tuple

    @property
    def full_rate(self) -> float:
        """Tuples per second at which the busiest lane is never idle: the most the subquery can keep up with."""
        return self.lane_rate / self._largest

    @property
    def backlog(self) -> float:
        return self._backlog

    @property
    def paid(self) -> int:
        """Instances that are paid for: those at work, and those on order."""
        return max(self.instances, self.ordered[-1].instances if self.ordered else 0)

    def room(self, served: float) -> float:
        """Tuples that can be taken in during a tick in which each lane completes `served`, before a buffer is full."""
        buffer = self.subquery.buffer_tuples * (1 if self.keyed else self.instances)
        if self.frozen is None and self._backlog == 0.0:
            return (buffer + served) / self._largest
        free = np.maximum(buffer + served - self._lane_waiting, 0.0)
        with np.errstate(divide="ignore"):
            return float(np.min(np.where(self._lane_shares > 0, free / self._lane_shares, np.inf)))

    def serve(self, arrived: float, capacity: float, outlet: float) -> float:
        """Take in `arrived` tuples and complete what each lane's `capacity` and the common `outlet` allow; returns it."""
        if self._backlog == 0.0 and self.frozen is None and arrived * self._largest <= capacity and arrived <= outlet:
            self.lane_served = arrived * self._lane_shares
            self.wanted = arrived
            return arrived
        work = self.waiting + arrived * self.shares
        ready = work if self.frozen is None else np.where(self.frozen > 0, 0.0, work)
        lanes = self._by_lane(ready)
        served = np.minimum(lanes, capacity)
        total = self.wanted = float(served.sum())
        if total > outlet:
            served *= outlet / total
            total = outlet
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(lanes > 0, 1.0 - served / lanes, 0.0)
        self.waiting = work - ready + ready * left[self.mapping]
        self.lane_served = served
        if float(self.waiting.sum()) <= EPSILON * max(arrived, 1.0):
            total += float(self.waiting.sum())
            self.waiting = np.zeros_like(self.waiting)
        self._lane_waiting = self._by_lane(self.waiting)
        self._backlog = float(self.waiting.sum())
        return total

    def delay(self, arrival_rate: float, drain: float, now: float) -> float:
        """Mean time from arrival at the subquery to completion, for a tuple that comes at the end of the tick.

        What stands in front of it in its lane at the rate the lane works (`drain`, its share of full speed), what is left
        of a pause, and the mean of a stationary M/M/k queue at the present arrival rate (M/M/1 per lane, with keys).
        """
        rate, lane_rate = self.lane_rate, self.lane_rate * max(drain, EPSILON)
        if self.keyed:
            busy = np.minimum(arrival_rate * self._lane_shares / rate, BUSIEST)
            stationary = float(np.dot(self._lane_shares, 1.0 / (1.0 - busy))) / rate
        else:
            each = 1.0 / self.seconds_per_tuple
            stationary = mean_sojourn(self.instances, min(arrival_rate, BUSIEST * rate), each)
        waiting = float(np.dot(self._lane_shares, self._lane_waiting)) / lane_rate if self._backlog else 0.0
        held_up = max(self.pause_until - now, 0.0)
        if self.frozen is not None:
            held_up += float(np.dot(self.frozen, self.shares)) * max(self.frozen_until - now, 0.0)
        return stationary + waiting + held_up

    def longest_delay(self) -> float:
        """Seconds that the longest lane needs to empty: how far the watermark is behind on account of it."""
        return float(self._lane_waiting.max()) / self.lane_rate if self._backlog else 0.0

    def busy(self, capacity_of_open_tick: float) -> Floats:
        """For each instance, the share of a whole tick it worked in the last one."""
        share = self.lane_served / capacity_of_open_tick
        return share if self.keyed else np.full(self.instances, share[0])

    # Changes.

    def shard_bytes(self) -> Floats:
        """Bytes that each shard holds."""
        window = self.subquery.window
        per_tuple = 0.0 if window is None else window.bytes_per_tuple
        return self.subquery.state_bytes + per_tuple * self.held * self.shares

    def planned(self, instances: int, mapping: tuple[int, ...] | None) -> tuple[Integers, Integers]:
        """The mapping that a change would bring, and the shards it would move."""
        if not self.keyed:
            return self.mapping, np.empty(0, dtype=np.int64)
        made = np.array(mapping, dtype=np.int64) if mapping is not None else respread(self.mapping, instances)
        return made, np.flatnonzero(made != self.mapping)

    def cost(self, instances: int, mapping: tuple[int, ...] | None) -> tuple[float, int]:
        """The pause in seconds, and the bytes moved, of a change made now."""
        _, moved = self.planned(instances, mapping)
        moved_bytes = int(self.shard_bytes()[moved].sum()) if len(moved) else 0
        cost = self.subquery.cost
        return cost.pause_seconds + cost.seconds_per_byte * moved_bytes, moved_bytes

    def _apply(self, change: Change, now: float) -> None:
        pause, moved_bytes = self.cost(change.instances, change.mapping)
        self.mapping, moved = self.planned(change.instances, change.mapping)
        if self.subquery.cost.stops is Stops.SUBQUERY:
            self.pause_until = max(self.pause_until, now + pause)
        elif len(moved) and pause > 0:
            self.frozen = np.zeros(len(self.shares))
            self.frozen[moved] = 1.0
            self.frozen_until = now + pause
        self.moved_bytes += moved_bytes
        self.instances = change.instances
        self._regroup()

    def _regroup(self) -> None:
        """Gather shards by lane anew, after the mapping or the shares have changed."""
        self._lane_shares = self._by_lane(self.shares)
        self._lane_waiting = self._by_lane(self.waiting)
        self._largest = float(self._lane_shares.max())
        self._backlog = float(self.waiting.sum())
        self.lane_served = np.zeros(len(self._lane_shares))

    def _by_lane(self, shards: Floats) -> Floats:
        lanes = self.instances if self.keyed else 1
        summed: Floats = np.bincount(self.mapping, weights=shards, minlength=lanes).astype(np.float64, copy=False)
        return summed
