"""Generated queries, data and reconfigurations in this process, against the law."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import SCHEMA, any_features, cases
from tests.kit.check_flow import check_flow
from tests.kit.check_local import Reconfigurer, any_reconfigurer, any_settings, check_locally, events_of
from tests.kit.effort import examples
from tests.kit.local_runs import run_in_step
from tidegate.query.nodes import sources
from tidegate.reference import interpret
from tidegate.testing import difference


@settings(max_examples=examples(25))
@given(data=st.data())
def test_the_output_is_the_laws_however_instances_change(data: st.DataObject) -> None:
    case = data.draw(any_features().flatmap(cases))
    check_locally(case, data.draw(any_settings()), data.draw(any_reconfigurer()))


@settings(max_examples=60)
@given(data=st.data())
def test_ways_that_part_and_meet_again_end_whatever_may_wait_where(data: st.DataObject) -> None:
    check_flow(data)


@st.composite
def sorted_tables(draw: st.DrawFn) -> list[pa.Table]:
    """A sorted stream in pieces."""
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 700, 2_500]), min_size=0, max_size=40))
    times = [sum(steps[: at + 1]) for at in range(len(steps))]
    rows = [(time, draw(st.sampled_from("abc")), draw(st.integers(0, 5))) for time in times]
    table = pa.table(
        {
            "ts": pa.array([row[0] for row in rows], pa.int64()).cast(SCHEMA.field("ts").type),
            "k": pa.array([row[1] for row in rows], pa.string()),
            "n": pa.array([row[2] for row in rows], pa.int64()),
        }
    )
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    return [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def shapes(left: tg.Stream, right: tg.Stream) -> dict[str, tg.Stream]:
    """Queries with more than one way through them."""
    counts = left.key_by("k").window("3ms", every="1ms").aggregate(n=tg.sum("n"))
    total = counts.key_by("k").window("9ms").aggregate(n=tg.sum("n"), biggest=tg.max("n"))
    twice = left.union(left.with_columns(n=-1))
    both = left.union(right)
    return {
        "stateless": left.filter(nw.col("n") > 2),
        "chain": total,
        "diamond": twice.key_by("k").window("4ms").aggregate(n=tg.sum("n")),
        "two aggregates of one stream": counts.select("ts", "k", "n").union(
            left.key_by("k").window("2ms").aggregate(n=tg.count()).select("ts", "k", "n")
        ),
        "union, then two stateful": both.key_by("k")
        .window("3ms")
        .aggregate(n=tg.sum("n"))
        .key_by("k")
        .window("6ms", every="3ms")
        .aggregate(n=tg.count()),
        "union without state": both.with_columns(n=nw.col("n") * 2),
    }


@pytest.mark.parametrize(
    "shape",
    [
        "stateless",
        "chain",
        "diamond",
        "two aggregates of one stream",
        "union, then two stateful",
        "union without state",
    ],
)
@settings(max_examples=examples(5))
@given(data=st.data())
def test_queries_of_several_parts_agree_with_the_law(shape: str, data: st.DataObject) -> None:
    kind = {"ts": SCHEMA.field("ts").type, "k": pa.string(), "n": pa.int64()}
    left, right = (tg.stream(kind, time="ts", name=name) for name in ("left", "right"))
    query = shapes(left, right)[shape]
    names = [source.name for source in sources(query.node)]
    pieces = {name: data.draw(sorted_tables()) for name in names}
    most = max(len(parts) for parts in pieces.values())
    batches = [{name: parts[at : at + 1] for name, parts in pieces.items()} for at in range(most)]
    reconfigure = Reconfigurer(data.draw(st.integers(0, 2**16)), 6)
    run = run_in_step(query.node, batches, data.draw(any_settings()), reconfigure)
    law = interpret(query.node, events_of(query, batches))
    made = pa.concat_tables([query.schema.empty_table(), *run.tables])
    told = difference(made, law.rows)
    assert told is None, f"results differ (left: the run, right: the law)\n{told}"
    times = made.column("ts").cast(pa.int64()).to_pylist()
    assert times == sorted(times), "results left out of order"
