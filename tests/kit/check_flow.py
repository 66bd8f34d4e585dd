"""Ways that part and meet again, each read as fast as flow control lets it, with bounds of any size, against the law."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import SCHEMA
from tests.kit.check_local import any_settings
from tests.kit.local_runs import run_freely
from tests.kit.spark_driver import Batch, Driver
from tidegate.query.nodes import sources
from tidegate.query.outputs import names_of, untagged
from tidegate.reference import events_of, interpret
from tidegate.stream import one_query
from tidegate.testing import difference

COLUMNS = {"ts": SCHEMA.field("ts").type, "k": pa.string(), "n": pa.int64()}


@st.composite
def any_stream(draw: st.DrawFn) -> tg.Stream:
    """Steps over one or two streams, each over any before it; the last two of them meet, or some of all leave by themselves.

    All have the same columns.
    """
    made = [tg.stream(COLUMNS, time="ts", name=name) for name in ("left", "right")[: draw(st.integers(1, 2))]]
    for number in range(draw(st.integers(1, 4))):
        made.append(_step(draw, number, draw(st.sampled_from(made)), draw(st.sampled_from(made))))
    if draw(st.booleans()):
        leaving = draw(st.lists(st.sampled_from(made), min_size=1, max_size=4))
        return one_query("check", {f"r{number}": stream for number, stream in enumerate(leaving)})
    if draw(st.booleans()):
        return made[-1].union(made[-2])
    return made[-1].join(made[-2], on="k", within="700 us", name="last").select("ts", "k", "n")


def _step(draw: st.DrawFn, number: int, one: tg.Stream, two: tg.Stream) -> tg.Stream:
    name = f"step {number}"
    match draw(st.sampled_from(["windows", "many windows", "many windows", "union", "join", "filter", "route"])):
        case "windows":
            made = one.key_by("k").window("1000 us").aggregate(n=tg.sum("n"), name=name)
        case "many windows":
            made = one.key_by("k").window("6000 us", every="500 us").aggregate(n=tg.count(), name=name)
        case "union":
            made = one.union(two.with_columns(n=nw.col("n") * 2))
        case "filter":
            made = one.filter(nw.col("n") > 1)
        case "route":
            parts = one.route(more=nw.col("n") > 1, some=nw.col("n") > 0, rest=True)
            made = parts.more.union(parts.rest) if draw(st.booleans()) else parts.some
        case _:
            made = one.join(two, on="k", within="700 us", name=name)
    return made.select("ts", "k", "n")


@st.composite
def pieces(draw: st.DrawFn) -> list[pa.Table]:
    """A sorted stream, cut anywhere."""
    steps = draw(
        st.lists(st.sampled_from([0, 0, 1, 300, 700, 2_500]), min_size=draw(st.sampled_from([0, 5, 15])), max_size=25)
    )
    times = [sum(steps[: at + 1]) for at in range(len(steps))]
    columns = {
        "ts": pa.array(times, pa.int64()).cast(COLUMNS["ts"]),
        "k": pa.array([draw(st.sampled_from("ab")) for _ in times], pa.string()),
        "n": pa.array([draw(st.integers(0, 3)) for _ in times], pa.int64()),
    }
    table = pa.table(columns)
    cuts = sorted(draw(st.lists(st.integers(0, len(times)), max_size=3)))
    return [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(times)], strict=True)]


def check_flow(data: st.DataObject) -> None:
    """Whatever may wait where, the run ends, with the law's answer; each result is in the order of event time."""
    query = data.draw(any_stream())
    tables = {source.name: data.draw(pieces()) for source in sources(query.node)}
    run = run_freely(query.node, tables, data.draw(any_settings()))
    whole = {name: pa.concat_tables(parts) for name, parts in tables.items()}
    law = interpret(query.node, events_of(query.node, whole))
    made = pa.concat_tables([query.schema.empty_table(), *run.tables])
    told = difference(made, law.rows)
    assert told is None, f"results differ (left: the run, right: the law)\n{told}"
    for result in [untagged(made, name) for name in names_of(query.node)] or [made]:
        times = result.column("ts").cast(pa.int64()).to_pylist()
        assert times == sorted(times), "results left out of order"


def check_flow_on_driver(data: st.DataObject) -> None:
    """The same queries as Spark runs them, in one cell or several, give the law's answer."""
    query = data.draw(any_stream())
    parts = {source.name: data.draw(pieces()) for source in sources(query.node)}
    number = max(map(len, parts.values()))
    batches = [Batch({name: tables[at : at + 1] for name, tables in parts.items()}) for at in range(number)]
    outcome = Driver(query.node, data.draw(st.integers(1, 3))).run(batches)
    law = interpret(query.node, outcome.events)
    made = pa.concat_tables([query.schema.empty_table(), *outcome.tables])
    told = difference(made, law.rows)
    assert told is None, f"results differ (left: the run, right: the law)\n{told}"
    assert outcome.late == law.late, f"{outcome.late} late tuples, and {law.late} by the law"
