"""Fraud: a number that is used at two places between which no one can travel in the time (StreamCloud §I, §X.A)."""

from pathlib import Path

import narwhals as nw
import pyarrow as pa

import tidegate as tg
from examples.application import Application, Report, Tables
from examples.call_records.operators import by_start, same_number
from examples.inputs.calls import call_records, real_calls

KM_PER_SECOND = 0.25
"""As fast as an aeroplane."""
AROUND_KM = 10.0
"""How far the place of a caller may be off."""
TIMES = 2
col = nw.col


def suspects(calls: tg.Stream) -> tg.Stream:
    """The numbers that, within an hour, were at least twice at two places at once."""
    return (
        same_number(calls)
        .filter(col("km") > AROUND_KM + KM_PER_SECOND * col("seconds"))
        .key_by("src")
        .window("1 hour")
        .aggregate(times=tg.count(), farthest_km=tg.max("km"))
        .filter(col("times") >= TIMES)
    )


def report(found: Tables) -> Report:
    """The numbers that were noticed most."""
    most = found["suspects"].sort_by([("times", "descending"), ("src", "ascending"), ("start", "ascending")])
    numbers = len(set(most["src"].to_pylist()))
    return Report(
        most.slice(0, 5).select(["src", "window_start", "times", "farthest_km"]),
        f"{numbers:,} numbers were used at two places at once, in {most.num_rows:,} hours of a number.",
    )


def read(folder: Path, tuples: int) -> dict[str, pa.Table]:
    """Real calls."""
    return {"calls": real_calls(folder, tuples)}


fraud = Application(
    name="fraud",
    question="Which numbers call from two places at once?",
    generate=lambda tuples, seed: {"calls": call_records(tuples, seed)},
    read=read,
    results=lambda inputs: {"suspects": suspects(by_start(inputs["calls"]))},
    report=report,
)
