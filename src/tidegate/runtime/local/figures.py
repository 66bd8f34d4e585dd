"""What a job in this process has counted so far: figures that only grow, for observers to take differences of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.gate.flow import BlockedTimes
from tidegate.gate.gate import Traffic


@dataclass(frozen=True, slots=True)
class RegionFigures:
    """One region until now.

    ``busy_seconds`` has the instances of the present epoch, in the order in which ``mapping`` numbers them. ``upstream`` are
    the regions it reads, ``sources`` the sources.
    """

    name: str
    instances: tuple[int, ...]
    mapping: tuple[int, ...]
    busy_seconds: Mapping[int, float]
    traffic: Traffic
    blocked: BlockedTimes
    upstream: tuple[str, ...]
    sources: tuple[str, ...]
    watermark: int | None


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """One source until now: rows read, and when the last of them was due by its schedule if it has one."""

    rows: int
    due: float | None
    ended: bool


@dataclass(frozen=True, slots=True)
class JobFigures:
    """A whole job until ``at_seconds`` of the run's clock; ``latency_seconds`` is the sum of that of
    all ``timed_results``.
    """

    at_seconds: float
    regions: tuple[RegionFigures, ...]
    sources: Mapping[str, SourceFigures]
    newest: int | None
    timed_results: int
    latency_seconds: float
