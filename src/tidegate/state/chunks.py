"""The state of a cell: immutable chunks of encoded tables, and the directory of each batch that lists them.

A chunk is a table in Arrow's IPC format, compressed, with a version; never pickle. Panes leave their kernels in the order
of their keys, so they shrink to a quarter and less. Its name holds the batch that wrote it, a digest of its bytes, and what
the bytes leave out: an attempt that does the same writes the same file, one that does not writes another, and damage is
noticed.

A cell gathers what it adds in a `ChunkStore` and commits once: chunks first, then the directory that lists them. Decoded
chunks stay in the memory of the process, by their names, so that a worker which has a cell again reads nothing.

An entry of a directory says of which shards the cell lists the chunk. When shards move to another cell, that cell lists the
same chunks for them, and the one that had them lists them for the rest: nothing is copied.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from tidegate.errors import CheckpointError
from tidegate.state.epochs import ALL, CellEpoch, ShardSet, first_mapping
from tidegate.state.worker_memory import cache_bytes
from tidegate.watermark import START, Watermark

if TYPE_CHECKING:
    from tidegate.state.step_folder import StepFolder

Data: TypeAlias = bytes | pa.Buffer
Decoded = TypeVar("Decoded")
Spread: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Does some work on each item, on as many threads as there are, and gives the results in the order of the items."""
CHUNK_VERSION = b"3"
DIRECTORY_VERSION = 6
NO_GROUP = -1
_KEY = b"tidegate.chunk"
_COMPRESSION = "zstd"
_DIGEST_CHARACTERS = 32
_DAMAGED = "the state is damaged; restore it from a copy, or start from a new checkpoint"


def encode(table: pa.Table) -> pa.Buffer:
    """The bytes of a table; dictionaries travel with it."""
    marked = table.combine_chunks().replace_schema_metadata({_KEY: CHUNK_VERSION})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION, use_threads=False)
    with pa.ipc.new_stream(sink, marked.schema, options=options) as writer:
        writer.write_table(marked)
    return sink.getvalue()


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
    data: pa.Buffer


@dataclass(frozen=True, slots=True)
class Chunk:
    """One entry of a directory: an immutable chunk.

    It holds panes of the slices ``low`` to ``high``, or tuples of the input ``side`` with event times from ``low`` to
    ``high``, or windows of a ``group`` that end from ``low`` to ``high``. It was ``written`` for some shards, of which the
    cell lists it for ``shards``, and for what lies before the event time ``until`` if there is one; ``rows`` and ``bytes``
    are those of the whole chunk.
    """

    name: str
    low: int
    high: int
    rows: int
    bytes: int
    side: int = 0
    group: int = NO_GROUP
    shards: ShardSet = ALL
    written: ShardSet = ALL
    until: int | None = None

    @property
    def batch(self) -> int:
        """The batch that wrote it."""
        return int(self.name.partition("-")[0])

    @property
    def is_whole(self) -> bool:
        """Whether the cell lists all of it."""
        return self.shards == self.written and self.until is None

    @property
    def share(self) -> float:
        """About how much of it the cell lists."""
        return self.shards.bit_count() / max(self.written.bit_count(), 1)

    @property
    def held_as(self) -> str:
        """The name of what the cell lists of it: what is in memory of a whole chunk is not what is of a part."""
        return (
            self.name
            if self.is_whole
            else f"{self.name}/{_sha256(f'{self.shards:x} {self.until}')[:_DIGEST_CHARACTERS]}"
        )

    def is_made_of(self, data: Data) -> bool:
        """Whether these are the bytes of the chunk."""
        return len(data) == self.bytes and self.name.startswith(_begin_name(self.batch, data))


def chunk_name(batch: int, piece: Piece, side: int = 0, group: int = NO_GROUP) -> str:
    """The name of the chunk that a batch writes of a piece: two with the same bytes, of other slices or sides, differ."""
    return f"{_begin_name(batch, piece.data)}{piece.low}.{side}.{group}"


def _begin_name(batch: int, data: Data) -> str:
    return f"{batch:010}-{hashlib.sha256(data).hexdigest()[:_DIGEST_CHARACTERS]}-"


@dataclass(frozen=True, slots=True)
class Asked:
    """How many instances the cell was asked to run in some run of its query; no result depends on it."""

    run: str
    instances: int


@dataclass(slots=True)
class Directory:
    """What a cell remembers after a batch: its chunks, and how far it has come.

    ``heard`` is the timestamp of the batch in which each source that may idle delivered last, or was first waited for.

    ``watermark`` is the one it has advanced to, ``newest`` the latest event time of each source, ``last_time`` the latest of
    any tuple of those sources or of the step, ``rounds`` the revisions of windows. ``clocks`` are the timestamps of the
    newest batches that brought one, and ``digest`` says what the batch brought: attempts of one batch agree on both. ``run``
    wrote it, and began at ``began_ns`` by the worker's clock.

    ``epoch`` was in force in the batch and ``following``, if any, is from the next one on: all cells of a step have the
    same. ``cells`` are the least and the most cells that the run was started with.
    """

    fingerprint: str
    watermark: Watermark = START
    newest: dict[str, Watermark] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    rounds: dict[int, int] = field(default_factory=dict)
    asked: Asked | None = None
    clocks: list[int] = field(default_factory=list)
    digest: str = ""
    run: str = ""
    began_ns: int = 0
    last_time: Watermark = START
    epoch: CellEpoch = field(default_factory=lambda: CellEpoch(0, first_mapping(1)))
    following: CellEpoch | None = None
    cells: tuple[int, int] = (1, 1)
    heard: dict[str, int] = field(default_factory=dict)

    def without_state(self) -> Directory:
        """That of a cell which has come as far and holds nothing."""
        return replace(
            self,
            newest=dict(self.newest),
            heard=dict(self.heard),
            chunks=[],
            rounds={},
            asked=None,
            clocks=list(self.clocks),
        )

    def state_rows(self) -> int:
        """How many rows the chunks hold; panes of one key in several chunks are counted several times."""
        return round(sum(chunk.rows * chunk.share for chunk in self.chunks))

    def state_bytes(self) -> int:
        """How many bytes the chunks take; of a chunk that is shared with other cells about its part."""
        return round(sum(chunk.bytes * chunk.share for chunk in self.chunks))

    def encode(self) -> bytes:
        """The directory as bytes, with a checksum; sets of shards are listed once."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        fields["chunks"] = [asdict(chunk) for chunk in self.chunks]
        fields["asked"] = None if self.asked is None else asdict(self.asked)
        sets: dict[ShardSet, int] = {}
        for chunk in fields["chunks"]:
            for name in ("shards", "written"):
                chunk[name] = sets.setdefault(chunk[name], len(sets))
        fields["sets"] = [f"{shards:x}" for shards in sets]
        fields["epoch"] = self.epoch.encode()
        fields["following"] = None if self.following is None else self.following.encode()
        text = json.dumps(fields, sort_keys=True)
        return json.dumps({"version": DIRECTORY_VERSION, "sha256": _sha256(text), "directory": text}).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Directory:
        """The directory of some bytes; one that is damaged, or of another version, is refused."""
        try:
            known = json.loads(data)
            version, text = known["version"], known["directory"]
            whole = version != DIRECTORY_VERSION or _sha256(text) == known["sha256"]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{where} holds no directory of tidegate: {_DAMAGED}") from error
        if version != DIRECTORY_VERSION:
            raise CheckpointError(f"{where} has version {version}; this tidegate reads {DIRECTORY_VERSION}")
        if not whole:
            raise CheckpointError(f"{where} is not what was written there: {_DAMAGED}")
        fields: dict[str, Any] = json.loads(text)
        sets = [int(shards, 16) for shards in fields.pop("sets")]
        for chunk in fields["chunks"]:
            chunk["shards"], chunk["written"] = sets[chunk["shards"]], sets[chunk["written"]]
        fields["chunks"] = [Chunk(**chunk) for chunk in fields["chunks"]]
        fields["epoch"] = CellEpoch.decode(fields["epoch"])
        fields["following"] = fields["following"] and CellEpoch.decode(fields["following"])
        fields["cells"] = tuple(fields["cells"])
        fields["rounds"] = {int(window): count for window, count in fields["rounds"].items()}
        fields["asked"] = fields["asked"] and Asked(**fields["asked"])
        return cls(**fields)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(slots=True)
class ChunkMemory:
    """Decoded chunks by place, those used least lately forgotten when they take more than `limit_bytes` or `cache_bytes`."""

    limit_bytes: int | None = None
    _held: dict[str, tuple[int, Any]] = field(default_factory=dict)
    _bytes: int = 0

    def get(self, name: str) -> Any:
        """What is known of a chunk, or None."""
        found = self._held.pop(name, None)
        if found is None:
            return None
        self._held[name] = found
        return found[1]

    def put(self, name: str, nbytes: int, decoded: Any) -> None:
        """Keep a decoded chunk."""
        self.drop(name)
        self._held[name] = nbytes, decoded
        self._bytes += nbytes
        limit = cache_bytes() if self.limit_bytes is None else self.limit_bytes
        while self._bytes > limit and len(self._held) > 1:
            self.drop(next(iter(self._held)))

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()
        self._bytes = 0

    def drop(self, name: str) -> None:
        """Forget a chunk."""
        nbytes, _ = self._held.pop(name, (0, None))
        self._bytes -= nbytes


IN_THIS_PROCESS = ChunkMemory()
"""Spark builds the operators of a batch anew: what lasts longer has to be the process's own."""


@dataclass(slots=True)
class ChunkStore:
    """The chunks of a cell during one batch: what is listed is read, what is added is written by `commit`."""

    directory: Directory
    folder: StepFolder
    batch: int
    memory: ChunkMemory = field(default_factory=lambda: IN_THIS_PROCESS)
    owned: ShardSet = ALL
    read_bytes: int = 0
    _added: dict[str, Data] = field(default_factory=dict)

    def append(self, piece: Piece, side: int = 0, group: int = NO_GROUP, shards: ShardSet | None = None) -> Chunk:
        """Add a piece, of some shards if not of all that the cell has. Two with the same bytes have different names."""
        name = chunk_name(self.batch, piece, side, group)
        while name in self._added:
            name += "_"
        of = self.owned if shards is None else shards
        chunk = Chunk(name, piece.low, piece.high, piece.rows, len(piece.data), side, group, of, of)
        self._added[name] = piece.data
        self.directory.chunks.append(chunk)
        return chunk

    def remember(self, chunk: Chunk, nbytes: int, decoded: Any) -> None:
        """Keep what a chunk holds, as `read` would give it."""
        self.memory.put(self._place(chunk), nbytes, decoded)

    def remembered(self, chunk: Chunk) -> Any:
        """What is in memory of a chunk, or None."""
        return self.memory.get(self._place(chunk))

    def update(self, chunk: Chunk, low: int) -> None:
        """Note that what a chunk holds before ``low`` is done with."""
        listed = self.directory.chunks
        listed[listed.index(chunk)] = replace(chunk, low=low)

    def drop(self, chunk: Chunk) -> None:
        """Forget a chunk; its file stays as long as the directory of an earlier batch may be read."""
        self.directory.chunks.remove(chunk)
        self.memory.drop(self._place(chunk))

    def read(
        self,
        listed: Sequence[Chunk],
        build: Callable[[Data, Chunk], tuple[Decoded, int]],
        spread: Spread,
        *,
        keep: bool = True,
    ) -> list[Decoded]:
        """What chunks hold, each decoded by ``build`` into something of so many bytes unless it is in memory.

        Chunks are fetched and decoded by what ``spread`` has, several at once if it can. Without ``keep`` the caller has
        it in its own memory.
        """
        missing = [chunk for chunk in listed if self.remembered(chunk) is None]
        self.read_bytes += sum(chunk.bytes for chunk in missing if chunk.name not in self._added)
        built = spread(lambda chunk: build(self._fetch(chunk), chunk), missing)
        found = {chunk.held_as: each for chunk, each in zip(missing, built, strict=True)}
        held = [found[chunk.held_as][0] if chunk.held_as in found else self.remembered(chunk) for chunk in listed]
        if keep:
            for chunk in missing:
                decoded, nbytes = found[chunk.held_as]
                self.remember(chunk, nbytes, decoded)
        return held

    def commit(self, cell: int, batch: int | None = None) -> None:
        """Write what was added and is still listed, then the directory, after another batch than its own if one is given."""
        listed = {chunk.name for chunk in self.directory.chunks}
        self.folder.put_chunks({name: data for name, data in self._added.items() if name in listed})
        self.folder.put_directory(cell, self.batch if batch is None else batch, self.directory)

    def _place(self, chunk: Chunk) -> str:
        """Where a chunk is: other steps, and other queries in this process, may have one of its name."""
        return f"{self.folder.where}/{chunk.held_as}"

    def _fetch(self, chunk: Chunk) -> Data:
        added = self._added.get(chunk.name)
        return self.folder.get_chunk(chunk) if added is None else added


def missing_chunk(name: str, where: str) -> CheckpointError:
    """The error of a chunk that a directory lists and that is not there."""
    return CheckpointError(f"chunk {name} is listed in its cell's directory and missing from {where}: {_DAMAGED}")


def altered_chunk(chunk: Chunk, found: int, where: str) -> CheckpointError:
    """The error of a chunk with other bytes than were written."""
    return CheckpointError(
        f"{where} holds {found} bytes as chunk {chunk.name} that are not the {chunk.bytes} that were written: {_DAMAGED}"
    )
