"""The Aggregate, the Join and the Cartesian product over one stream of call records, as one query."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import tidegate as tg
from examples.application import Application, Report, Tables
from examples.call_records.operators import by_start, districts, overlapping, same_number
from examples.inputs.calls import call_records as generated
from examples.inputs.calls import real_calls


def results(inputs: Tables) -> dict[str, tg.Stream]:
    """The three stateful operators, each behind what it needs."""
    calls = by_start(inputs["calls"])
    return {"districts": districts(calls), "same_number": same_number(calls), "overlapping": overlapping(calls)}


def report(found: Tables) -> Report:
    """The busiest minutes of districts, and how many pairs there are."""
    busiest = found["districts"].sort_by([("calls", "descending"), ("start", "ascending"), ("district", "ascending")])
    rows = busiest.slice(0, 5).select(["district", "window_start", "calls", "duration"])
    farthest = pc.max(found["same_number"]["km"]).as_py() or 0.0
    return Report(
        rows.set_column(3, "average_s", pc.round(rows["duration"], 1)),
        f"{found['districts'].num_rows:,} minutes of districts; {found['same_number'].num_rows:,} pairs of calls of one "
        f"number within a minute, at most {farthest:,.0f} km apart; {found['overlapping'].num_rows:,} pairs of calls "
        "that share a number and overlap.",
    )


def read(folder: Path, tuples: int) -> dict[str, pa.Table]:
    """Real calls."""
    return {"calls": real_calls(folder, tuples)}


call_records = Application(
    name="call_records",
    question="How busy are the districts, how far apart are calls of one number, and which calls overlap?",
    generate=lambda tuples, seed: {"calls": generated(tuples, seed)},
    read=read,
    results=results,
    report=report,
)
