"""Reads iterables: batches, tables, dicts and heartbeats become batches of the stream's columns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.schema import fitting
from tidegate.query.user_functions import user_context
from tidegate.sources import PlacedBatch, RowPlace
from tidegate.sources.in_memory import Heartbeat

# A batch of so many rows is worth a segment of its own; copying it to join others would cost more than it saves.
LARGE = 4_096

_NOTHING = object()
_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


class ItemReader:
    """Turns the items of one iterable into batches; counts rows, so that each can be named."""

    def __init__(self, stream: str, schema: pa.Schema, most_rows: int) -> None:
        self._stream = stream
        self._schema = schema
        self._most_rows = most_rows
        self._given = 0

    def guarded(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items; an error of theirs says which stream it comes from."""
        count = 0
        try:
            with user_context():
                given = iter(items)
            while True:
                with user_context():
                    item = next(given, _NOTHING)
                if item is _NOTHING:
                    return
                yield item
                count += 1
        except Exception as error:
            error.add_note(f"raised by the iterable of stream '{self._stream}', after {count:,} items")
            raise

    def single(self, item: Any) -> PlacedBatch | Heartbeat:
        """One item by itself."""
        if isinstance(item, Heartbeat):
            return item
        if isinstance(item, pa.RecordBatch) and item.schema.equals(self._schema, check_metadata=True):
            return self._placed(item)
        return self._joined([self._rows([item]) if isinstance(item, Mapping) else self._table(item)])

    def gathered(self, items: Iterable[Any], tables_at_once: bool = False) -> Iterator[PlacedBatch | Heartbeat]:
        """Neighbours together, up to the most rows a batch may have; heartbeats stay where they are.

        With ``tables_at_once`` only dicts are held back: a table or a batch is passed on, with them, before the next item
        is asked for.
        """
        held: list[pa.Table] = []
        loose: list[Mapping[str, Any]] = []
        rows = 0
        for item in items:
            if isinstance(item, Mapping):
                loose.append(item)
                rows += 1
                if rows < self._most_rows:
                    continue
            if loose:
                held.append(self._rows(loose, rows - len(loose)))
                loose = []
            if not isinstance(item, Mapping | Heartbeat):
                table = self._table(item)
                if held and (table.num_rows >= LARGE or rows + table.num_rows > self._most_rows):
                    yield self._joined(held)
                    held, rows = [], 0
                held.append(table)
                rows += table.num_rows
                if not tables_at_once and table.num_rows < LARGE and rows < self._most_rows:
                    continue
            if held:
                yield self._joined(held)
                held, rows = [], 0
            if isinstance(item, Heartbeat):
                yield item
        if loose:
            held.append(self._rows(loose, rows - len(loose)))
        if held:
            yield self._joined(held)

    def _joined(self, tables: list[pa.Table]) -> PlacedBatch:
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        batches = table.combine_chunks().to_batches()
        return self._placed(batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self._schema))

    def _placed(self, batch: pa.RecordBatch) -> PlacedBatch:
        """The next batch, and where its rows stand among all that were given."""
        before, self._given = self._given, self._given + batch.num_rows
        return PlacedBatch(batch, RowPlace(None, "row", before))

    def _table(self, item: Any) -> pa.Table:
        match item:
            case pa.RecordBatch():
                table = pa.Table.from_batches([item])
            case pa.Table():
                table = item
            case _:
                raise DataError(
                    f"stream '{self._stream}': an item of its iterable is {type(item).__name__}; give record batches, "
                    "tables or dicts"
                )
        if table.schema.equals(self._schema):
            return table
        return fitting(table, self._schema, f"stream '{self._stream}'")

    def _rows(self, rows: list[Mapping[str, Any]], before: int = 0) -> pa.Table:
        """Dicts as columns; one that does not fit is named, ``before`` being the rows held back before them."""
        try:
            return pa.Table.from_pylist(rows, schema=self._schema)
        except _MISFITS as error:
            for number, row in enumerate(rows, self._given + before):
                try:
                    pa.Table.from_pylist([row], schema=self._schema)
                except _MISFITS as wrong:
                    raise DataError(
                        f"stream '{self._stream}', row {number}: {dict(row)!r} does not fit its columns: {wrong}"
                    ) from wrong
            raise DataError(f"stream '{self._stream}': dicts do not fit its columns: {error}") from error


class LingerBuffer:
    """Items on their way from the thread that reads an iterable to the one that feeds the query.

    An iterable may take its time for the next item, and what it gave before must not wait for that: so one thread waits
    for the iterable, and another takes what has come, ``linger_seconds`` after the first item at the latest. A buffer that
    holds ``most_rows`` rows, or a heartbeat, is taken at once, and the iterable waits while it is full.
    """

    def __init__(self, most_rows: int, linger_seconds: float, clock: Callable[[], float]) -> None:
        self._most_rows = most_rows
        self._linger_seconds = linger_seconds
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._items: list[object] = []
        self._rows = 0
        self._since = 0.0
        self._wanted = False
        self._ended = False
        self._closed = False
        self._failure: BaseException | None = None

    def fill(self, items: Iterable[object]) -> None:
        """Put all items in, waiting while it is full; what they raise is raised where they are taken."""
        try:
            for item in items:
                if not self._put(item):
                    return
        except BaseException as error:
            self._failure = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def take(self) -> list[object] | None:
        """What has come, once it is enough or has waited for long enough; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended)
            left = self._since + self._linger_seconds - self._clock()
            if self._items and left > 0:
                self._changed.wait_for(lambda: self._wanted or self._ended, left)
            held, self._items, self._rows, self._wanted = self._items, [], 0, False
            self._changed.notify_all()
        if held:
            return held
        if self._failure is not None:
            raise self._failure
        return None

    def close(self) -> None:
        """Release the thread that fills it: nothing is taken any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _put(self, item: object) -> bool:
        rows = item.num_rows if isinstance(item, pa.RecordBatch | pa.Table) else 1
        with self._changed:
            if self._rows and self._rows + rows > self._most_rows:
                self._want()
                self._changed.wait_for(lambda: not self._rows or self._closed)
            if self._closed:
                return False
            if not self._items:
                self._since = self._clock()
                self._changed.notify_all()
            self._items.append(item)
            self._rows += rows
            if self._rows >= self._most_rows or isinstance(item, Heartbeat):
                self._want()
            return True

    def _want(self) -> None:
        self._wanted = True
        self._changed.notify_all()
