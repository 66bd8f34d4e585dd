"""Takes snapshots of a run while it goes on, writes them in the background, and begins a run where a snapshot was taken.

A snapshot is a marker that all inlets pass to their gates (`tidegate.gate.align`). At each gate it cuts the log; the first
instance to get there hands over the state of its subquery, all of them pass the marker on, and the output thread drafts the
part of the sink that ends there. When all have, it is encoded and written on a thread of its own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from tidegate.compile.plan import OUTPUT, Plan
from tidegate.gate.align import GateCut
from tidegate.gate.gate import GateAborted
from tidegate.query.nodes import Source
from tidegate.runtime.local.checkpoint import (
    FIRST,
    LocalCheckpoint,
    SnapshotList,
    StateFromSpark,
    gate_step,
    state_step,
)
from tidegate.runtime.local.durable_folder import DraftedPart, ToDurableFolders
from tidegate.runtime.local.graph import Graph
from tidegate.runtime.local.sources.assignment import assigned
from tidegate.sources.files import Files
from tidegate.sources.growing import FolderReader, GrowingFiles
from tidegate.sources.kafka import TopicOrigin
from tidegate.sources.positions import ReadPosition, absolute_paths, files_from
from tidegate.state.snapshot import StateCut


@dataclass(frozen=True, slots=True)
class Durable:
    """How a run is made to go on after it was killed: its checkpoint, its sink, and how often a snapshot is taken."""

    checkpoint: LocalCheckpoint
    sink: ToDurableFolders
    every_seconds: float

    @staticmethod
    def open(
        plan: Plan, folder: Path, sink: ToDurableFolders, every_seconds: float, continues: StateFromSpark | None = None
    ) -> Durable:
        """Lock a checkpoint, and put its sink where the newest snapshot was taken.

        A run that begins may go on from another one.
        """
        checkpoint = LocalCheckpoint.open(folder, plan, str(sink))
        try:
            if continues is not None:
                checkpoint.begin_with(continues, sink)
            if checkpoint.last is None:
                sink.begin()
            else:
                last = checkpoint.last
                sink.recover(last.number, last.parts, last.next_parts, last.sink_state)
        except BaseException:
            checkpoint.close()
            raise
        return Durable(checkpoint, sink, every_seconds)

    def plan(self, plan: Plan) -> Plan:
        """A plan that reads the files which are left, in the order in which they were known before, and topics likewise."""
        last = self.checkpoint.last
        order = {id(source): number for number, source in enumerate(plan.sources)}

        def left(source: Source) -> Source:
            before = None if last is None or last.finished else last.positions[order[id(source)]]
            match source.origin:
                case Files():
                    files = absolute_paths(source.origin)
                    return replace(source, origin=files if before is None else files_from(files, before, source.name))
                case GrowingFiles() as growing:
                    reader = FolderReader(growing) if before is None else FolderReader.at(growing, before, source.name)
                    return replace(source, origin=reader)
                case TopicOrigin() if last is None or not (last.finished or last.positions[order[id(source)]].ended):
                    return assigned(source, () if before is None else before.partitions)
                case _:
                    return source

        return plan.reading(left)

    def snapshots(self, graph: Graph, fail: Callable[[BaseException], None]) -> Snapshots:
        """The snapshots of a run that is about to start."""
        return Snapshots(self.checkpoint, graph, self.sink, self.every_seconds, fail)


@dataclass(slots=True, eq=False)
class Snapshot:
    """A snapshot that is being taken: the marker that goes through the gates, and what it has met there."""

    number: int
    waiting: set[int]
    ended: set[int]
    positions: tuple[ReadPosition, ...] = ()
    gates: dict[int, GateCut] = field(default_factory=dict)
    states: dict[int, StateCut | None] = field(default_factory=dict)
    parts: tuple[DraftedPart, ...] = ()


@dataclass(slots=True, eq=False)
class Snapshots:
    """The snapshots of one run; one at a time is on its way."""

    checkpoint: LocalCheckpoint
    graph: Graph
    sink: ToDurableFolders
    every_seconds: float
    fail: Callable[[BaseException], None]
    _under_way: Snapshot | None = None
    _ended: set[int] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopped: bool = False
    _failure: BaseException | None = None
    _idle: threading.Event = field(default_factory=threading.Event)
    _taking: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for running in self.graph.subqueries:
            running.on_cut, running.on_end = self.on_cut, self.on_end

    def restore(self) -> None:
        """Put the graph where the newest snapshot was taken, before anything runs."""
        last = self.checkpoint.last
        for number, inlet in enumerate(self.graph.inlets):
            if last is not None:
                before, first = last.positions[number], inlet.position
                new = tuple(path for path in first.files if path not in set(before.files))
                inlet.position = replace(
                    before,
                    files=(*before.files, *new),
                    partitions=first.partitions,
                    ended=before.ended or last.finished,
                )
        if last is None:
            return
        if last.finished:
            return
        for target, gate in self.graph.gates.items():
            if target not in last.ended:
                gate.resume(self.checkpoint.read_gate(target))
        for running in self.graph.subqueries:
            number = running.subquery.number
            if number not in last.ended and running.subquery.operator is not None:
                running.work.restore(self.checkpoint.read_from(state_step(number)), running.gate.watermark)

    def run(self) -> None:
        """Take snapshots until the run ends; on a thread of its own."""
        try:
            while not self._wait_for_next():
                self.take()
        except GateAborted:
            pass
        except BaseException as error:
            self._failure = error
            self.fail(error)
        finally:
            self._idle.set()

    def finish(self) -> None:
        """All input was read and all results are in the sink: commit them, as the last thing of the run."""
        self._stop()
        if self._failure is not None:
            # What became of the parts of the snapshot that failed is for the next run to find out.
            raise self._failure
        if self.checkpoint.last is not None and self.checkpoint.last.finished:
            return
        parts = self.sink.drafted()
        positions = tuple(replace(inlet.position, ended=True) for inlet in self.graph.inlets)
        self._commit(replace(self._list(self._next_number, positions, parts), finished=True))

    def close(self) -> None:
        """The run is over, well or not: let go of the checkpoint."""
        self._stop()
        self.checkpoint.close()

    def _stop(self) -> None:
        """Take no more snapshots; returns when the one that is being written is complete."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._idle.wait()

    # Called by the threads of the run.

    def on_cut(self, target: int, cut: GateCut, state: StateCut | None) -> None:
        """The first instance of a subquery has met a marker."""
        self._met(target, cut, state)

    def on_output_cut(self, cut: GateCut) -> None:
        """The output has met a marker: what it got before belongs to the snapshot."""
        parts = self.sink.draft()
        self._met(OUTPUT, cut, None, parts)

    def on_end(self, target: int) -> None:
        """The input of a subquery has ended: no marker comes there any more."""
        with self._changed:
            self._ended.add(target)
            if self._under_way is not None and target in self._under_way.waiting:
                self._under_way.waiting.discard(target)
                self._under_way.ended.add(target)
            self._changed.notify_all()

    def _met(self, target: int, cut: GateCut, state: StateCut | None, parts: tuple[DraftedPart, ...] = ()) -> None:
        snapshot = cut.marker
        assert isinstance(snapshot, Snapshot)
        with self._changed:
            snapshot.gates[target], snapshot.states[target] = cut, state
            snapshot.parts += parts
            snapshot.waiting.discard(target)
            self._changed.notify_all()

    # On the thread that takes snapshots.

    @property
    def _next_number(self) -> int:
        return FIRST if self.checkpoint.last is None else self.checkpoint.last.number + 1

    def _wait_for_next(self) -> bool:
        """Wait for as long as it takes to the next snapshot; whether the run has ended."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopped, self.every_seconds)

    def take(self) -> None:
        """Take a snapshot, unless the run ends before it is complete; returns when it is committed."""
        with self._taking:
            self._take()

    def _take(self) -> None:
        with self._changed:
            snapshot = Snapshot(self._next_number, set(self.graph.gates) - self._ended, set(self._ended))
            self._under_way = snapshot
        # All gates before any source: a source that has passed it may have to wait for the others.
        for gate in self.graph.gates.values():
            gate.expect(snapshot)
        snapshot.positions = tuple(inlet.mark() for inlet in self.graph.inlets)
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not snapshot.waiting)
            self._under_way = None
            if snapshot.waiting:
                return
        self._write(snapshot)

    def _write(self, snapshot: Snapshot) -> None:
        for target, cut in snapshot.gates.items():
            held = self.checkpoint.write_to(gate_step(target), snapshot.number)
            held.chunks.directory.watermark, held.chunks.directory.newest = cut.watermark, dict(cut.sources)
            for unready in cut.unready:
                held.put_table(pa.Table.from_batches([unready.batch]), side=unready.input)
            held.chunks.commit(0)
            if (state := snapshot.states[target]) is not None:
                store = self.checkpoint.write_to(state_step(target), snapshot.number)
                state.write(store)
                store.chunks.commit(0)
        positions = tuple(position.measured() for position in snapshot.positions)
        listed = self._list(snapshot.number, positions, snapshot.parts)
        self._commit(replace(listed, ended=tuple(sorted(snapshot.ended))))

    def _list(self, number: int, positions: tuple[ReadPosition, ...], parts: tuple[DraftedPart, ...]) -> SnapshotList:
        checkpoint, last = self.checkpoint, self.checkpoint.last
        added = Counter(part.output for part in parts)
        before = (0,) * len(self.sink.writers) if last is None else last.next_parts
        next_parts = tuple(count + added[output] for output, count in enumerate(before))
        return SnapshotList(
            number,
            checkpoint.run,
            checkpoint.query,
            checkpoint.sink,
            positions,
            (),
            parts,
            next_parts,
            sink_state=self.sink.state(parts),
            continues=None if last is None else last.continues,
        )

    def _commit(self, listed: SnapshotList) -> None:
        self.sink.sync(listed.parts)
        self.checkpoint.commit(listed)
        self.sink.publish(listed.number, listed.parts)
        self.checkpoint.sweep()
