"""Generated queries whose runs in this process end at any operation on their files, and go on, against the law."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.as_of_cases import as_of_cases
from tests.kit.cases import any_features, cases
from tests.kit.check_durable import Attempt, Batches, any_attempts, check_durable, run_once
from tests.kit.check_local import arrivals
from tests.kit.count_join_cases import count_join_cases
from tests.kit.count_window_cases import count_window_cases
from tests.kit.dedup_cases import dedup_cases
from tests.kit.effort import LONG, examples
from tests.kit.join_cases import join_cases, kept_pair_cases
from tests.kit.keyed_apply_cases import keyed_apply_cases
from tests.kit.running_cases import running_cases
from tests.kit.session_cases import session_cases
from tests.kit.store_cases import store_cases
from tidegate.query.nodes import Source, sources
from tidegate.results import read_results
from tidegate.runtime.local.settings import Settings
from tidegate.sources.in_memory import Heartbeat


@settings(max_examples=examples(4), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_windows_go_on_where_they_were(data: st.DataObject) -> None:
    case = data.draw(any_features().flatmap(cases))
    check_durable(case.query, arrivals(case), data.draw(any_attempts()), case.features)


@settings(max_examples=examples(4), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_joins_go_on_where_they_were(data: st.DataObject) -> None:
    case = data.draw(join_cases())
    check_durable(case.query, case.batches, data.draw(any_attempts()), case.features)


@settings(max_examples=examples(5), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_joins_know_after_a_snapshot_who_had_a_partner_before_it(data: st.DataObject) -> None:
    case = data.draw(kept_pair_cases())
    check_durable(case.query, case.batches, data.draw(any_attempts(often=[0.9])), case.features)


@pytest.mark.parametrize(
    "kind",
    [
        keyed_apply_cases,
        running_cases,
        dedup_cases,
        session_cases,
        count_window_cases,
        store_cases,
        as_of_cases,
        count_join_cases,
    ],
)
def test_what_takes_settled_tuples_goes_on_where_it_was(kind: Any) -> None:
    @settings(max_examples=examples(4), suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(kind())
        check_durable(case.query, case.batches, data.draw(any_attempts()), case.told)

    check()


# Sorted streams, so that nearly all of what came is in the state of steps and not in gates.

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema({"ts": TIME, "k": pa.string(), "n": pa.int64()})


def stream(name: str = "one") -> tg.Stream:
    return tg.stream(SCHEMA, time="ts", name=name)


def chained() -> tg.Stream:
    counts = stream().key_by("k").window("4ms", every="2ms").aggregate(n=tg.sum("n"))
    return counts.key_by("n").window("8ms").aggregate(keys=tg.count())


def pairs() -> tg.Stream:
    return stream().join(stream("two"), on="k", within="5ms", where=lambda l, r: l.n <= r.n)


def pairs_and_alone() -> tg.Stream:
    return stream().join(stream("two"), on="k", within="5ms", where=lambda l, r: l.n < r.n, how="full")


def with_a_partner() -> tg.Stream:
    return stream().join(stream("two"), on="k", within="5ms", where=lambda l, r: l.n > r.n, how="semi")


def near_pairs() -> tg.Stream:
    return stream().join(stream("two"), window="6ms", where=lambda l, r: l.n < r.n)


def once() -> tg.Stream:
    return stream().dedup("k", within="5ms")


def sessions() -> tg.Stream:
    return stream().key_by("k").session("1500us").aggregate(n=tg.sum("n"), c=tg.count())


def counted() -> tg.Stream:
    return stream().key_by("k").count_window(3, every=2).aggregate(n=tg.sum("n"))


def found() -> tg.Stream:
    return stream().join_asof(stream("two").with_columns(m=nw.col("n")).select("ts", "k", "m"), on="k")


def arriving(names: list[str]) -> list[dict[str, list[pa.Table]]]:
    batches = []
    for number in range(8):
        times = [number * 3_000 + step * 650 for step in range(5)]
        batches.append(
            {
                name: [pa.table([pa.array(times, TIME), list("abcab"), [1, 2, 3, 4, number]], schema=SCHEMA)]
                for name in names
            }
        )
    return batches


@pytest.mark.parametrize(
    "query", [chained, pairs, pairs_and_alone, with_a_partner, near_pairs, once, sessions, counted, found]
)
def test_a_run_that_ends_at_any_operation_loses_and_doubles_nothing(query: Any) -> None:
    asked = query()
    batches = arriving([source.name for source in sources(asked.node)])
    # `make test` tries one operation in so many, another set for each query; `make test-long` all of them.
    stride = 1 if LONG else 29
    taken = 0
    for last in range(3 + len(query.__name__) % 7, 120, stride):
        behind = last % 2 == 0
        again = Attempt(Settings(last % 3 + 1, segment_rows=3), last, 0.9, last, behind)
        taken += check_durable(asked, batches, [again, replace(again, seed=last + 1)], query.__name__)
    assert taken > 10


def test_every_tuple_is_counted_or_late_once_wherever_a_run_ends(tmp_path: Path) -> None:
    """Which tuples are late depends on where segments end; that each is in one of the two results does not."""
    counts = stream().key_by("k").window("2ms").aggregate(n=tg.count(), name="counts")
    missed = counts.late().with_columns(late=nw.lit(True), n=nw.lit(1, nw.Int64)).select("ts", "k", "n", "late")
    both = counts.with_columns(late=nw.lit(False)).select("ts", "k", "n", "late").union(missed)
    batches = arriving(["one"])

    def ahead_of_itself(_: Batches, source: Source) -> list[Any]:
        """A watermark behind each batch that tuples of the next one miss."""
        found: list[Any] = []
        for number, batch in enumerate(batches):
            found += [*batch[source.name], Heartbeat(number * 3_000 + 4_500)]
        return found

    late = 0
    for last in (4, 9, 15, 22, 31, 47):
        folder = tmp_path / str(last)
        folder.mkdir()
        again = Attempt(Settings(last % 3 + 1, segment_rows=2), last, 0.9, last, last % 2 == 0)
        for attempt in (again, replace(again, seed=last + 1), replace(again, last=None)):
            run_once(both, batches, attempt, folder, ahead_of_itself)
        made = read_results(folder / "out", "parquet", both.schema)
        assert pc.sum(made.column("n")).as_py() == 8 * 5
        late += pc.sum(made.column("late")).as_py()
    assert late > 0
