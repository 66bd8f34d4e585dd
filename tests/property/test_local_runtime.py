"""Generated queries, data and reconfigurations in this process, against the law."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.property.cases import SCHEMA, Case, any_features, cases
from tests.property.local_runs import run_in_step
from tidegate.errors import DataError
from tidegate.operators.shared_windows import SHARDS
from tidegate.query.nodes import sources
from tidegate.reference import Advance, Event, Rows, interpret
from tidegate.runtime.local.job import LocalJob, Settings
from tidegate.testing import difference, last_revisions


@dataclass
class Reconfigurer:
    """Asks for new numbers of instances and random mappings, several at once, and does not wait for any of them."""

    seed: int
    most: int
    asked: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, job: LocalJob, batch: int) -> None:
        for running in job._regions:
            for _ in range(self._random.choice([0, 1, 1, 3])):
                count = self._random.randint(1, self.most)
                mapping = (
                    [self._random.randrange(count) for _ in range(SHARDS)] if self._random.random() < 0.5 else None
                )
                running.ask(count, mapping)
                self.asked += 1


def events_of(query: tg.Stream, batches: list[dict[str, list[pa.Table]]]) -> list[Event]:
    """What the law sees: each batch, then the watermark that it brings about."""
    latest = dict.fromkeys((source.name for source in sources(query.node)), float("-inf"))
    events: list[Event] = []
    for batch in batches:
        for source in sources(query.node):
            for table in batch.get(source.name, ()):
                if table.num_rows:
                    events.append(Rows(source.name, table))
                    seen = pc.max(table.column(source.time).cast(pa.int64())).as_py()
                    latest[source.name] = max(latest[source.name], seen - source.disorder_us)
        events.append(Advance(min(latest.values())))
    return [*events, Advance(float("inf"))]


def arrivals(case: Case) -> list[dict[str, list[pa.Table]]]:
    return [{name: list(tables) for name, tables in batch.parts.items()} for batch in case.batches]


@settings(max_examples=200)
@given(data=st.data())
def test_the_output_is_the_laws_however_instances_change(data: st.DataObject) -> None:
    case = data.draw(cases(data.draw(any_features())))
    batches = arrivals(case)
    reconfigure = Reconfigurer(data.draw(st.integers(0, 2**16)), data.draw(st.sampled_from([1, 2, 5, 9])))
    chosen = Settings(
        data.draw(st.integers(1, 4)),
        segment_rows=data.draw(st.sampled_from([1, 2, 7, 1_000])),
    )
    try:
        run = run_in_step(case.query.node, batches, chosen, reconfigure)
    except DataError:
        with pytest.raises(DataError):
            interpret(case.query.node, events_of(case.query, batches))
        return
    law = interpret(case.query.node, events_of(case.query, batches))
    made = pa.concat_tables([case.query.schema.empty_table(), *run.tables])
    told = difference(last_revisions(made, case.keys), last_revisions(law.rows, case.keys))
    assert told is None, f"results differ (left: the run, right: the law)\n{told}"
    assert run.job.late == law.late
    assert run.job.state_rows == 0, "state is left after the end of input"
    if case.features.lateness == "none":
        times = made.column(case.query.time).cast(pa.int64()).to_pylist()
        assert times == sorted(times), "results left out of order"


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
    counts = left.key_by("k").window(3_000, every=1_000).aggregate(n=tg.sum("n"))
    total = counts.key_by("k").window(9_000).aggregate(n=tg.sum("n"), biggest=tg.max("n"))
    twice = left.union(left.with_columns(n=-1))
    both = left.union(right)
    return {
        "stateless": left.filter(nw.col("n") > 2),
        "chain": total,
        "diamond": twice.key_by("k").window(4_000).aggregate(n=tg.sum("n")),
        "two aggregates of one stream": counts.select("ts", "k", "n").union(
            left.key_by("k").window(2_000).aggregate(n=tg.count()).select("ts", "k", "n")
        ),
        "union, then two stateful": both.key_by("k")
        .window(3_000)
        .aggregate(n=tg.sum("n"))
        .key_by("k")
        .window(6_000, every=3_000)
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
@settings(max_examples=25)
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
    run = run_in_step(
        query.node, batches, Settings(2, segment_rows=data.draw(st.sampled_from([1, 5, 1_000]))), reconfigure
    )
    law = interpret(query.node, events_of(query, batches))
    made = pa.concat_tables([query.schema.empty_table(), *run.tables])
    told = difference(made, law.rows)
    assert told is None, f"results differ (left: the run, right: the law)\n{told}"
    times = made.column("ts").cast(pa.int64()).to_pylist()
    assert times == sorted(times), "results left out of order"
