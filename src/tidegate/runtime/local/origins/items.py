"""What iterables give: batches, tables, dicts and heartbeats, made into batches of the stream's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.schema import fitting
from tidegate.query.user_functions import user_context
from tidegate.sources import RowPlace
from tidegate.sources.in_memory import Heartbeat

# A batch of so many rows is worth a segment of its own; copying it to join others would cost more than it saves.
LARGE = 4_096

_NOTHING = object()

Found = tuple[pa.RecordBatch | Heartbeat, RowPlace | None]


class Items:
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

    def single(self, item: Any) -> Found:
        """One item by itself."""
        if isinstance(item, Heartbeat):
            return item, None
        if isinstance(item, pa.RecordBatch) and item.schema.equals(self._schema, check_metadata=True):
            return item, self._place(item)
        return self._placed([self._rows([item]) if isinstance(item, Mapping) else self._table(item)])

    def gathered(self, items: Iterable[Any], tables_at_once: bool = False) -> Iterator[Found]:
        """Neighbours together, up to the most rows a batch may have; heartbeats stay where they are.

        With ``tables_at_once`` only dicts are held back: a table or a batch is handed on, with them, before the next item
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
                    yield self._placed(held)
                    held, rows = [], 0
                held.append(table)
                rows += table.num_rows
                if not tables_at_once and table.num_rows < LARGE and rows < self._most_rows:
                    continue
            if held:
                yield self._placed(held)
                held, rows = [], 0
            if isinstance(item, Heartbeat):
                yield item, None
        if loose:
            held.append(self._rows(loose, rows - len(loose)))
        if held:
            yield self._placed(held)

    def _placed(self, tables: list[pa.Table]) -> Found:
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        batches = table.combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self._schema)
        return batch, self._place(batch)

    def _place(self, batch: pa.RecordBatch) -> RowPlace:
        """Where the rows of the next batch stand among all that were given."""
        place = RowPlace(None, "row", self._given)
        self._given += batch.num_rows
        return place

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
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            for number, row in enumerate(rows, self._given + before):
                try:
                    pa.Table.from_pylist([row], schema=self._schema)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as wrong:
                    raise DataError(
                        f"stream '{self._stream}', row {number}: {dict(row)!r} does not fit its columns: {wrong}"
                    ) from wrong
            raise DataError(f"stream '{self._stream}': dicts do not fit its columns: {error}") from error
