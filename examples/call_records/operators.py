"""The operators of StreamCloud's evaluation (§X.A): a Map, an Aggregate, a Join and a Cartesian product of call records."""

from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

import tidegate as tg

EARTH_KM = 6_371.0
LONGEST = "1 day"
"""A record comes when its call ends; those of longer calls are late."""
APART = "2 hours"
"""Calls that overlap are found if they began at most so long after each other."""
PAIR = {"start": pa.timestamp("us", tz="UTC"), "src": pa.string(), "seconds": pa.int64(), "km": pa.float64()}
col = nw.col


def by_start(records: Any) -> tg.Stream:
    """Records by the moments at which the calls began, in the order in which they are emitted."""
    return tg.stream(records, time="start", disorder=LONGEST, name="calls")


def with_duration(calls: tg.Stream) -> tg.Stream:
    """Map: how long each call lasted."""
    return calls.with_columns(duration=col("end_s") - col("start_s"))


def districts(calls: tg.Stream) -> tg.Stream:
    """Aggregate: the calls of each district and how long they last on average; 60 seconds, every 10."""
    return (
        with_duration(calls)
        .key_by("district")
        .window("60 seconds", every="10 seconds")
        .aggregate(calls=tg.count(), duration=tg.mean("duration"))
    )


def same_number(calls: tg.Stream) -> tg.Stream:
    """Join: each two calls of one number that began within a minute of each other, once, and how far apart."""
    return calls.join(calls, on="src", within="60 seconds", where=lambda l, r: l.record < r.record).map_batches(
        distance, schema=PAIR
    )


def distance(batch: pa.RecordBatch) -> pa.Table:
    """How far apart the callers of two calls were, in time and on the globe."""
    places = (batch.column(name) for name in ("lat", "lon", "lat_right", "lon_right"))
    seconds = np.abs(np.asarray(batch.column("start_s")) - np.asarray(batch.column("start_s_right")))
    return pa.table(
        {"start": batch.column("start"), "src": batch.column("src"), "seconds": seconds, "km": km_between(*places)}
    )


def km_between(lat: Any, lon: Any, lat_2: Any, lon_2: Any) -> np.ndarray:
    """The way over the globe between places in degrees (haversine)."""
    lat, lon, lat_2, lon_2 = (np.radians(np.asarray(each)) for each in (lat, lon, lat_2, lon_2))
    half = np.sin((lat_2 - lat) / 2) ** 2 + np.cos(lat) * np.cos(lat_2) * np.sin((lon_2 - lon) / 2) ** 2
    return 2 * EARTH_KM * np.arcsin(np.sqrt(half))


def overlapping(calls: tg.Stream) -> tg.Stream:
    """Cartesian product: each two calls that share a number, calling or called, and overlap in time.

    Either of two numbers may equal either of two others, so no key brings the calls together: every pair is tried.
    """
    return calls.join(calls, within=APART, where=overlap).select(
        "start", "src", "dst", src_2=col("src_right"), dst_2=col("dst_right")
    )


def overlap(l: Any, r: Any) -> Any:
    """Both have a number in common, and the one that began later did so before the other ended."""
    shared = (l.src == r.src) | (l.src == r.dst) | (l.dst == r.src) | (l.dst == r.dst)
    return shared & (l.start_s < r.start_s) & (r.start_s < l.end_s)
