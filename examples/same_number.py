"""Calls from one number that began within a minute of each other, and how far apart on the globe.

StreamCloud's join (§X): for each two records with Src = Src' and |Start − Start'| ≤ 60 s it computes the way over the globe
between the callers. One number cannot be in two places, so a great distance in a short time is a fraud.

Event time is when a call began. A record comes when the call ends, so records are out of order by as much as calls last,
which ``disorder`` says. Try

    tidegate run examples/same_number.py --on local
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from tidegate.demo import demo_folder, write_once
from tidegate.demo.calls import calls

EARTH_KM = 6_371.0
ROWS = 20_000


def with_start(records: pa.Table) -> pa.Table:
    """Records with the moment at which the call began, and a number that tells them apart."""
    start_us = pa.array(np.asarray(records.column("start_s")) * 1_000_000)
    return records.append_column("start", start_us.cast(pa.timestamp("us", tz="UTC"))).append_column(
        "record", pa.array(np.arange(records.num_rows))
    )


def distance(batch: pa.RecordBatch) -> pa.Table:
    """The way over the globe between both callers (haversine)."""
    lat, lat_2, lon, lon_2 = (np.radians(batch.column(name)) for name in ("lat", "lat_right", "lon", "lon_right"))
    half = np.sin((lat_2 - lat) / 2) ** 2 + np.cos(lat) * np.cos(lat_2) * np.sin((lon_2 - lon) / 2) ** 2
    seconds = np.abs(np.asarray(batch.column("start_s")) - np.asarray(batch.column("start_s_right")))
    return pa.table(
        {
            "start": batch.column("start"),
            "src": batch.column("src"),
            "seconds": seconds,
            "km": 2 * EARTH_KM * np.arcsin(np.sqrt(half)),
        }
    )


def same_number(records: tg.Stream) -> tg.Stream:
    """Each two calls of one number that began within a minute of each other, once."""
    made = {"start": records.schema.field("start").type, "src": pa.string(), "seconds": pa.int64(), "km": pa.float64()}
    return records.join(records, on="src", within="60 seconds", where=lambda l, r: l.record < r.record).map_batches(
        distance, schema=made
    )


def folder() -> str:
    """The demo's calls with their start, in files."""
    where = demo_folder(f"calls-with-start-{ROWS}")
    return write_once(where, lambda: with_start(pq.read_table(calls(rows=ROWS))), 12)


query = same_number(tg.stream(folder(), time="start", disorder="1 day", name="calls"))
