"""Running a query on the reference: all of its input, through the slow and obvious interpreter."""

from __future__ import annotations

import json
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.compile.compiler import compile_query
from tidegate.compile.lower_to_aggregates import Operators
from tidegate.errors import QueryError, SetAsideWarning, UnsupportedError, choices
from tidegate.query.event_time import ahead_notice, ahead_reason, in_microseconds, show_moment
from tidegate.query.names import unique_names
from tidegate.query.nodes import Source, sources
from tidegate.query.outputs import names_of, schemas_of
from tidegate.reference import Answer, Event, events_of, interpret
from tidegate.results import RunResult, require_empty, require_writable, result_folder, write_results
from tidegate.sources import BatchOrigin, Malformed, PlacedBatch, Rejects
from tidegate.sources.growing import GrowingFiles
from tidegate.sources.in_memory import TableOrigin
from tidegate.stream import Stream, one_query
from tidegate.tables import in_order, show_first


def answer(
    query: Stream | Mapping[str, Stream],
    tables: Mapping[str, pa.Table] | None = None,
    *,
    events: Iterable[Event] | None = None,
    clock: datetime | None = None,
) -> Answer:
    """Interpret a query over given events, over tables by source name, or over what its sources hold.

    ``clock`` is when tables are read, now if it is not given: tuples further ahead of it than their stream allows are set
    aside. Of several results by name, ``answer({...})["name"]`` are the rows of one.
    """
    query = one_query("answer", query)
    if events is None:
        named = sources(unique_names(query.node))
        given: dict[str, Any] = {source.name: source.origin for source in named}
        for name, table in (tables or {}).items():
            if name not in given:
                raise QueryError(f"answer: there is no stream {name!r}; there is {choices(given)}")
            given[name] = TableOrigin(table) if isinstance(table, pa.Table) else table
        for name, origin in given.items():
            if not isinstance(origin, BatchOrigin):
                raise QueryError(f"stream '{name}' holds no table; pass answer(query, {{'{name}': table}})")
        inputs = [WholeInput.read(source, given[source.name]) for source in named]
        events = _events(query, inputs, in_microseconds(clock or datetime.now(UTC)))
    found = interpret(query.node, events)
    if found.ahead:
        warnings.warn(
            f"{found.ahead} tuples lie too far in the future and were set aside", SetAsideWarning, stacklevel=2
        )
    return found


def run_on_reference(
    query: Stream, folder: Path | None, kind: str | None, show: int, operators: Operators = "dedicated"
) -> RunResult:
    """Run a query on the reference and put its results in a folder, or some of them on the screen."""
    plan = compile_query(query.node, "reference", operators=operators)

    def interpreted(inputs: Sequence[WholeInput], clock: int) -> Answer:
        return interpret(plan.query, _events(query, inputs, clock))

    return run_whole(query, folder, kind, show, "the reference", interpreted)


def run_whole(
    query: Stream,
    folder: Path | None,
    kind: str | None,
    show: int,
    runner: str,
    compute: Callable[[Sequence[WholeInput], int], Answer],
) -> RunResult:
    """Read all input, at one time of the clock, compute the answer, and put it in a folder or on the screen."""
    if folder is not None:
        require_writable(require_empty(folder))
    began = time.monotonic()
    named = sources(unique_names(query.node))
    for source in named:
        if isinstance(source.origin, GrowingFiles):
            raise UnsupportedError(
                f"stream '{source.name}' is made with follow=True and has no end, and {runner} reads all input before it "
                "begins; leave follow out, or run it on='local' or on='spark'"
            )
        if not isinstance(source.origin, BatchOrigin):
            raise UnsupportedError(
                f"stream '{source.name}' reads neither files nor an Arrow table, so {runner} cannot run it; make it "
                "with tg.stream('files/*.parquet', time=...)"
            )
    inputs = [WholeInput.read(source, source.origin) for source in named]
    clock = in_microseconds(datetime.now(UTC))
    found = compute(inputs, clock)
    notes = tuple(_set_aside(inputs, found, clock))
    for number, name in enumerate(schemas_of(query.node)):
        rows = found.rows if name is None else found[name]
        if folder is not None and kind is not None:
            write_results(rows, result_folder(folder, name), kind)
            continue
        time_column = query.time if name is None else query.node.inputs[number].time
        print(show_first(name, in_order(rows, time_column).slice(0, show), rows.num_rows))
    return RunResult(
        to=folder,
        format=kind,
        schema=query.schema,
        rows=sum(each.table.num_rows for each in inputs),
        results=found.rows.num_rows,
        late=found.late,
        batches=0,
        finished=True,
        seconds=time.monotonic() - began,
        notes=notes,
        malformed=sum(each.rejects.count for each in inputs),
        ahead=found.ahead,
        outputs=names_of(query.node),
        unfilled=found.unfilled,
    )


@dataclass(frozen=True, slots=True)
class WholeInput:
    """All tuples of one source, in batches that know where their rows come from."""

    source: Source
    rejects: Rejects
    schema: pa.Schema
    batches: list[PlacedBatch]

    @classmethod
    def read(cls, source: Source, origin: BatchOrigin) -> WholeInput:
        rejects, schema, time = Rejects(source.name, source.dead_letters), source.read_schema, source.read_time
        if source.stamped and source.time in origin.schema.names:
            # Times of arrival that were recorded.
            schema, time = source.schema, source.time
        return cls(source, rejects, schema, list(origin.batches(schema, 1 << 20, rejects, time)))

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches([each.batch for each in self.batches], schema=self.schema)


def _events(query: Stream, inputs: Sequence[WholeInput], clock: int) -> Iterator[Event]:
    return events_of(query.node, {each.source.name: each.table for each in inputs}, clock=clock)


def _set_aside(inputs: Sequence[WholeInput], found: Answer, clock: int) -> Iterator[str]:
    """Warn of tuples from the future that the reference set aside, and write them to the dead letters."""
    for each in inputs:
        source, letters = each.source, each.rejects
        tuples = found.ahead_tuples.get(source.name, ())
        if not tuples:
            continue
        starts = [0]
        for placed in each.batches:
            starts.append(starts[-1] + placed.batch.num_rows)
        note = None
        for number, values in zip(found.ahead_rows[source.name], tuples, strict=True):
            batch = bisect_right(starts, number) - 1
            place, row = each.batches[batch].place, number - starts[batch]
            moment = show_moment(values[source.time])
            if note is None:
                note = ahead_notice(source, f"{place.of(row)} has {moment} in '{source.time}'", clock)
                warnings.warn(note, SetAsideWarning, stacklevel=4)
                yield note
            if letters.path is not None:
                why = ahead_reason(source, values[source.time], clock)
                raw = json.dumps({**values, source.time: moment}, default=str)
                letters.write(Malformed(place.file, place.number(row), why, raw))
