"""The directory of a cell: which chunks hold which slice, and how far the cell has come. All it must remember, by name."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.errors import CheckpointError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """One entry: an immutable chunk of a slice. Its id is random, so no other attempt ever wrote the same one."""

    id: int
    rows: int
    bytes: int


@dataclass(slots=True)
class Directory:
    """What a cell remembers between batches; ``watermark`` is the latest it has acted on, None before the first."""

    fingerprint: str
    watermark: int | None = None
    timer_ms: int | None = None
    slices: dict[int, list[Chunk]] = field(default_factory=dict)
    rounds: dict[int, int] = field(default_factory=dict)

    def state_rows(self) -> int:
        """How many panes are held, counting those of one key in several chunks several times."""
        return sum(chunk.rows for chunks in self.slices.values() for chunk in chunks)

    def state_bytes(self) -> int:
        """How many bytes the chunks take."""
        return sum(chunk.bytes for chunks in self.slices.values() for chunk in chunks)

    def encode(self) -> bytes:
        """The directory as bytes: an Arrow table of chunks with the rest in its metadata."""
        entries = [(number, chunk) for number, chunks in self.slices.items() for chunk in chunks]
        columns: dict[str, Any] = {
            "slice": [number for number, _ in entries],
            "id": [chunk.id for _, chunk in entries],
            "rows": [chunk.rows for _, chunk in entries],
            "bytes": [chunk.bytes for _, chunk in entries],
        }
        head = {
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "watermark": self.watermark,
            "timer_ms": self.timer_ms,
            "rounds": sorted(self.rounds.items()),
        }
        schema = pa.schema([(name, pa.int64()) for name in columns], metadata={"tidegate.directory": json.dumps(head)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.record_batch([pa.array(values, pa.int64()) for values in columns.values()], schema))
        made: bytes = sink.getvalue().to_pybytes()
        return made

    @classmethod
    def decode(cls, data: bytes) -> Directory:
        """The directory of some bytes."""
        table = pa.ipc.open_stream(data).read_all()
        head = json.loads(table.schema.metadata[b"tidegate.directory"])
        if head["version"] != VERSION:
            raise CheckpointError(f"the state's directory has version {head['version']}; this tidegate reads {VERSION}")
        slices: dict[int, list[Chunk]] = {}
        for row in table.to_pylist():
            slices.setdefault(row["slice"], []).append(Chunk(row["id"], row["rows"], row["bytes"]))
        rounds = {int(window): int(count) for window, count in head["rounds"]}
        return cls(head["fingerprint"], head["watermark"], head["timer_ms"], slices, rounds)
