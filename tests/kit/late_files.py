"""The files of late tuples that a run leaves, beside what the law says is late."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.compile.plan import Plan
from tidegate.query.late import MISSED, late_schema
from tidegate.reference import Answer
from tidegate.reference.rows import table_of
from tidegate.testing import difference


def late_files(folder: Path) -> dict[str, list[Path]]:
    """The files of each step, in the order of their names; nothing else lies in the folder."""
    found: dict[str, list[Path]] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        assert file.parent.parent == folder
        assert file.suffix == ".parquet"
        found.setdefault(file.parent.name, []).append(file)
    return found


def late_rows(folder: Path, step: str, position: int = 0, *columns: str) -> list[tuple[object, ...]]:
    """The late tuples of a feed, or some of their columns, sorted; times are numbers."""
    tables = [pq.read_table(file) for file in sorted((folder / step).glob(f"{position}-*.parquet"))]
    if not tables:
        return []
    table = pa.concat_tables(tables)
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
    return sorted(tuple(row.values()) for row in table.select(list(columns) or table.column_names).to_pylist())


def check_late_files(late: int, plan: Plan, folder: Path, law: Answer) -> None:
    """Every late tuple is written once, with all columns and the watermark that it missed, where it was late by the law."""
    written = sum(pq.read_metadata(file).num_rows for files in late_files(folder).values() for file in files)
    assert written == late, f"{written} late tuples were written, and {late} counted"
    for subquery in plan.subqueries:
        for side in sorted({feed.side for feed in subquery.feeds}):
            feeds = [feed for feed in subquery.feeds if feed.side == side]
            schema = late_schema(feeds[0].schema, feeds[0].time)
            files = [file for feed in feeds for file in (folder / subquery.name).glob(f"{feed.input}-*.parquet")]
            ours = pa.concat_tables([schema.empty_table(), *(pq.read_table(file, schema=schema) for file in files)])
            lawful = [
                {**late.values, MISSED: late.missed_watermark}
                for late in law.late_tuples
                if (late.step, late.side) == (subquery.name, side)
            ]
            told = difference(ours, table_of(lawful, schema))
            assert told is None, f"late tuples of '{subquery.name}' differ (left: the run, right: the law)\n{told}"
