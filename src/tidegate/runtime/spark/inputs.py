"""What reaches workers: files by their names, read there by Arrow, and rows of DataFrames; each with the batch's timestamp.

Rows of all inputs of a task have one set of columns: which input a row is of, a text (the name of a file or a message of
the control stream), the clock, and the columns of every DataFrame under names of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.compile.plan import Feed
from tidegate.errors import DataError, InternalError
from tidegate.operators.columns import Array, known_times
from tidegate.query.arrival import stamped
from tidegate.query.event_time import ahead_bound, ahead_reason, show_moment
from tidegate.query.nodes import Source
from tidegate.query.schema import conform, contiguous
from tidegate.runtime.spark.codec import Header, SourceCounts, clock_of
from tidegate.sources import Malformed, PlacedBatch, Rejects, RowPlace
from tidegate.sources.files import FORMATS, Files
from tidegate.sources.in_memory import Heartbeat
from tidegate.sources.positions import ReadPosition, records_after

INPUT, TEXT = "__tg_input", "__tg_text"
CONTROL = -1
"""The number of the input that is the control stream."""
ROWS_PER_READ = 131_072


@dataclass(slots=True)
class Letters(Rejects):
    """Collects malformed records and tuples from the future, as lines of JSON; they are written with the batch."""

    lines: list[str] = field(default_factory=list)

    def write(self, found: Malformed) -> None:
        self.lines.append(json.dumps({"stream": self.stream, **found.letter()}, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """An input of files: rows bring their names. ``feeds`` read them; ``source`` says how.

    The paths of ``files`` are of no use in workers and left out; ``columns`` are those that some feed reads.
    """

    source: Source
    files: Files
    feeds: tuple[Feed, ...]
    counted: bool
    """Whether its records count, and malformed ones are kept: of several inputs that read one source, one is counted."""
    begun: ReadPosition | None = None
    """Of the file in which another run was, the records that it has taken are left out."""

    @property
    def columns(self) -> pa.Schema:
        """Nothing but names comes from Spark."""
        return pa.schema([])

    def tables(
        self, texts: Iterable[str], rows: pa.Table, header: Header
    ) -> Iterator[tuple[pa.Table, RowPlace | None]]:
        """The tuples of the files with some names, and where they are."""
        source = self.source
        rejects = Letters(source.name, source.dead_letters)
        for path in sorted(map(local_path, texts)):
            try:
                batches: Iterable[PlacedBatch | Heartbeat] = FORMATS[self.files.format].read(
                    path, self.files, source.read_schema, ROWS_PER_READ, rejects, source.read_time
                )
                if self.begun is not None and path == self.begun.file:
                    batches = records_after(batches, self.begun, source.name)
                for each in batches:
                    assert isinstance(each, PlacedBatch)
                    yield self._timed(pa.Table.from_batches([each.batch]), header), each.place
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error}") from error
        if not self.counted:
            return
        header.counts[source.name] = header.counts.get(source.name, SourceCounts()) + SourceCounts(
            malformed=rejects.count
        )
        if rejects.lines:
            header.letters.setdefault(source.name, []).extend(rejects.lines)

    def _timed(self, table: pa.Table, header: Header) -> pa.Table:
        """Records with their time of arrival, where that is their event time."""
        if not self.source.stamped:
            return table
        if header.clock_us is None:
            raise InternalError(
                f"stream '{self.source.name}': names of files came without the timestamp of their batch"
            )
        return stamped(table, self.source.time, header.clock_us)


@dataclass(frozen=True, slots=True)
class FrameRows:
    """An input of rows of a DataFrame, with the columns that its feeds read."""

    source: Source
    columns: pa.Schema
    feeds: tuple[Feed, ...]
    counted: bool
    """Whether its tuples count as read: those of a source that has several feeds count once."""

    def tables(
        self, texts: Iterable[str], rows: pa.Table, header: Header
    ) -> Iterator[tuple[pa.Table, RowPlace | None]]:
        """The rows themselves."""
        yield conform(rows, self.columns), None


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of a task, by number."""

    inputs: tuple[NamedFiles | FrameRows, ...]

    @property
    def may_reject(self) -> bool:
        """Whether records may be set aside that are to be written."""
        return any(each.source.dead_letters is not None for each in self.inputs)

    def read(self, batches: Iterable[pa.RecordBatch], header: Header) -> Iterator[tuple[Feed, pa.Table]]:
        """The tuples of each feed before its steps in workers; notes in ``header`` what else came.

        Names of files are gathered before the first is read, so that the order of rows does not show.
        """
        names: dict[int, set[str]] = {}
        for batch in batches:
            if header.clock_us is None:
                header.clock_us = clock_of(batch)
            table = pa.Table.from_batches([batch])
            for number in pc.unique(table.column(INPUT)).to_pylist():
                mine = table.filter(pc.equal(table.column(INPUT), number)) if _mixed(table) else table
                if number == CONTROL:
                    header.messages = sorted(
                        {*header.messages, *(text for text in mine.column(TEXT).to_pylist() if text)}
                    )
                elif isinstance(self.inputs[number], NamedFiles):
                    names.setdefault(number, set()).update(mine.column(TEXT).to_pylist())
                else:
                    yield from self._delivered(number, (), self._own(number, mine), header)
        for number in sorted(names):
            yield from self._delivered(number, names[number], None, header)

    def _own(self, number: int, table: pa.Table) -> pa.Table:
        """The columns of an input under its own names."""
        columns = self.inputs[number].columns
        return pa.table([table.column(column_name(number, name)) for name in columns.names], names=columns.names)

    def _delivered(
        self, number: int, texts: Iterable[str], rows: pa.Table | None, header: Header
    ) -> Iterator[tuple[Feed, pa.Table]]:
        each = self.inputs[number]
        for table, place in each.tables(texts, rows, header):
            timely = _timely(each, table, place, header)
            for feed in each.feeds:
                yield feed, timely


def column_name(number: int, name: str) -> str:
    """The name under which a column of an input travels."""
    return f"c{number}_{name}"


def _mixed(table: pa.Table) -> bool:
    bounds = pc.min_max(table.column(INPUT))
    return bool(bounds["min"].as_py() != bounds["max"].as_py())


def _timely(given: NamedFiles | FrameRows, table: pa.Table, place: RowPlace | None, header: Header) -> pa.Table:
    """The tuples that do not lie too far in the future; notes the latest time of them, and how many came."""
    source = given.source
    time = source.time
    counts = SourceCounts(table.num_rows if given.counted else 0)
    times = known_times(contiguous(table.column(time)))
    if len(times):
        bound = ahead_bound(source, header.clock_us, None)
        newest: int | None = int(times.max())
        if bound is not None and times.max() > bound:
            ahead = _beyond(table, time, bound)
            if given.counted:
                counts.ahead = len(ahead)
                if source.dead_letters is not None:
                    places = [
                        (None, None) if place is None else (place.file, place.number(row)) for row in ahead.tolist()
                    ]
                    _write_letters(source, table.take(ahead), time, places, header)
            table = table.take(np.setdiff1d(np.arange(table.num_rows), ahead))
            times = known_times(contiguous(table.column(time)))
            newest = int(times.max()) if len(times) else None
        header.saw(source.name, newest)
        if newest is not None and source.idle_us is not None and header.clock_us is not None:
            header.heard[source.name] = header.clock_us
    header.counts[source.name] = header.counts.get(source.name, SourceCounts()) + counts
    return table


def _beyond(table: pa.Table, time: str, bound: int) -> Array:
    """The positions of tuples after a time."""
    moments = table.column(time).combine_chunks().view(pa.int64())
    return np.flatnonzero(np.asarray(pc.fill_null(pc.greater(moments, bound), False)))


def _write_letters(
    source: Source, aside: pa.Table, time: str, places: Iterable[tuple[str | None, int | None]], header: Header
) -> None:
    """Writes tuples from the future as `tidegate.runtime.local` does."""
    rejects = Letters(source.name, source.dead_letters)
    moments = known_times(contiguous(aside.column(time))).tolist()
    shown = pa.array([show_moment(moment) for moment in moments], pa.string())
    aside = aside.set_column(aside.schema.get_field_index(time), time, shown)
    for values, moment, (file, number) in zip(aside.to_pylist(), moments, places, strict=True):
        why = ahead_reason(source, moment, header.clock_us or 0)
        rejects.write(Malformed(file, number, why, json.dumps(values, default=str)))
    header.letters.setdefault(source.name, []).extend(rejects.lines)


def local_path(text: str) -> str:
    """The path of a file by the name that Spark gives it; a link is followed once, so that messages name the file."""
    path = Path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
    return str(path.readlink()) if path.is_symlink() else str(path)


def shown_clock(clock_us: int | None) -> str:
    """A batch's timestamp for messages."""
    return "unknown" if clock_us is None else show_moment(clock_us)


def without_paths(files: Files) -> Files:
    """Files as workers read them, by names that come to them; the first stays, for messages."""
    return replace(files, paths=files.paths[:1])
