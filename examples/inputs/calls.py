"""Call detail records (StreamCloud, table II): the demo's, with some numbers that two phones use; or real calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from tidegate.demo.calls import FIRST_SECOND, calls

CLONED_EVERY = 25
DISTRICTS = 40
STUDY = "cdr_copenhagen"


def call_records(rows: int, seed: int = 1) -> pa.Table:
    """So many records as they are emitted, at the ends of calls; the numbers of two districts are also used far away.

    `record` numbers them, and `start` is when the call began.
    """
    records = pq.read_table(calls(rows=rows, seed=seed))
    random = np.random.default_rng(seed)
    cloned = np.asarray(records["district"]) % CLONED_EVERY == 0
    away = cloned & (random.random(rows) < 0.5)
    for name, far in (("lat", 4.0), ("lon", 3.0)):
        place = records.column_names.index(name)
        records = records.set_column(place, name, pa.array(np.asarray(records[name]) + np.where(away, far, 0.0)))
    return numbered(records)


def real_calls(folder: Path, rows: int) -> pa.Table:
    """The first calls of `folder/cdr_copenhagen/calls.csv` that were answered, by their ends.

    The study says who called whom, when and how long, and not where: each number is drawn a home, and each call a place
    within some kilometres of it.
    """
    path = folder / STUDY / "calls.csv"
    if not path.is_file():
        raise FileNotFoundError(f"--data {folder}: no file matches {STUDY}/calls.csv in it")
    told = csv.read_csv(path)
    told = told.filter(pc.greater(told["duration"], 0))
    start, source = FIRST_SECOND + np.asarray(told["timestamp"]), np.asarray(told["from"])
    end = start + np.asarray(told["duration"])
    random = np.random.default_rng(1)
    lat, lon = random.random((2, int(source.max()) + 1))
    records = pa.table(
        {
            "src": told["from"].cast(pa.string()),
            "dst": told["to"].cast(pa.string()),
            "start_s": start,
            "end_s": end,
            "district": (source % DISTRICTS).astype(np.int32),
            "lat": 55.6 + 0.2 * lat[source] + random.random(len(source)) / 50,
            "lon": 12.4 + 0.2 * lon[source] + random.random(len(source)) / 50,
            "ts": pa.array(end * 1_000_000, pa.timestamp("us", tz="UTC")),
        }
    )
    return numbered(records.sort_by([("end_s", "ascending"), ("src", "ascending")]).slice(0, rows).combine_chunks())


def numbered(records: pa.Table) -> pa.Table:
    """Records with the moment at which the call began, and a number that tells them apart."""
    began = pa.array(np.asarray(records["start_s"]) * 1_000_000, pa.timestamp("us", tz="UTC"))
    return records.append_column("start", began).append_column("record", pa.array(np.arange(records.num_rows)))
