"""All stages in one process: rows, watermarks and snapshot markers go through them, and to the same stages elsewhere.

Every process runs the whole graph on the splits and keys that are its own. Rows for a stage that has keys go to the process
that owns their key, bucketed by slice and key; then the watermark goes to all. The watermark of a stage is the least of its
channels, one for each input and process. A marker cuts every channel of a stage at the same place: a channel that has
delivered it is held until the others have, then the stage is part of the snapshot and the marker goes on (Chandy and
Lamport, with aligned channels).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from tidegate.errors import DataError, InternalError
from tidegate.micro.bags import Slices, bags_of
from tidegate.micro.graph import AggregateStage, Key, ReplayableSource, Row, walk_stages
from tidegate.micro.readers import SourceReaders, SplitPosition
from tidegate.watermark import END, START, Watermark, has_ended


class Message(NamedTuple):
    """What goes to a stage, often in another process: rows, by slice and key if there are keys, a watermark, a marker."""

    stage: int
    port: int
    sender: int
    rows: Slices | list[Row] | None
    watermark: Watermark
    marker: int | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """What a process puts into a snapshot: positions by source and split, and the state of each stage as bytes."""

    positions: Mapping[tuple[str, int], SplitPosition]
    stages: Mapping[str, bytes]


@dataclass(slots=True)
class _StageState:
    """A stage at work in one process: the watermark of each channel, and what is held behind a marker."""

    stage: AggregateStage
    exchanged: bool
    channels: dict[tuple[int, int], Watermark]
    cut: set[tuple[int, int]] = field(default_factory=set)
    held: list[Message] = field(default_factory=list)


class Pipeline:
    """The graph in one process.

    ``send(worker, message)`` takes a message to another process, ``emit(rows)`` takes results, and ``snapshot(number,
    saved)`` is called when a marker has passed all stages, before any row behind it is emitted.
    """

    def __init__(
        self,
        graph: AggregateStage,
        emit: Callable[[list[Row]], None],
        snapshot: Callable[[int, Saved], None],
        send: Callable[[int, Message], None] | None = None,
        worker: int = 0,
        workers: int = 1,
        restored: Sequence[Saved] = (),
    ) -> None:
        self._nodes = walk_stages(graph)
        numbers = {id(node): number for number, node in enumerate(self._nodes)}
        self._emit, self._snapshot, self._send = emit, snapshot, send
        self._worker, self._workers = worker, workers
        self._targets: list[list[tuple[int, int]]] = [[] for _ in self._nodes]
        self._stages: dict[int, _StageState] = {}
        self._bags = {n: bags_of(node) for n, node in enumerate(self._nodes) if isinstance(node, AggregateStage)}
        for number, node in enumerate(self._nodes):
            if isinstance(node, AggregateStage):
                exchanged = workers > 1 and not node.distributes
                senders = range(workers) if exchanged else (worker,)
                ports = range(len(node.inputs))
                self._stages[number] = _StageState(
                    node, exchanged, {(port, sender): START for port in ports for sender in senders}
                )
                for port, upstream in enumerate(node.inputs):
                    self._targets[numbers[id(upstream)]].append((number, port))
        positions = {at: position for saved in restored for at, position in saved.positions.items()}
        sources = {n: node for n, node in enumerate(self._nodes) if isinstance(node, ReplayableSource)}
        self._readers = SourceReaders(sources, worker, workers, positions)
        self._sources = sources
        self._parts: dict[int, dict[str, bytes]] = {}
        self._cut_positions: dict[int, dict[tuple[str, int], SplitPosition]] = {}
        self._told: dict[int, Watermark] = dict.fromkeys(sources, START)
        self._restore(restored)

    @property
    def has_ended(self) -> bool:
        """Whether every stage has seen the end of its input."""
        return all(has_ended(self._bags[number].watermark) for number in self._stages) and all(
            has_ended(told) for told in self._told.values()
        )

    def read(self) -> bool:
        """Read a batch of rows and process it; False when there is none any more."""
        found = self._readers.next()
        if found is not None:
            node, rows = found
            self._told[node] = self._readers.watermark(node)
            self._forward(node, rows, self._told[node])
            return True
        for node in self._sources:
            if not has_ended(self._told[node]):
                self._told[node] = END
                self._forward(node, [], END)
        return False

    def receive(self, message: Message) -> None:
        """Take what another process sent."""
        stage = self._stages[message.stage]
        if (message.port, message.sender) in stage.cut:
            stage.held.append(message)
            return
        if isinstance(message.rows, list):
            self._bags[message.stage].add(message.rows)
        elif message.rows:
            self._bags[message.stage].merge(message.rows)
        self._advance(message.stage, message.port, message.sender, message.watermark)
        if message.marker is not None:
            self._cut(message.stage, message.port, message.sender, message.marker)

    def mark(self, number: int) -> None:
        """Begin a snapshot: note the positions of the splits and send the marker on from all sources."""
        self._cut_positions[number] = self._readers.positions()
        self._parts[number] = {}
        for node in self._sources:
            self._mark_targets(node, number)

    def _forward(self, node: int, rows: list[Row], watermark: Watermark) -> None:
        """Pass rows and then the watermark on to all that read a node."""
        if node == len(self._nodes) - 1 and rows:
            self._emit(rows)
        for target, port in self._targets[node]:
            if self._stages[target].exchanged:
                self._exchange(target, port, rows, watermark)
            else:
                self.receive(Message(target, port, self._worker, rows, watermark))

    def _exchange(self, target: int, port: int, rows: list[Row], watermark: Watermark) -> None:
        parts = self._dealt(target, self._bags[target].sliced(rows)) if rows else {}
        for other in range(self._workers):
            if other != self._worker:
                self._to_other(other, Message(target, port, self._worker, parts.get(other), watermark))
        self.receive(Message(target, port, self._worker, parts.get(self._worker), watermark))

    def _dealt(self, target: int, slices: Slices) -> dict[int, dict[int, dict[Key, list[Row]]]]:
        """Rows by the process that owns their key."""
        parts: dict[int, dict[int, dict[Key, list[Row]]]] = {}
        workers = self._workers
        for start, bags in slices.items():
            for key, rows in bags.items():
                owner = self._owner(target, key) % workers
                parts.setdefault(owner, {}).setdefault(start, {})[key] = rows
        return parts

    def _owner(self, target: int, key: Key) -> int:
        try:
            return stable_hash(key)
        except TypeError as error:
            name = self._stages[target].stage.name
            raise DataError(
                f"stage '{name}': a key is a number, text, bytes, None or a tuple of them; {error}"
            ) from None

    def _to_other(self, worker: int, message: Message) -> None:
        if self._send is None:
            raise InternalError(f"a pipeline of {self._workers} processes has no way to send")
        self._send(worker, message)

    def _advance(self, target: int, port: int, sender: int, watermark: Watermark) -> None:
        channels, bags = self._stages[target].channels, self._bags[target]
        if watermark <= channels[port, sender]:
            return
        channels[port, sender] = watermark
        reached = min(channels.values())
        if reached > bags.watermark:
            self._forward(target, bags.advance(reached), reached)

    def _mark_targets(self, node: int, number: int) -> None:
        for target, port in self._targets[node]:
            if self._stages[target].exchanged:
                for other in range(self._workers):
                    if other != self._worker:
                        self._to_other(other, Message(target, port, self._worker, None, START, number))
            self._cut(target, port, self._worker, number)

    def _cut(self, target: int, port: int, sender: int, number: int) -> None:
        """A channel has delivered a marker; once all have, the stage is saved and goes on."""
        stage = self._stages[target]
        stage.cut.add((port, sender))
        if len(stage.cut) < len(stage.channels):
            return
        self._parts[number][stage.stage.name] = pickle.dumps(self._bags[target].snapshot(), 5)
        self._mark_targets(target, number)
        if target == len(self._nodes) - 1:  # which all others lead to
            self._snapshot(number, Saved(self._cut_positions.pop(number), self._parts.pop(number)))
        stage.cut.clear()
        held, stage.held = stage.held, []
        for message in held:
            self.receive(message)

    def _restore(self, restored: Sequence[Saved]) -> None:
        """Take the keys of this process from the snapshots of all; rows without keys are divided by snapshot."""
        for number, state in self._stages.items():
            for index, saved in enumerate(restored):
                watermark, slices = pickle.loads(saved.stages[state.stage.name])
                if state.stage.distributes:
                    mine = index % self._workers == self._worker
                    self._bags[number].restore(watermark, slices if mine else {}, lambda key: True)
                else:
                    self._bags[number].restore(watermark, slices, self._owns)

    def _owns(self, key: Key) -> bool:
        return self._workers == 1 or stable_hash(key) % self._workers == self._worker


def stable_hash(key: Any) -> int:
    """A number that is the same for equal keys in every process.

    >>> stable_hash(("a", 1)) == stable_hash(("a", 1.0)), stable_hash("a")
    (True, 3904355907)
    """
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, int | float):
        return hash(key) if key == key else 0
    if key is None:
        return 0
    if isinstance(key, bytes):
        return crc32(key)
    if isinstance(key, tuple):
        return _combined(map(stable_hash, key))
    raise TypeError(f"got {type(key).__name__}")


def _combined(hashes: Iterable[int]) -> int:
    combined = 1
    for each in hashes:
        combined = (combined * 1_000_003 + each) & 0xFFFF_FFFF_FFFF
    return combined
