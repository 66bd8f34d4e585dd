"""The public face of a query: building it, asking about it, and handing it to Spark."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from tidegate.drawing import cut
from tidegate.errors import QueryError
from tidegate.query.advice import advised
from tidegate.query.arrival import ArrivalTime
from tidegate.query.builder import AHEAD, Builder, source
from tidegate.query.event_time import Duration
from tidegate.query.names import DefaultName
from tidegate.query.nodes import Source, walk
from tidegate.query.outputs import outputs_node
from tidegate.query.schema import as_schema, normal_schema
from tidegate.sources import BatchOrigin
from tidegate.sources.files import Files, files_of
from tidegate.sources.growing import GrowingFiles, growing_files_of
from tidegate.sources.in_memory import TableOrigin, as_table, is_dataframe, items_of
from tidegate.sources.kafka import KafkaTopic, TopicOrigin, origin_of
from tidegate.sources.standard_input import StandardInput

if TYPE_CHECKING:
    from tidegate.compile.lower_to_aggregates import Operators
    from tidegate.runtime.spark.types import DataFrame

DEFAULT_NAME = "stream"


@dataclass(frozen=True, slots=True, eq=False)
class Stream(Builder):
    """A stream of tuples with event time: a query, as a value. See `stream`."""

    def __repr__(self) -> str:
        """One line: the last step, how many there are, over which sources, and the columns that come out."""
        steps = list(walk(self.node))
        over = ", ".join(node.name for node in steps if isinstance(node, Source))
        count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
        return f"<Stream {self.node.name}: {count} over {cut(over, 60)}; {cut(', '.join(self.schema.names), 100)}>"

    def _repr_html_(self) -> str:
        """The steps as a picture, for notebooks."""
        from tidegate.compile.draw import draw_query

        return f'<div style="overflow-x: auto">{draw_query(self.node).svg()}</div><div>{escape(repr(self))}</div>'

    def to_spark(
        self,
        *,
        checkpoint: str | Path | None = None,
        state: str | Path | None = None,
        storage_options: Mapping[str, str] | None = None,
        cells: int | tuple[int, int] | None = None,
        instances: int | None = None,
        control: str | Path | None = None,
        late_to: str | Path | None = None,
        operators: Operators = "dedicated",
        hot_keys: bool | str | Sequence[str] = False,
    ) -> DataFrame:
        """The query as a streaming DataFrame, for any sink and trigger; to Spark it is stateless.

        ``checkpoint`` is the folder that the query, once started, has as its checkpoint: one that was written by another
        query is refused here. State lies in ``tidegate`` below it, or in ``state``, a folder that all workers reach, on this
        machine, on a shared file system or in an object store (opened with ``storage_options``). Without both it lies
        below the session's ``spark.sql.streaming.checkpointLocation``.

        ``cells`` and ``instances`` are as in `run`, and ``late_to`` is a folder for late tuples. ``control`` is the folder
        of the control stream by which a run can be ended (`tidegate.end_input`), its instances changed
        (`tidegate.set_instances`) and its shards moved (`tidegate.set_cells`, `tidegate.move_shards`): ``control`` beside
        the state unless one is given. ``operators`` and ``hot_keys`` are as in `run`.
        """
        from tidegate.compile.compiler import compile_query
        from tidegate.compile.split_hot_keys import checked_hot_keys
        from tidegate.operators.cells import checked_cells, checked_number
        from tidegate.runtime.spark.dataframe import StatePlace, build_dataframe
        from tidegate.runtime.spark.session import default_cells, session_of_frames

        session = session_of_frames(self.node)
        number = checked_cells(cells if cells is not None else 1 if session is None else default_cells(session))
        plan = compile_query(
            self.node,
            "spark",
            all_columns=late_to is not None,
            cells=number,
            operators=operators,
            hot_keys=checked_hot_keys(hot_keys),
        )
        place = StatePlace(
            None if checkpoint is None else str(checkpoint),
            None if state is None else str(state),
            None if control is None else str(control),
            dict(storage_options or {}),
        )
        threads = checked_number(instances if instances is not None else cores())
        return build_dataframe(plan, place, threads, None if late_to is None else str(Path(late_to).absolute()))

    @advised
    def explain(self, runtime: str = "spark", **options: Any) -> str:
        """What the query is, how it is cut, where each part runs on a ``runtime`` and why, and what it costs.

        ``options`` are ``cells``, a number or the least and the most, the ``instances`` and ``rate`` of tuples per second
        that costs are estimated for, and ``operators`` and ``hot_keys`` as in `run`.
        """
        from tidegate.compile.explain import explain

        if not isinstance(runtime, str):
            raise QueryError(f"explain: runtime is 'spark', 'local' or 'reference'; got {runtime!r}")
        if "hot_keys" in options:
            from tidegate.compile.split_hot_keys import checked_hot_keys

            options["hot_keys"] = checked_hot_keys(options["hot_keys"])
        if "cells" in options:
            from tidegate.operators.cells import checked_cells

            options["cells"] = checked_cells(options["cells"])
        for name in ("instances", "rate", "alpha", "beta"):
            value = options.get(name, 1)
            if not isinstance(value, int | float):
                raise QueryError(f"explain: {name} is a number; got {value!r}")
        return explain(self.node, runtime, **options)


def one_query(what: str, query: object) -> Stream:
    """The query of a result, or of several results by name; ``what`` is the call that takes it, for messages."""
    if isinstance(query, Mapping):
        return Stream(outputs_node(what, query))
    if not isinstance(query, Stream):
        raise QueryError(
            f"{what} takes a query made with tg.stream(...), or several by name, as in {{'counts': query}}; got "
            f"{type(query).__name__}. Did you forget .window(...) or .aggregate(...) after .key_by(...)?"
        )
    return query


def explain(query: Stream | Mapping[str, Stream], runtime: str = "spark", **options: Any) -> str:
    """What a query of one result, or of several by name, is, and how it runs; see `Stream.explain`."""
    return one_query("explain", query).explain(runtime, **options)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@advised
def stream(
    origin: Any,
    *,
    time: str | ArrivalTime,
    disorder: Duration = 0,
    name: str | None = None,
    schema: pa.Schema | Mapping[str, pa.DataType] | None = None,
    dead_letters: str | Path | None = None,
    ahead: Duration | None = AHEAD,
    ahead_of: Literal["clock", "stream"] = "clock",
    watermark_step: Duration | None = None,
    idle_after: Duration | None = None,
    follow: bool = False,
) -> Stream:
    """A stream of tuples.

    ``origin`` is a streaming DataFrame, the path or glob of files (parquet, JSON lines or CSV), ``"-"`` for JSON lines of
    standard input with a ``schema``, a table or DataFrame of
    Arrow, Polars, pandas or DuckDB, a reader of record batches, a schema alone, or, given a ``schema``, an iterable of
    batches, tables or dicts, which may be asynchronous, or a function that returns one each time that the query is run
    (see also `paced` and `marked`); a topic of Kafka, see `kafka`, with the ``schema`` of its values; or a source of your
    own, see `tidegate.sources.BatchOrigin`.

    ``time`` names the event-time column, or is `arrival`: then tuples get the time at which they arrive. ``disorder`` is how
    far out of order tuples may be, between partitions too, unless they are Kafka's; a tuple that comes later still is late
    and counted. ``schema`` also declares the columns of files, whose first one gives it otherwise.

    With ``follow`` files have no end: new ones are read as they appear, until the run is stopped. Without, the input is
    what is there when the query is built.

    A record of JSON lines or CSV that cannot be read stops the run with file and line; with ``dead_letters`` it is
    appended to that file, as a line of JSON with the stream, file, line, reason and raw text, and counted.

    A tuple more than ``ahead`` after the clock, as it is read, is set aside and counted, and goes to ``dead_letters`` too:
    it would make all that follow it late. None allows any time. With ``ahead_of="stream"`` a tuple more than ``ahead``
    after the newest one before it stops the run instead, whatever the clock says.

    With ``idle_after`` a stream that has delivered nothing for so long no longer holds back the others of its query: when
    it comes back its tuples are judged by the watermark then, and may be late. What is late then depends on the clock.

    ``watermark_step`` is how far the watermark of the stream moves at most at once; only loops look at it
    (docs/lowering.md).

    >>> import pyarrow as pa, tidegate as tg
    >>> tg.stream({"ts": pa.timestamp("us"), "x": pa.int64()}, time="ts").schema.names
    ['ts', 'x']
    """
    if dead_letters is not None and not isinstance(dead_letters, str | Path):
        raise QueryError(f"stream: dead_letters is the path of a file; got {dead_letters!r}")
    if name is not None and not isinstance(name, str):
        raise QueryError(f"stream: name is text; got {name!r}")
    if follow and not isinstance(origin, str | Path):
        raise QueryError(f"stream: follow=True goes with a folder or glob of files; got {type(origin).__name__}")
    letters = None if dead_letters is None else Path(dead_letters).expanduser().absolute()
    declared = as_schema(schema) if schema is not None else None
    read, columns, default = _opened(origin, declared, letters is not None, follow)
    if letters is not None:
        _check_dead_letters(origin, read, letters)
    node = source(
        name or DefaultName(default),
        columns,
        time=time,
        disorder=disorder,
        origin=read,
        dead_letters=None if letters is None else str(letters),
        ahead=ahead,
        ahead_of=ahead_of,
        watermark_step=watermark_step,
        idle_after=idle_after,
    )
    return Stream(node)


def _opened(
    given: Any, declared: pa.Schema | None, lenient: bool, follow: bool
) -> tuple[Any, pa.Schema | Mapping[str, pa.DataType], str]:
    """What a runtime reads of a user's origin, its columns, and what the stream is called by default.

    ``lenient`` lets malformed records pass, which will be set aside when the query runs.
    """
    if isinstance(given, KafkaTopic):
        topic = origin_of(given, declared)
        return topic, topic.schema, topic.name
    if isinstance(given, str) and given == "-":
        if declared is None or follow:
            raise QueryError(
                "stream: '-' is standard input, JSON lines that are read once, to their end; declare its columns with "
                "schema=..., and leave follow out. A file of that name is './-'"
            )
        given = StandardInput(normal_schema(declared, "stdin"))
        return given, given.schema, given.name
    if isinstance(given, str | Path) and follow:
        growing = growing_files_of(str(given), declared, lenient=lenient)
        return growing, growing.schema, growing.name
    if isinstance(given, str | Path):
        files = files_of(str(given), declared, lenient=lenient)
        return files, files.schema, files.name
    if isinstance(given, pa.RecordBatchReader) and declared is None:
        return items_of(iter(given)), given.schema, DEFAULT_NAME
    origin = TableOrigin(as_table(given)) if is_dataframe(given) else given
    has_schema = isinstance(origin, pa.Schema | Mapping | BatchOrigin)
    if declared is not None:
        if has_schema or not (isinstance(origin, Iterable | AsyncIterable) or callable(origin)):
            raise QueryError(
                "stream: schema=... goes with files, an iterable of batches, tables or dicts, or a function that returns "
                f"one; other origins have their own. Got {type(given).__name__}"
            )
        return items_of(origin), declared, DEFAULT_NAME
    if type(origin).__module__.startswith("pyspark."):
        from tidegate.runtime.spark.types import arrow_schema

        return origin, arrow_schema(origin.schema), DEFAULT_NAME
    if not has_schema:
        raise QueryError(
            "stream: an origin is a streaming DataFrame, the path or glob of files, a table or DataFrame of Arrow, Polars, "
            f"pandas or DuckDB, a schema, or an iterable together with schema=...; got {type(given).__name__}"
        )
    return (origin, origin.schema, origin.name) if isinstance(origin, BatchOrigin) else (None, origin, DEFAULT_NAME)


def _check_dead_letters(given: Any, origin: Any, path: Path) -> None:
    """Refuse a file for malformed records that cannot be written, that is read, or that nothing would go to."""
    origin = origin.files if isinstance(origin, GrowingFiles) else origin
    if isinstance(origin, StandardInput):
        origin = Files("", (), "jsonl", origin.schema)
    if isinstance(origin, TopicOrigin):
        origin = None
    elif not isinstance(origin, Files) or not origin.is_text:
        kind = origin.format if isinstance(origin, Files) else type(given).__name__
        raise QueryError(
            f"stream: dead_letters={str(path)!r} takes malformed records of JSON lines, CSV files and topics of Kafka; a "
            f"{kind} has none that could be told apart. Leave it out"
        )
    if not path.parent.is_dir() or path.is_dir():
        raise QueryError(f"stream: dead_letters={str(path)!r} must be a file in a folder that exists")
    if origin is not None and origin.takes(path):
        raise QueryError(
            f"stream: dead_letters={str(path)!r} would be read as input next time, since {origin.pattern!r} matches it; "
            "put it elsewhere"
        )
