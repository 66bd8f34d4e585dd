"""The work of a subquery, timed: how long each instance was at it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.gate.segment import Segment
from tidegate.gate.waiting import waited_seconds
from tidegate.operators.columns import Array
from tidegate.runtime.local.work import Held, Work
from tidegate.watermark import Watermark


@dataclass(frozen=True, slots=True)
class MeteredWork:
    """Work that adds up, for each instance, the seconds it spends in it.

    Waiting for input, for room in the next gate, or for what another instance has begun is no work. What a user's
    function waits for is: another instance could wait beside it. Costs four looks at the clock per segment and instance.
    Only its own thread writes an instance's figure, so none needs a lock.
    """

    inner: Work
    clock: Callable[[], float] = time.perf_counter
    _seconds: dict[int, float] = field(default_factory=dict)

    @property
    def busy_seconds(self) -> Mapping[int, float]:
        """The seconds that each instance has worked so far; those that left are forgotten."""
        return dict(self._seconds)

    @property
    def held(self) -> Held | None:
        return self.inner.held

    def results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        began = self._worked_until()
        try:
            for table in self.inner.results(segment, instance, owned, ahead):
                self._add(instance, began)
                yield table
                began = self._worked_until()
        finally:
            self._add(instance, began)

    def may_hand_out(self, segment: Segment) -> bool:
        return self.inner.may_hand_out(segment)

    def attach(self, instance: int, number: int, watermark: Watermark) -> None:
        self._seconds[instance] = 0.0
        self.inner.attach(instance, number, watermark)

    def detach(self, instance: int) -> None:
        self._seconds.pop(instance, None)
        self.inner.detach(instance)

    def acknowledge(self, instance: int, number: int, watermark: Watermark) -> None:
        began = self._worked_until()
        self.inner.acknowledge(instance, number, watermark)
        self._add(instance, began)

    def abort(self) -> None:
        self.inner.abort()

    def _worked_until(self) -> float:
        """A clock that stands still while the calling thread waits for another."""
        return self.clock() - waited_seconds()

    def _add(self, instance: int, began: float) -> None:
        if instance in self._seconds:
            self._seconds[instance] += self._worked_until() - began
