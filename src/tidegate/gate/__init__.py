"""Elastic ScaleGate over Arrow batches (STRETCH, table 2 and section 6).

Sources add sorted batches; what is ready is merged once into the next immutable segment of a shared log; every reader has
a cursor into the log; a segment is freed when the slowest reader has passed. Nothing is copied per reader, and threads
meet per segment, not per tuple.

>>> import pyarrow as pa
>>> gate = Gate(["a", "b"], ["r"], time="ts")
>>> gate.source("a").add(pa.record_batch({"ts": [1, 3, 7]}))
>>> gate.source("b").add(pa.record_batch({"ts": [2, 4]}))
>>> segment = gate.reader("r").get()
>>> segment.batches[0].column("ts").to_pylist(), segment.watermark
([1, 2, 3, 4], 4)
"""

from tidegate.gate.flow import BlockedTimes, FlowLimits, congestion_index
from tidegate.gate.gate import Gate, GateAborted
from tidegate.gate.log import Reader
from tidegate.gate.segment import Segment
from tidegate.gate.source import SourceSpec

__all__ = [
    "BlockedTimes",
    "FlowLimits",
    "Gate",
    "GateAborted",
    "Reader",
    "Segment",
    "SourceSpec",
    "congestion_index",
]
