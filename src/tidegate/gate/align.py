"""Markers: where the log of a gate is cut, so that the cuts of all gates of a run make one consistent snapshot.

A marker goes through a run as tuples do. Each source of a gate passes it behind its last batch; what it delivers after that
is held back until all sources have passed. Then what is ready is written, and behind it a control segment with the
`GateCut`, which every reader meets at the same place. What a cut holds came before the marker and is not in the log: tuples
that were not ready. A reader passes the marker on to the gates it feeds when it gets there (Chandy and Lamport, with
channels that are aligned, so that no batch under way has to be recorded).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.gate.source import GateSource, SourceQueue, SourceSpec
from tidegate.watermark import START, Watermark

if TYPE_CHECKING:
    from tidegate.gate.gate import Gate


@dataclass(frozen=True, slots=True)
class UnreadyBatch:
    """Tuples of one input of a gate that were not ready, in non-decreasing τ."""

    input: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True, eq=False)
class GateCut:
    """A gate at a marker: the watermark of its log, what was not ready, and how far each source had come by its name."""

    marker: object = None
    watermark: Watermark = START
    unready: tuple[UnreadyBatch, ...] = ()
    sources: Mapping[str, Watermark] = field(default_factory=dict)


def cut_of(marker: object, watermark: Watermark, taking_part: Iterable[GateSource]) -> GateCut:
    """The cut of a gate all of whose open sources have passed a marker; those that have ended may hold something too."""
    unready, sources = [], {}
    for source in taking_part:
        sources[source.name] = source.queue.watermark
        for pending in source.queue.pending:
            batch = pending.batch.slice(pending.low) if pending.low else pending.batch
            unready.append(UnreadyBatch(pending.input, batch))
    return GateCut(marker, watermark, tuple(unready), sources)


def held_over(gate: Gate, unready: UnreadyBatch, time: str) -> GateSource:
    """A source that has delivered what was not ready at a cut and has ended."""
    spec = SourceSpec("held over", unready.input, time, disorder_us=None)
    source = GateSource(gate, spec, SourceQueue(in_order=False))
    source.deliver(unready.batch)
    source.queue.close()
    return source
