"""Rows between the stages of a query: deltas and headers to cells across an exchange; and metrics, as Spark reports them.

A *header* goes before the tuples of a task in spirit and beside them in practice: rows come in any order. It says how far
its sources have come, what came of them, and what the control stream says. Headers add up, so a cell merges all it gets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegate.operators.exchange import Arrived, Delta
from tidegate.query.schema import TIME
from tidegate.state import chunks
from tidegate.watermark import Watermark

CLOCK = "__tg_clock"
DELTA_ROWS = pa.schema([("cell", pa.int32()), ("feed", pa.int32()), ("data", pa.binary()), ("header", pa.string())])
"""The group key of a cell, and either an encoded table of a feed or a header; a late table's feed is ``-1 - feed``."""
METRICS = "__tg_metrics"
OBSERVED = "tidegate_cells_"
"""How the names of observed metrics begin whose column ``cells`` lists what cells and sources report, as JSON."""
_MASK = 0xFFFFFFFF
Value = TypeVar("Value")


def cell_keys(cells: int) -> tuple[int, ...]:
    """For each cell p the smallest integer that Spark places on partition p of ``cells``: ``pmod(murmur3(k), cells)``.

    >>> cell_keys(2)
    (2, 0)
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < cells:
        found.setdefault(murmur3(candidate) % cells, candidate)
        candidate += 1
    return tuple(found[cell] for cell in range(cells))


def murmur3(value: int, seed: int = 42) -> int:
    """Spark's 32-bit Murmur3 hash of an int, signed."""
    k = _rotate(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotate(seed ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h & 0x80000000 else h


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


@dataclass(slots=True)
class SourceCounts:
    """How many tuples of a source were read, set aside for their time, and malformed."""

    rows: int = 0
    ahead: int = 0
    malformed: int = 0

    def __add__(self, other: SourceCounts) -> SourceCounts:
        return SourceCounts(self.rows + other.rows, self.ahead + other.ahead, self.malformed + other.malformed)


@dataclass(slots=True)
class Header:
    """What a task tells cells of a batch besides tuples.

    ``clock_us`` is the batch's timestamp, ``newest`` the latest event time of each source, ``messages`` what the control
    stream says, ``heard`` the timestamp of the batch in which each source that may idle delivered last. ``arrived`` is what
    came on each feed of the step that is told, by its position. ``loads`` are how many panes or tuples the task has for each
    shard of the cell. Of the rest a task tells one cell only: ``counts`` of each source by its name and the position of the
    feed that read it, ``letters`` the malformed records of each source, and ``metrics`` of the steps before.
    """

    clock_us: int | None = None
    newest: dict[str, Watermark] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    arrived: dict[int, Arrived] = field(default_factory=dict)
    loads: dict[int, int] = field(default_factory=dict)
    counts: dict[str, SourceCounts] = field(default_factory=dict)
    letters: dict[str, list[str]] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    heard: dict[str, int] = field(default_factory=dict)

    def saw(self, source: str, newest: Watermark | None) -> None:
        """Note a time of a source."""
        if newest is not None:
            self.newest[source] = max(self.newest.get(source, newest), newest)

    def merge(self, other: Header) -> None:
        """Add what another task tells."""
        if other.clock_us is not None:
            self.clock_us = other.clock_us
        for source, newest in other.newest.items():
            self.saw(source, newest)
        for source, heard in other.heard.items():
            self.heard[source] = max(self.heard.get(source, heard), heard)
        self.messages = sorted({*self.messages, *other.messages})
        _add(self.arrived, other.arrived)
        _add(self.loads, other.loads)
        _add(self.counts, other.counts)
        for source, letters in other.letters.items():
            self.letters[source] = sorted([*self.letters.get(source, ()), *letters])
        self.metrics += other.metrics

    def for_others(self) -> Header:
        """What all cells but one are told."""
        return Header(self.clock_us, dict(self.newest), list(self.messages), dict(self.arrived), heard=dict(self.heard))

    def encode(self) -> str:
        """The header as text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Header:
        """The header of a text."""
        fields = json.loads(text)
        fields["arrived"] = {int(feed): Arrived(**each) for feed, each in fields["arrived"].items()}
        fields["loads"] = {int(shard): load for shard, load in fields["loads"].items()}
        fields["counts"] = {source: SourceCounts(**each) for source, each in fields["counts"].items()}
        return cls(**fields)


def _add(mine: dict[Any, Any], others: Mapping[Any, Any]) -> None:
    for name, value in others.items():
        mine[name] = mine[name] + value if name in mine else value


def row(
    cell_key: int, feed: int | None = None, data: pa.Buffer | None = None, header: str | None = None
) -> pa.RecordBatch:
    """One row for the cell with a group key."""
    values = cell_key, feed, None if data is None else data.to_pybytes(), header
    arrays = [pa.array([value], kind) for value, kind in zip(values, DELTA_ROWS.types, strict=True)]
    return pa.record_batch(arrays, DELTA_ROWS)


@dataclass(slots=True)
class Received:
    """What came across an exchange for one cell: its key, deltas and late tuples by feed, and the merged header."""

    key: int | None = None
    deltas: list[tuple[int, bytes]] = field(default_factory=list)
    late: list[tuple[int, bytes]] = field(default_factory=list)
    header: Header = field(default_factory=Header)

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> Received:
        """Reads the rows of one partition."""
        found = cls()
        for batch in batches:
            clocks = batch.column(CLOCK).cast(pa.int64()).to_pylist()
            columns = (batch.column(name) for name in DELTA_ROWS.names)
            for clock, key, feed, data, header in zip(clocks, *columns, strict=True):
                found.key = key.as_py()
                if clock is not None:
                    found.header.clock_us = clock
                if header.is_valid:
                    found.header.merge(Header.decode(header.as_py()))
                elif feed.as_py() >= 0:
                    found.deltas.append((feed.as_py(), data.as_buffer().to_pybytes()))
                else:
                    found.late.append((-1 - feed.as_py(), data.as_buffer().to_pybytes()))
        # Rows come in any order; attempts of a batch are to do the same.
        found.deltas.sort()
        found.late.sort()
        return found

    def tables(self, sides: Mapping[int, int]) -> list[Delta]:
        """The deltas, decoded; ``sides`` says which input of the operator each feed belongs to."""
        return [Delta(chunks.decode(data), sides[feed]) for feed, data in self.deltas]


def decoded(df: DataFrame, build: str) -> DataFrame:
    """The results alone; the metrics go to the query's progress."""
    observed = df.observe(f"{OBSERVED}{build}", F.collect_list(F.col(METRICS)).alias("cells"))
    return observed.where(F.col(METRICS).isNull()).drop(METRICS)


def reported(observed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What cells and sources report of a batch, from the observed metrics of its progress."""
    rows = [row for name, row in observed.items() if name.startswith(OBSERVED) and row is not None]
    return [each for row in rows for text in row["cells"] or () for each in json.loads(text)]


def clock_of(batch: pa.RecordBatch) -> int | None:
    """The batch's timestamp, from rows that carry it."""
    if batch.num_rows == 0:
        return None
    moment = batch.column(CLOCK).slice(0, 1).cast(TIME).cast(pa.int64())[0]
    return int(moment.as_py()) if moment.is_valid else None
