"""High mobility: a phone that, from one call to its next, was faster than anyone travels."""

from pathlib import Path

import narwhals as nw
import numpy as np
import pyarrow as pa

import tidegate as tg
from examples.application import Application, Report, Tables
from examples.call_records.operators import by_start, km_between
from examples.inputs.calls import call_records, real_calls

KM_PER_HOUR = 300.0
LEAST_KM = 20.0
"""Between nearer places a phone may have changed its cell and nothing more."""
MOVE = {
    "start": pa.timestamp("us", tz="UTC"),
    "src": pa.string(),
    "seconds": pa.int64(),
    "km": pa.float64(),
    "km_per_hour": pa.float64(),
}


def moves(calls: tg.Stream) -> tg.Stream:
    """Each two consecutive calls of a number between which it was too fast: an Aggregate over two tuples, every one."""
    return (
        calls.key_by("src")
        .count_window(2, every=1)
        .aggregate(
            lat=tg.first("lat"),
            lon=tg.first("lon"),
            began=tg.first("start_s"),
            lat_2=tg.last("lat"),
            lon_2=tg.last("lon"),
            began_2=tg.last("start_s"),
        )
        .map_batches(speed, schema=MOVE)
        .filter((nw.col("km") >= LEAST_KM) & (nw.col("km_per_hour") > KM_PER_HOUR))
    )


def speed(batch: pa.RecordBatch) -> pa.Table:
    """How far and how fast a phone went between two calls; within one second counts as a second."""
    km = km_between(*(batch.column(name) for name in ("lat", "lon", "lat_2", "lon_2")))
    seconds = np.asarray(batch.column("began_2")) - np.asarray(batch.column("began"))
    told = {"start": batch.column("start"), "src": batch.column("src"), "seconds": seconds, "km": km}
    return pa.table(told | {"km_per_hour": km * 3_600 / np.maximum(seconds, 1)})


def report(found: Tables) -> Report:
    """The numbers that moved too fast most often."""
    made = found["moves"]
    counted = made.group_by("src").aggregate([([], "count_all"), ("km", "max"), ("km_per_hour", "max")])
    most = counted.sort_by([("count_all", "descending"), ("src", "ascending")]).rename_columns(
        ["src", "moves", "farthest_km", "fastest_km_per_hour"]
    )
    return Report(
        most.slice(0, 5),
        f"{most.num_rows:,} phones moved at more than {KM_PER_HOUR:.0f} km/h, {made.num_rows:,} times.",
    )


def read(folder: Path, tuples: int) -> dict[str, pa.Table]:
    """Real calls."""
    return {"calls": real_calls(folder, tuples)}


high_mobility = Application(
    name="high_mobility",
    question="Which phones move too fast between one call and the next?",
    generate=lambda tuples, seed: {"calls": call_records(tuples, seed)},
    read=read,
    results=lambda inputs: {"moves": moves(by_start(inputs["calls"]))},
    report=report,
)
