"""Parquet files as a replayable source: rows of plain values, read side by side by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import DataError, QueryError
from tidegate.micro.graph import ReplayableSource, Row, source

BATCH_ROWS = 2048


class _FileSplit(NamedTuple):
    """Of every file the row groups whose number, divided by ``of``, leaves ``part``."""

    files: tuple[str, ...]
    time: str
    columns: tuple[str, ...]
    part: int
    of: int


def parquet(
    name: str,
    files: Sequence[str | Path],
    *,
    time: str,
    columns: Sequence[str],
    splits: int = 1,
    disorder_us: int = 0,
) -> ReplayableSource:
    """Rows of ``time``, in microseconds, and ``columns``, from files in the order in which they are given.

    Splits take turns with the row groups, so that they are near in time; each process reads some of them.
    """
    if splits < 1 or not files:
        raise QueryError(f"source '{name}': needs at least one file and one split; got {len(files)} and {splits}")
    paths = tuple(str(file) for file in files)
    parts = [_FileSplit(paths, time, tuple(columns), part, splits) for part in range(splits)]
    return source(name, parts, _read_split, disorder_us=disorder_us)


def _read_split(split: _FileSplit, skip: int) -> Iterator[list[Row]]:
    wanted = [split.time, *split.columns]
    for path in split.files:
        with pq.ParquetFile(path) as file:
            missing = [name for name in wanted if name not in file.schema_arrow.names]
            if missing:
                raise DataError(f"file '{path}': there is no column {missing}; it has {file.schema_arrow.names}")
            groups = [group for group in range(file.num_row_groups) if group % split.of == split.part]
            for group in groups:
                count = file.metadata.row_group(group).num_rows
                if skip >= count:
                    skip -= count
                    continue
                for batch in file.iter_batches(BATCH_ROWS, [group], wanted):
                    rows = batch.slice(skip)
                    skip -= batch.num_rows - rows.num_rows
                    if rows.num_rows:
                        yield _plain(rows, split.time, split.columns)


def _plain(batch: pa.RecordBatch, time: str, columns: tuple[str, ...]) -> list[Row]:
    times = batch.column(time)
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("us", tz=times.type.tz)).cast(pa.int64())
    values = [batch.column(name).to_pylist() for name in columns]
    return list(zip(times.to_numpy().tolist(), *values, strict=True))
