"""The directory of a cell: which chunks hold which slices, and how far the cell has come."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

import pyarrow as pa

from tidegate.errors import CheckpointError
from tidegate.watermark import START, Watermark

VERSION = 3
# Version 1 knew neither sides nor groups: its chunks are all of the first input and of no group. Before version 3 ids were
# random, and chunks had no number.
_READ = (1, 2, VERSION)
_COLUMNS = ("id", "low", "high", "rows", "bytes", "side", "group", "number")
NO_GROUP = -1
NO_NUMBER = -1
Data: TypeAlias = bytes | pa.Buffer


def chunk_id(number: int, data: Data) -> int:
    """The id of the chunk with some bytes that a cell wrote as its ``number``-th."""
    digest = hashlib.sha256(number.to_bytes(8, "big"))
    digest.update(data)
    return int.from_bytes(digest.digest()[:8], "big") >> 2


@dataclass(frozen=True, slots=True)
class Chunk:
    """One entry: an immutable chunk.

    It holds panes of the slices ``low`` to ``high``, or tuples of the input ``side`` with event times from ``low`` to
    ``high``, or windows of a ``group`` of shards that end from ``low`` to ``high``. Its id is made of its number, which
    counts the chunks that the cell ever wrote, and of its bytes. So attempts of a batch that do the same write the same
    chunks, those that do not write others, and bytes can be told from those of another chunk.
    """

    id: int
    low: int
    high: int
    rows: int
    bytes: int
    side: int = 0
    group: int = NO_GROUP
    number: int = NO_NUMBER

    def is_made_of(self, data: Data) -> bool:
        """Whether these are the bytes of the chunk; of chunks without a number only the length is known."""
        if len(data) != self.bytes:
            return False
        return self.number == NO_NUMBER or chunk_id(self.number, data) == self.id


@dataclass(frozen=True, slots=True)
class Asked:
    """How many instances the cell was asked to run in some run of its query; no result depends on it."""

    run: str
    instances: int


@dataclass(slots=True)
class Directory:
    """What a cell remembers between batches.

    ``watermark`` is the latest it has acted on; ``written`` is how many chunks it ever wrote.
    """

    fingerprint: str
    watermark: Watermark = START
    timer_ms: int | None = None
    chunks: list[Chunk] = field(default_factory=list)
    rounds: dict[int, int] = field(default_factory=dict)
    asked: Asked | None = None
    written: int = 0

    def state_rows(self) -> int:
        """How many rows the chunks hold; panes of one key in several chunks are counted several times."""
        return sum(chunk.rows for chunk in self.chunks)

    def state_bytes(self) -> int:
        """How many bytes the chunks take."""
        return sum(chunk.bytes for chunk in self.chunks)

    def encode(self) -> bytes:
        """The directory as bytes: an Arrow table of chunks with the rest in its metadata."""
        columns = {name: [getattr(chunk, name) for chunk in self.chunks] for name in _COLUMNS}
        head = {
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "watermark": self.watermark,
            "timer_ms": self.timer_ms,
            "rounds": sorted(self.rounds.items()),
            "asked": self.asked and asdict(self.asked),
            "written": self.written,
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
        if head["version"] not in _READ:
            raise CheckpointError(f"the state's directory has version {head['version']}; this tidegate reads {VERSION}")
        chunks = [Chunk(**row) for row in table.to_pylist()]
        rounds = {int(window): int(count) for window, count in head["rounds"]}
        asked = Asked(**head["asked"]) if head.get("asked") else None
        written = int(head.get("written", 0))
        return cls(head["fingerprint"], head["watermark"], head["timer_ms"], chunks, rounds, asked, written)
