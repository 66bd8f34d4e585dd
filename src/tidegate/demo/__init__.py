"""What ``tidegate demo`` runs on; and folders of parquet parts that are generated once, in the order they are read."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.state.own_folder import own_folder


def demo_folder(name: str) -> Path:
    """Where an input goes unless a folder is given."""
    return own_folder("tidegate-demo") / name


def write_once(folder: Path, generate: Callable[[], pa.Table], parts: int) -> str:
    """The path of a folder of so many parts, none of them empty; written unless the folder is there already."""
    if folder.is_dir():
        return str(folder)
    draft = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    draft.mkdir(parents=True)
    try:
        table = generate()
        bounds = [table.num_rows * number // parts for number in range(parts + 1)]
        for number, (start, stop) in enumerate(pair for pair in pairwise(bounds) if pair[1] > pair[0]):
            part = draft / f"part-{number:05}.parquet"
            pq.write_table(table.slice(start, stop - start), part)
            # Readers go by modification time, and parts may be written within one tick of the clock.
            os.utime(part, (1_000_000_000 + number, 1_000_000_000 + number))
        if not folder.is_dir():
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return str(folder)
