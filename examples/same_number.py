"""Calls from one number that began within a minute of each other, and how far apart on the globe.

StreamCloud's join (§X): one number cannot be in two places, so a great distance in a short time is a fraud. Records of
calls come when they end, so the join looks an hour around and compares the times at which the calls began. Try

    tidegate run examples/same_number.py --on local
"""

import numpy as np
import pyarrow as pa

import tidegate as tg
from tidegate.demo.calls import calls

EARTH_KM = 6_371.0


def distance(batch: pa.RecordBatch) -> pa.Table:
    """The way over the globe between both callers (haversine)."""
    lat, lat_2, lon, lon_2 = (np.radians(batch.column(name)) for name in ("lat", "lat_right", "lon", "lon_right"))
    half = np.sin((lat_2 - lat) / 2) ** 2 + np.cos(lat) * np.cos(lat_2) * np.sin((lon_2 - lon) / 2) ** 2
    seconds = np.abs(np.asarray(batch.column("start_s")) - np.asarray(batch.column("start_s_right")))
    return pa.table(
        {
            "ts": batch.column("ts"),
            "src": batch.column("src"),
            "seconds": seconds,
            "km": 2 * EARTH_KM * np.arcsin(np.sqrt(half)),
        }
    )


stream = tg.stream(calls(rows=20_000), time="ts", name="calls")

query = stream.join(
    stream,
    on="src",
    within="1 hour",
    where=lambda l, r: (l.end_s < r.end_s) & (abs(l.start_s - r.start_s) <= 60),
).map_batches(
    distance,
    schema={"ts": stream.schema.field("ts").type, "src": pa.string(), "seconds": pa.int64(), "km": pa.float64()},
)
