"""Control in band: messages of a small file stream that travel with the data.

There are three: the end of the input, by which every window expires; the number of instances of cells; and the next mapping
of shards to cells. They reach every cell of every stateful step, in the batch that reads them. Spark's offset log makes them
replay-safe. A message is one line of JSON that begins with its version, and says when it was sent: of several in one batch
the one sent last counts.

What a file holds that is no message is left out and reported. It must not stop the query: the file is in the offsets of the
batch that read it, so it would stop every restart as well.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.errors import QueryError, UserError
from tidegate.operators.cells import MOST_CELLS, MOST_INSTANCES
from tidegate.state.epochs import ADOPT, PROTOCOLS, SHARDS_OF_A_STEP, checked_mapping

VERSION = 2
PULSE = "tidegate_control"
STEPS = "_tidegate.json"
"""A file in the folder of a control stream, not part of it, that says which steps the query has."""
ADVICE = "write to a control stream with the functions of tidegate, of the version that runs the query"
LOG = logging.getLogger("tidegate.spark")


def _encoded(kind: str, fields: Mapping[str, Any]) -> str:
    return json.dumps({"tidegate": VERSION, "kind": kind, **fields})


@dataclass(frozen=True, slots=True)
class EndInput:
    """The message that ends the input."""

    def __str__(self) -> str:
        return _encoded("end", {})


@dataclass(frozen=True, slots=True)
class SetInstances:
    """The message that sets the number of instances: of all cells, of those of a step, or of some cells by their number."""

    sent_ns: int
    instances: int | Mapping[int, int]
    step: str | None = None

    def __post_init__(self) -> None:
        numbers = [self.instances] if isinstance(self.instances, int) else list(self.instances.values())
        for number in numbers:
            _require(1 <= number <= MOST_INSTANCES, f"a cell has from 1 to {MOST_INSTANCES} instances, not {number}")

    def __str__(self) -> str:
        given = self.instances if isinstance(self.instances, int) else {str(k): v for k, v in self.instances.items()}
        return _encoded("instances", {"sent_ns": self.sent_ns, "step": self.step, "instances": given})

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> SetInstances:
        given = fields["instances"]
        some = given if isinstance(given, int) else {int(cell): int(number) for cell, number in given.items()}
        return cls(int(fields["sent_ns"]), some, _step(fields))

    def of(self, cell: int) -> int | None:
        """The number that a cell is to have; None if nothing is said of it."""
        return self.instances if isinstance(self.instances, int) else self.instances.get(cell)


@dataclass(frozen=True, slots=True)
class SetMapping:
    """The message that sets the next mapping of a step, or of all of them.

    It says how many ``cells`` are to have shards, or the cells of all shards, or those of the shards that are to move.
    """

    sent_ns: int
    cells: int | None = None
    mapping: tuple[int, ...] | None = None
    moves: Mapping[int, int] = field(default_factory=dict)
    protocol: str = ADOPT
    step: str | None = None

    def __post_init__(self) -> None:
        _require(self.cells is None or 1 <= self.cells <= MOST_CELLS, f"a step has from 1 to {MOST_CELLS} cells")
        _require(self.protocol in PROTOCOLS, f"there is no protocol {self.protocol!r}; choose one of {PROTOCOLS}")
        if self.mapping is not None:
            checked_mapping(self.mapping, MOST_CELLS)
        for shard, cell in self.moves.items():
            known = 0 <= shard < SHARDS_OF_A_STEP and 0 <= cell < MOST_CELLS
            _require(known, f"shards are from 0 to {SHARDS_OF_A_STEP - 1} and cells from 0; {shard}: {cell} came")

    def __str__(self) -> str:
        fields: dict[str, Any] = {"sent_ns": self.sent_ns, "step": self.step, "protocol": self.protocol}
        fields |= {"cells": self.cells, "mapping": None if self.mapping is None else list(self.mapping)}
        return _encoded("mapping", {**fields, "moves": {str(shard): cell for shard, cell in self.moves.items()}})

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> SetMapping:
        moves = {int(shard): int(cell) for shard, cell in fields["moves"].items()}
        mapping = None if fields["mapping"] is None else tuple(map(int, fields["mapping"]))
        cells = None if fields["cells"] is None else int(fields["cells"])
        return cls(int(fields["sent_ns"]), cells, mapping, moves, str(fields["protocol"]), _step(fields))


END = str(EndInput())
Message: TypeAlias = EndInput | SetInstances | SetMapping
_BEGIN = f'{{"tidegate": {VERSION}, '


def parse(text: str) -> Message | None:
    """The message of a text; None if it is none."""
    if not text.startswith(_BEGIN):
        return None
    try:
        fields = json.loads(text)
        match fields["kind"]:
            case "end":
                return EndInput()
            case "instances":
                return SetInstances.decode(fields)
            case "mapping":
                return SetMapping.decode(fields)
    except (ValueError, KeyError, TypeError, AttributeError, UserError):
        pass
    return None


def for_step(messages: Iterable[str], number: int, name: str) -> tuple[list[SetInstances], list[SetMapping]]:
    """The messages to the cells of a step, in the order in which they were sent. What is none is left out and logged."""
    instances, mappings = [], []
    for text in messages:
        message = parse(text)
        if message is None:
            LOG.warning("%s: left out; %s", text, ADVICE)
        elif not isinstance(message, EndInput) and message.step in (None, name, step_label(number, name)):
            if isinstance(message, SetInstances):
                instances.append(message)
            else:
                mappings.append(message)
    return sorted(instances, key=lambda each: each.sent_ns), sorted(mappings, key=lambda each: each.sent_ns)


def step_label(number: int, name: str) -> str:
    """How reports name a step."""
    return f"{number + 1}:{name}"


def control_rows(spark: SparkSession, folder: str, build: str) -> DataFrame:
    """The messages of a control stream, and remarks on what is in the place of some, as texts.

    Spark prunes a branch that brings nothing in a batch; one that is observed stays, so what reads it runs in every batch.
    A Spark query may hold several queries of ours; what is observed of each has a name of its own, by its ``build``.
    """
    rows = spark.readStream.schema("message string").json(folder)
    rows = rows.select("message", F.col("_metadata.file_path").alias("file"))
    unknown = F.concat(F.lit("control file "), F.col("file"), F.lit(" holds something that is no message"))
    told = rows.select(F.when(_begins(), F.col("message")).otherwise(unknown).alias("text"))
    return told.observe(f"{PULSE}_{build}", F.count(F.lit(1)).alias("messages"))


def unknown_files(folder: Path, seen: set[Path]) -> list[str]:
    """Notes on files of a control stream that hold something else than messages; those ``seen`` are left out."""
    new = sorted(set(folder.glob("[!._]*")) - seen)
    seen.update(new)
    return [
        f"control file {path} holds something that is no message of tidegate, and was left out; {ADVICE}"
        for path in new
        if not _holds_messages(path)
    ]


@dataclass(frozen=True, slots=True)
class SteeredStep:
    """A stateful step as those see it who steer the query: how many cells it can have, and how its shards change hands.

    ``window_seconds`` is how long what it keeps lasts and ``advance_seconds`` how far apart that begins, both of event time;
    None where windows cannot be recreated.
    """

    label: str
    name: str
    cells: int
    protocols: tuple[str, ...]
    window_seconds: float | None = None
    advance_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Steering:
    """The folder of a control stream, as those see it who steer the query."""

    folder: Path

    def describe(self, steps: Iterable[SteeredStep]) -> None:
        """Leave there which stateful steps the query has."""
        self.folder.mkdir(parents=True, exist_ok=True)
        told = [asdict(step) for step in steps]
        draft = self.folder / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps({"shards": SHARDS_OF_A_STEP, "steps": told}) + "\n", encoding="utf-8")
        draft.rename(self.folder / STEPS)

    def steps(self) -> list[SteeredStep]:
        """The stateful steps of the query; none before it is built."""
        try:
            told = json.loads((self.folder / STEPS).read_text(encoding="utf-8"))["steps"]
        except FileNotFoundError:
            return []
        return [SteeredStep(**{**each, "protocols": tuple(each["protocols"])}) for each in told]

    def check(self, step: str | None, cells: Iterable[int], protocol: str = ADOPT) -> None:
        """Refuse a step, cells by their numbers, or a protocol that the query does not have, as far as it is known."""
        steps = self.steps()
        if not steps:
            return
        chosen = [each for each in steps if step in (None, each.label, each.name)]
        if not chosen:
            shown = ", ".join(repr(each.label) for each in steps)
            raise QueryError(f"the query of {self.folder} has no stateful step {step!r}; it has {shown}")
        least = min(chosen, key=lambda each: each.cells)
        most = max(cells, default=0)
        if most >= least.cells:
            raise QueryError(
                f"step '{least.label}' was built for cells 0 to {least.cells - 1}, and cell {most} was asked for; "
                "start the query with more, such as cells=(1, 8): the larger number is how many there can be"
            )
        for each in chosen:
            if protocol not in each.protocols:
                raise QueryError(
                    f"step '{each.label}' cannot hand shards over by {protocol}: that is for windowed aggregates and joins "
                    f"by key; use one of {', '.join(map(repr, each.protocols))}"
                )

    def send(self, message: Message) -> None:
        """Put a message into the stream, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps({"message": str(message)}) + "\n")
        draft.rename(self.folder / f"{uuid.uuid4().hex}.json")

    def set_instances(self, instances: int | Mapping[int, int], step: str | None = None) -> None:
        """Ask cells for a number of instances."""
        self.check(step, () if isinstance(instances, int) else instances)
        self.send(SetInstances(time.time_ns(), instances, step))

    def set_cells(self, cells: int, step: str | None = None, protocol: str = ADOPT) -> None:
        """Ask for shards on so many cells."""
        message = SetMapping(time.time_ns(), cells=cells, step=step, protocol=protocol)
        self.check(step, [cells - 1], protocol)
        self.send(message)

    def move_shards(self, step: str | None, mapping: Mapping[int, int] | Sequence[int], protocol: str = ADOPT) -> None:
        """Ask for shards on other cells: some of them, or all."""
        now = time.time_ns()
        if isinstance(mapping, Mapping):
            message = SetMapping(now, moves=dict(mapping), step=step, protocol=protocol)
            self.check(step, mapping.values(), protocol)
        else:
            message = SetMapping(now, mapping=tuple(mapping), step=step, protocol=protocol)
            self.check(step, mapping, protocol)
        self.send(message)


def send_instances(folder: Path, number: int) -> None:
    """Asks every cell for a number of instances."""
    Steering(folder).set_instances(number)


def _step(fields: Mapping[str, Any]) -> str | None:
    return None if fields["step"] is None else str(fields["step"])


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise QueryError(rule)


def _begins() -> Column:
    return F.coalesce(F.col("message"), F.lit("")).startswith(_BEGIN)


def _holds_messages(path: Path) -> bool:
    try:
        messages = [
            json.loads(line)["message"] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
        ]
    except (OSError, ValueError, TypeError, KeyError):
        return False
    return all(isinstance(each, str) and parse(each) is not None for each in messages)
