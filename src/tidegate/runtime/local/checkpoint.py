"""The checkpoint of a run in this process: its snapshots, each in force when the file that lists it appears.

::

    lock                     held while a run uses the checkpoint
    snapshots/<number>       what the query is, how far sources were read, which parts of the output belong to it
    state/<step>/            chunks and directories, as on Spark: state-<n> of a subquery, gate-<n> what its gate holds
    results/                 drafts of results that go to a topic, until they are committed there

Chunks and directories come first, then the parts of the output, synced under the names of drafts, then the list, which
commits all of it; then parts get their names. What a run that was killed has left is either listed or of no use.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidegate.compile.plan import OUTPUT, Plan
from tidegate.errors import CheckpointError, UnsupportedError
from tidegate.gate.align import GateCut, UnreadyBatch
from tidegate.operators.fingerprint import check_fingerprint, fingerprint
from tidegate.query.nodes import detached
from tidegate.query.schema import show_columns
from tidegate.results import local_folder
from tidegate.runtime.local.durable_folder import DraftedPart, ToDurableFolders
from tidegate.sources.files import Files
from tidegate.sources.growing import GrowingFiles
from tidegate.sources.in_memory import Marked, TableOrigin
from tidegate.sources.kafka import KafkaTopic, TopicOrigin
from tidegate.sources.positions import ReadPosition, position_from
from tidegate.state.chunks import ChunkMemory, ChunkStore, Directory
from tidegate.state.run_lock import lock_folder
from tidegate.state.snapshot import SnapshotStore
from tidegate.state.step_folder import StepFolder
from tidegate.state.storage import Storage, open_storage

VERSION = 1
SNAPSHOTS = "snapshots"
RESULTS = "results"
KEPT_BEFORE_LAST = 1
FIRST = 1
"""The number of the first snapshot."""
_DAMAGED = (
    "the checkpoint is damaged; restore it from a copy, or start from a new one, with an empty folder for results"
)


@dataclass(frozen=True, slots=True)
class SnapshotList:
    """One snapshot: which run took it, of what query into what sink, how far sources were, and what it commits there.

    ``positions`` are those of the sources in their order, ``ended`` the subqueries whose input had ended, ``parts`` what the
    output has got since the snapshot before, ``next_parts`` the number of the next one of each result, ``sink_state`` what
    else the sink wants to know again. A ``finished`` run has no state. ``continues`` is the checkpoint of the run that this
    one goes on from, if it does.
    """

    number: int
    run: str
    query: str
    sink: str
    positions: tuple[ReadPosition, ...]
    ended: tuple[int, ...]
    parts: tuple[DraftedPart, ...]
    next_parts: tuple[int, ...]
    finished: bool = False
    sink_state: Mapping[str, Any] = field(default_factory=dict)
    continues: str | None = None

    def encode(self) -> bytes:
        """The list as bytes, with a checksum."""
        text = json.dumps(asdict(self), sort_keys=True)
        return json.dumps({"version": VERSION, "sha256": _sha256(text), "snapshot": text}).encode()

    @staticmethod
    def decode(data: bytes, where: str) -> SnapshotList:
        """The list of some bytes; one that is damaged, or of another version, is refused."""
        try:
            known = json.loads(data)
            version, text, digest = known["version"], known["snapshot"], known["sha256"]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{where} holds no snapshot of tidegate: {_DAMAGED}") from error
        if version != VERSION:
            raise CheckpointError(f"{where} has version {version}; this tidegate reads {VERSION}")
        if digest != _sha256(text):
            raise CheckpointError(f"{where} is not what was written there: {_DAMAGED}")
        fields = json.loads(text)
        fields["positions"] = tuple(map(position_from, fields["positions"]))
        fields["parts"] = tuple(DraftedPart(**each) for each in fields["parts"])
        fields["ended"], fields["next_parts"] = tuple(fields["ended"]), tuple(fields["next_parts"])
        return SnapshotList(**fields)


@dataclass(frozen=True, slots=True)
class StateFromSpark:
    """The checkpoint of a run on Spark that a new one goes on from, and what brings its state over to a checkpoint."""

    of: Path
    bring: Callable[[LocalCheckpoint], tuple[ReadPosition, ...]]


@dataclass(slots=True, eq=False)
class LocalCheckpoint:
    """A checkpoint that a run has locked. ``last`` is its newest snapshot, None if there is none."""

    folder: Path
    query: str
    sink: str
    last: SnapshotList | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _storage: Storage = field(init=False)
    _lock: ExitStack = field(default_factory=ExitStack)
    _known: dict[str, SnapshotStore] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._storage = open_storage(str(self.folder))

    @staticmethod
    def open(folder: Path, plan: Plan, sink: str) -> LocalCheckpoint:
        """Lock a checkpoint and read its newest snapshot; refused if it is another query's, or no checkpoint."""
        found = LocalCheckpoint(folder, query_of(plan), sink)
        others = (
            {path.name for path in folder.glob("*")} - {"lock", SNAPSHOTS, "state", RESULTS}
            if folder.is_dir()
            else set()
        )
        if others:
            kind = "a checkpoint of a run on Spark" if "tidegate.json" in others else "no checkpoint of tidegate"
            raise CheckpointError(
                f"{folder} is {kind}: it holds {', '.join(sorted(others)[:5])}; choose an empty or new folder"
            )
        found._lock.enter_context(lock_folder(folder))
        try:
            found._read()
        except BaseException:
            found.close()
            raise
        return found

    @property
    def newest(self) -> SnapshotList:
        """The newest snapshot, of which there is one."""
        assert self.last is not None
        return self.last

    @staticmethod
    def of_stopped(folder: Path, plan: Plan) -> LocalCheckpoint:
        """The checkpoint of a run that another one goes on from, which has locked it; nothing is written there."""
        found = LocalCheckpoint(folder, query_of(plan), "")
        found.last = found._newest()
        if found.last is None:
            raise CheckpointError(
                f"{folder} holds no snapshot yet, so there is nothing to go on from; leave continue_from out"
            )
        return found

    def close(self) -> None:
        """Let go of the checkpoint."""
        self._lock.close()

    def commit(self, snapshot: SnapshotList) -> None:
        """Commit a snapshot whose chunks, directories and parts are written."""
        self._storage.put(f"{SNAPSHOTS}/{snapshot.number:010}", snapshot.encode())
        self.last = snapshot

    def sweep(self) -> None:
        """Remove the snapshots before the last two, and what only they need."""
        if self.last is None:
            return
        first = self.last.number - KEPT_BEFORE_LAST
        old = [name for name in self._storage.names(SNAPSHOTS) if int(name) < first]
        self._storage.remove(f"{SNAPSHOTS}/{name}" for name in old)
        for step in self._known:
            self._folder(step, self.run).sweep(self.last.number)

    def write_to(self, step: str, number: int) -> SnapshotStore:
        """What a step puts into a snapshot; to be committed with `write`."""
        before = self._known.get(step)
        chunks = ChunkStore(Directory(step), self._folder(step, self.run), number, ChunkMemory())
        self._known[step] = SnapshotStore(chunks) if before is None else SnapshotStore(chunks, before.known)
        return self._known[step]

    def read_from(self, step: str) -> SnapshotStore:
        """What a step has in the newest snapshot."""
        assert self.last is not None
        folder = self._folder(step, self.last.run)
        directory = folder.written(0, self.last.number)
        if directory is None:
            raise CheckpointError(
                f"the state of snapshot {self.last.number} is missing from {folder.where}: {_DAMAGED}"
            )
        self._known[step] = SnapshotStore(ChunkStore(directory, folder, self.last.number, ChunkMemory()))
        return self._known[step]

    def read_gate(self, target: int) -> GateCut:
        """The gate before a subquery, or before the output, in the newest snapshot."""
        held = self.read_from(gate_step(target))
        directory = held.chunks.directory
        unready = [
            UnreadyBatch(chunk.side, batch)
            for chunk, table in held.tables()
            for batch in table.combine_chunks().to_batches()
        ]
        return GateCut(None, directory.watermark, tuple(unready), directory.newest)

    def begin_with(self, start: StateFromSpark, sink: ToDurableFolders) -> None:
        """Begin with what another run left, unless this one has begun; refused if it has begun otherwise."""
        if self.last is None:
            sink.begin()
            positions, outputs = start.bring(self), len(sink.writers)
            state, of = sink.state(()), str(start.of)
            first = SnapshotList(
                FIRST, self.run, self.query, self.sink, positions, (), (), (0,) * outputs, False, state, of
            )
            self.commit(first)
        elif self.last.continues != str(start.of):
            begun = "began anew" if self.last.continues is None else f"goes on from {self.last.continues}"
            raise CheckpointError(
                f"{self.folder} is of a run that {begun}, and continue_from={str(start.of)!r} is for one that begins; leave "
                "it out, or choose a new checkpoint and a new folder for results"
            )

    def _folder(self, step: str, run: str) -> StepFolder:
        return StepFolder(self._storage, f"state/{step}", step, run, KEPT_BEFORE_LAST)

    def _newest(self) -> SnapshotList | None:
        """The newest snapshot; refused if it is another query's."""
        names = self._storage.names(SNAPSHOTS)
        if not names:
            return None
        where = f"{SNAPSHOTS}/{names[-1]}"
        data = self._storage.get(where)
        assert data is not None
        found = SnapshotList.decode(bytes(data), f"{self.folder}/{where}")
        check_fingerprint(found.query, self.query, str(self.folder))
        return found

    def _read(self) -> None:
        found = self._newest()
        if found is not None and found.sink != self.sink:
            raise CheckpointError(
                f"{self.folder} belongs to a run that writes {found.sink}, not {self.sink}: what was written before would "
                "be missing there. Go on with the same folder, or start from a new checkpoint"
            )
        self.last = found


def gate_step(target: int) -> str:
    """Where the gate before a subquery is, or that before the output."""
    return f"gate-{'output' if target == OUTPUT else target}"


def state_step(target: int) -> str:
    """Where the state of a subquery is."""
    return f"state-{target}"


def query_of(plan: Plan) -> str:
    """What snapshots of a plan depend on: its sources, the columns that gates hold, and its stateful steps."""
    parts = [f"stream '{source.name}' ({show_columns(source.schema)})" for source in plan.sources]
    for subquery in plan.subqueries:
        if subquery.operator is not None:
            parts.append(fingerprint(detached(subquery.operator)))
    for feed in plan.feeds:
        origin = feed.origin if isinstance(feed.origin, int) else feed.origin.name
        late = "" if feed.late_side is None else f", late at input {feed.late_side},"
        parts.append(f"from {origin}{late} to {feed.target}.{feed.input} ({show_columns(feed.schema)})")
    return " | ".join(parts)


def refuse_undurable(plan: Plan, given: Mapping[str, object], to: object, folder: Path) -> None:
    """Refuse what a run with a checkpoint cannot go on with after it was killed."""
    if not isinstance(to, str | Path | KafkaTopic):
        raise UnsupportedError(
            f"checkpoint: results go to {'nothing' if to is None else 'a function'}, where a run that goes on would bring "
            "some of them twice; name a folder or a topic: to=..."
        )
    if not isinstance(to, KafkaTopic):
        results = local_folder(to, "to")
        if results.is_relative_to(folder) or (
            folder.is_relative_to(results) and folder.relative_to(results).parts[0][0] not in "_."
        ):
            raise UnsupportedError(
                f"checkpoint: readers of the results in {results} would take {folder} for some of them; choose a folder "
                f"beside the results, or {results / '_checkpoint'}"
            )
    for source in plan.sources:
        items = source.origin.items if isinstance(source.origin, Marked) else source.origin
        if not isinstance(items, Files | GrowingFiles | TableOrigin | TopicOrigin | list | tuple):
            raise UnsupportedError(
                f"checkpoint: stream '{source.name}' reads a {type(items).__name__}, which does not say how it is read on "
                "from where it was; write its items to files, or make a table or a list of them"
            )
        if source.dead_letters is not None:
            raise UnsupportedError(
                f"checkpoint: stream '{source.name}' sets malformed records aside in {source.dead_letters}, where a run "
                "that goes on would write some of them twice; leave dead_letters out, or run it on='spark'"
            )
    for name, why in UNDURABLE.items():
        if given.get(name) is not None:
            raise UnsupportedError(f"checkpoint: {name}={given[name]!r} cannot be kept exact: {why}")


UNDURABLE: Mapping[str, str] = {
    "late_to": "late tuples of a run that goes on would be written twice; leave it out, or run it on='spark'",
}
"""What cannot be asked for together with a checkpoint, and why."""


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
