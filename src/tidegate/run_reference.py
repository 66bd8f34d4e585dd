"""Running a query on the reference: all of its input, through the slow and obvious interpreter."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from tidegate.compile.compiler import compile_query
from tidegate.errors import SetAsideWarning, UnsupportedError
from tidegate.files import Files, Malformed, Rejects, read_table
from tidegate.query.event_time import ahead_notice, ahead_reason, in_microseconds, show_moment
from tidegate.query.nodes import Source, sources, unique_names
from tidegate.reference import Answer, events_of, interpret
from tidegate.results import RunResult, in_order, require_empty, require_writable, show_count, show_rows, write_results
from tidegate.stream import Stream


def run_on_reference(query: Stream, folder: Path | None, kind: str | None, show: int) -> RunResult:
    """Run a query and put its results in a folder, or some of them on the screen."""
    compile_query(query.node, "reference")
    if folder is not None:
        require_writable(require_empty(folder))
    began = time.monotonic()
    tables: dict[str, pa.Table] = {}
    rejects: list[Rejects] = []
    named = sources(unique_names(query.node))
    for source in named:
        held = source.origin
        rejects.append(Rejects(source.name, source.dead_letters))
        table = read_table(held, source.schema, rejects[-1], source.time) if isinstance(held, Files) else held
        if not isinstance(table, pa.Table):
            raise UnsupportedError(
                f"stream '{source.name}' reads neither files nor an Arrow table, so the reference cannot run it; make it "
                "with tg.stream('files/*.parquet', time=...)"
            )
        tables[source.name] = table
    clock = in_microseconds(datetime.now(UTC))
    answer = interpret(query.node, events_of(query.node, tables, clock=clock))
    notes = tuple(_set_aside(named, answer, clock, rejects))
    if folder is not None and kind is not None:
        write_results(answer.rows, folder, kind)
    elif answer.rows.num_rows:
        rows = in_order(answer.rows, query.time).slice(0, show)
        print(f"{show_rows(rows)}\n{show_count(answer.rows.num_rows, rows.num_rows)}")
    else:
        print("(no rows)")
    return RunResult(
        to=folder,
        format=kind,
        schema=query.schema,
        rows=sum(table.num_rows for table in tables.values()),
        results=answer.rows.num_rows,
        late=answer.late,
        batches=0,
        finished=True,
        seconds=time.monotonic() - began,
        notes=notes,
        malformed=sum(found.count for found in rejects),
        ahead=answer.ahead,
    )


def _set_aside(named: Sequence[Source], answer: Answer, clock: int, rejects: Sequence[Rejects]) -> Iterator[str]:
    """Tell about tuples of the future that the reference set aside, and write them to the dead letters."""
    for source, letters in zip(named, rejects, strict=True):
        found = answer.ahead_tuples.get(source.name, ())
        if not found:
            continue
        note = ahead_notice(source, f"a tuple has {show_moment(found[0][source.time])} in '{source.time}'", clock)
        warnings.warn(note, SetAsideWarning, stacklevel=4)
        if letters.path is not None:
            for row in found:
                why = ahead_reason(source, row[source.time], clock)
                letters.write(Malformed(None, None, why, json.dumps(row, default=str)))
        yield note
