"""Folders of parquet parts that are made once, in the order in which they are to be read."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.state.own_folder import own_folder


def demo_folder(name: str) -> Path:
    """Where an input goes if nobody says where."""
    return own_folder("tidegate-demo") / name


def made_once(folder: Path, make: Callable[[], Iterable[pa.Table]]) -> str:
    """The path of a folder of parts; what ``make`` yields is written unless the folder is there already."""
    if folder.is_dir():
        return str(folder)
    draft = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    draft.mkdir(parents=True)
    try:
        for number, table in enumerate(make()):
            part = draft / f"part-{number:05}.parquet"
            pq.write_table(table, part)
            # Readers go by modification time, and parts may be written within one tick of the clock.
            os.utime(part, (1_000_000_000 + number, 1_000_000_000 + number))
        if not folder.is_dir():
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return str(folder)


def cut(table: pa.Table, parts: int) -> Iterator[pa.Table]:
    """A table in parts of about the same number of rows, in order; none is empty."""
    bounds = [table.num_rows * number // parts for number in range(parts + 1)]
    for start, stop in pairwise(bounds):
        if stop > start:
            yield table.slice(start, stop - start)
