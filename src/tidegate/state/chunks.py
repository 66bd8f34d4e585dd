"""The state of a cell: immutable chunks of encoded tables in a state store, and the directory that lists them.

A chunk is a table in Arrow's IPC format, compressed, with a version; never pickle. Panes leave their kernels in the order
of their keys, so they shrink to a quarter and less, and the exchange and the state store cost more by the byte than the
compression does. A local cache of files (`state.cache`) saves reads of the store; bytes from either place are compared
with what the directory says of them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol, TypeAlias

import pyarrow as pa

from tidegate.errors import CheckpointError
from tidegate.state.cache import ChunkCache
from tidegate.watermark import START, Watermark

LOG = logging.getLogger(__name__)
Data: TypeAlias = bytes | pa.Buffer
CHUNK_VERSION = b"1"
DIRECTORY_VERSION = 4
NO_GROUP = -1
# Below this a chunk is fetched as fast as its file is mapped.
LEAST_CACHED_BYTES = 32_768
_KEY = b"tidegate.chunk"
_COMPRESSION = "zstd"
_DAMAGED = "the checkpoint is damaged; restore it from a copy, or start from a new one"


def encode(table: pa.Table) -> bytes:
    """The bytes of a table; dictionaries travel with it."""
    marked = table.combine_chunks().replace_schema_metadata({_KEY: CHUNK_VERSION})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
    with pa.ipc.new_stream(sink, marked.schema, options=options) as writer:
        writer.write_table(marked)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def decode(data: Data) -> pa.Table:
    """The table of some bytes; a chunk of another version is refused."""
    table: pa.Table = pa.ipc.open_stream(data).read_all()
    found = (table.schema.metadata or {}).get(_KEY)
    if found != CHUNK_VERSION:
        raise CheckpointError(
            f"the state was written as version {found!r} and this tidegate reads {CHUNK_VERSION!r}; "
            "run it with the version that wrote it, or start from a new checkpoint"
        )
    return table.replace_schema_metadata(None)


@dataclass(frozen=True, slots=True)
class Piece:
    """An encoded table, ready to be a chunk: of the slices ``low`` to ``high``, or of tuples with such event times."""

    low: int
    high: int
    rows: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """One entry of a directory: an immutable chunk.

    It holds panes of the slices ``low`` to ``high``, or tuples of the input ``side`` with event times from ``low`` to
    ``high``, or windows of a ``group`` of shards that end from ``low`` to ``high``. Its id is computed from its number,
    which counts the chunks that the cell ever wrote, and from its bytes. So attempts of a batch that do the same write the
    same chunks, those that do not write others, and bytes can be told from those of another chunk.
    """

    id: int
    low: int
    high: int
    rows: int
    bytes: int
    number: int
    side: int = 0
    group: int = NO_GROUP

    def is_made_of(self, data: Data) -> bool:
        """Whether these are the bytes of the chunk."""
        return len(data) == self.bytes and chunk_id(self.number, data) == self.id


def chunk_id(number: int, data: Data) -> int:
    """The id of the chunk with some bytes that a cell wrote as its ``number``-th."""
    digest = hashlib.sha256(number.to_bytes(8, "big"))
    digest.update(data)
    return int.from_bytes(digest.digest()[:8], "big") >> 2


@dataclass(frozen=True, slots=True)
class Asked:
    """How many instances the cell was asked to run in some run of its query; no result depends on it."""

    run: str
    instances: int


@dataclass(slots=True)
class Directory:
    """What a cell remembers between batches: its chunks, and how far it has come.

    ``watermark`` is the latest it has acted on; ``rounds`` counts the revisions of windows; ``written`` is how many chunks
    it ever wrote.
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
        """The directory as bytes."""
        return json.dumps({"version": DIRECTORY_VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Directory:
        """The directory of some bytes; one of another version is refused."""
        known = json.loads(data)
        version = known.pop("version")
        if version != DIRECTORY_VERSION:
            raise CheckpointError(
                f"the state's directory has version {version}; this tidegate reads {DIRECTORY_VERSION}"
            )
        known["chunks"] = [Chunk(**chunk) for chunk in known["chunks"]]
        known["rounds"] = {int(window): count for window, count in known["rounds"].items()}
        known["asked"] = known["asked"] and Asked(**known["asked"])
        return cls(**known)


class Blobs(Protocol):
    """Durable bytes by id: a state store. Calls are costly, so they are few."""

    def get(self, blob_id: int) -> bytes | None:
        """The bytes, or None."""
        ...

    def put(self, blob_id: int, data: bytes) -> None:
        """Write bytes."""
        ...

    def remove(self, blob_id: int) -> None:
        """Forget bytes."""
        ...


@dataclass(slots=True)
class ChunkStore:
    """Reads and writes chunks for the cell of a directory; called on one thread, the one that owns the state store.

    A file of the cache that differs from the directory costs a warning and a read from the state store; ``damaged`` counts
    those.
    """

    directory: Directory
    blobs: Blobs
    cache: ChunkCache | None
    damaged: int = 0

    def append(self, piece: Piece, side: int = 0, group: int = NO_GROUP) -> Chunk:
        """Add a piece."""
        number, size = self.directory.written, len(piece.data)
        chunk = Chunk(chunk_id(number, piece.data), piece.low, piece.high, piece.rows, size, number, side, group)
        self.blobs.put(chunk.id, piece.data)
        if cache := self._cache_of(chunk):
            cache.put(chunk.id, piece.data)
        self.directory.chunks.append(chunk)
        self.directory.written += 1
        return chunk

    def update(self, chunk: Chunk, low: int) -> None:
        """Note that what a chunk holds before ``low`` is done with."""
        listed = self.directory.chunks
        listed[listed.index(chunk)] = replace(chunk, low=low)

    def drop(self, chunk: Chunk) -> None:
        """Forget a chunk."""
        self.directory.chunks.remove(chunk)
        self.blobs.remove(chunk.id)
        if cache := self._cache_of(chunk):
            cache.drop(chunk.id)

    def fetch(self, chunk: Chunk) -> Data:
        """The bytes of a chunk."""
        cache = self._cache_of(chunk)
        cached = cache.get(chunk.id) if cache is not None else None
        if cached is not None and chunk.is_made_of(cached):
            return cached
        if cache is not None and cached is not None:
            self.damaged += 1
            LOG.warning(
                "%s is not the chunk that was put there (%d bytes, %d expected): the chunk is read from the state store",
                cache.file(chunk.id),
                len(cached),
                chunk.bytes,
            )
        stored = self.blobs.get(chunk.id)
        if stored is None:
            raise CheckpointError(
                f"chunk {chunk.id:x} is listed in its cell's directory and missing from the state store: {_DAMAGED}"
            )
        if not chunk.is_made_of(stored):
            raise CheckpointError(
                f"the state store holds {len(stored)} bytes as chunk {chunk.id:x} that are not the {chunk.bytes} that were "
                f"written: {_DAMAGED}"
            )
        if cache is not None:
            cache.put(chunk.id, stored)
        return stored

    def _cache_of(self, chunk: Chunk) -> ChunkCache | None:
        return self.cache if chunk.bytes >= LEAST_CACHED_BYTES else None
