"""Links between pages, as a crawler finds them: some pages are linked to far more often than others. Or real messages."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

GRAPH = "graph/CollegeMsg.txt"
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("page", pa.string()), ("to", pa.string())])


def links(rows: int = 2_000, pages: int = 60, seconds: int = 40, seed: int = 5) -> pa.Table:
    """So many links within so many seconds, in the order of time."""
    random = np.random.default_rng(seed)
    begin = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    times = begin + np.sort(random.integers(0, seconds * 1_000_000, rows))
    found = random.integers(0, pages, rows)
    linked = np.minimum(random.zipf(1.4, rows) - 1, pages - 1)
    names = [f"page{number}" for number in range(pages)]
    columns = [pa.array(times).cast(SCHEMA.types[0]), *([names[each] for each in side] for side in (found, linked))]
    return pa.table(columns, schema=SCHEMA)


def messages(folder: Path, rows: int) -> pa.Table:
    """The first messages of `folder/graph/CollegeMsg.txt` (from, to, seconds) by time: a link for each."""
    path = folder / GRAPH
    if not path.is_file():
        raise FileNotFoundError(f"--data {folder}: no file matches {GRAPH} in it")
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    told = [(int(time), source, target) for source, target, time in lines if time.isdigit()]
    times, *sides = zip(*sorted(told)[:rows], strict=True)
    return pa.table([pa.array(np.array(times) * 1_000_000).cast(SCHEMA.types[0]), *map(list, sides)], schema=SCHEMA)
