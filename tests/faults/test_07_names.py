"""Names of streams and steps: those nobody gave are told apart, the same way everywhere; given ones must differ."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compile.compiler import compile_query
from tidegate.errors import QueryError
from tidegate.query.nodes import sources, walk
from tidegate.testing import answer, difference

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = {"ts": TIME, "k": pa.int64()}
SECOND = 1_000_000


def rows(first: int, count: int = 300) -> pa.Table:
    """A tuple every second from ``first`` on, in seconds."""
    seconds = range(first, first + count)
    return pa.table({"ts": pa.array([at * SECOND for at in seconds], TIME), "k": [at % 3 for at in seconds]})


def tables(disorder: str | int = 0) -> tuple[tg.Stream, tg.Stream]:
    return tuple(tg.stream(rows(first), time="ts", disorder=disorder) for first in (0, 40))  # type: ignore[return-value]


def iterables(disorder: str | int = 0) -> tuple[tg.Stream, tg.Stream]:
    return tuple(  # type: ignore[return-value]
        tg.stream(rows(first).to_batches(50), time="ts", schema=SCHEMA, disorder=disorder) for first in (0, 40)
    )


def counted(stream: tg.Stream) -> tg.Stream:
    return stream.key_by("k").window("10 seconds").aggregate(n=tg.count())


def union(left: tg.Stream, right: tg.Stream) -> tg.Stream:
    return counted(left.union(right))


def join(left: tg.Stream, right: tg.Stream) -> tg.Stream:
    return left.join(right, on="k", within="2 seconds")


def gather(left: tg.Stream, right: tg.Stream) -> tg.Stream:
    return (
        tg.gather(left.key_by("k"), right.key_by("k"))
        .window("10 seconds")
        .apply(
            output=lambda window: {"k": window.key, "n": sum(len(state["tuples"]) for state in window.states)},
            returns={"k": pa.int64(), "n": pa.int64()},
        )
    )


def collected(query: tg.Stream, **options: object) -> pa.Table:
    """The results of a job in this process, which must end by itself."""
    job = tg.start(query, **options)  # type: ignore[arg-type]
    given: list[pa.Table] = []
    reader = threading.Thread(target=lambda: given.extend(job))
    reader.start()
    ended = job.wait(10)
    if not ended:
        job.cancel()
    reader.join()
    assert ended, "the job hangs"
    return pa.concat_tables([query.schema.empty_table(), *given])


@pytest.mark.parametrize("disorder", [0, "30 seconds"])
@pytest.mark.parametrize("meet", [union, join, gather])
@pytest.mark.parametrize("pair", [tables, iterables])
def test_two_unnamed_origins_meet_in_process(
    pair: Callable[..., tuple[tg.Stream, tg.Stream]], meet: Callable[..., tg.Stream], disorder: str | int
) -> None:
    expected = answer(meet(*tables(disorder)))
    assert expected.rows.num_rows > 20
    assert difference(collected(meet(*pair(disorder))), expected.rows) is None


@pytest.mark.spark
def test_two_unnamed_tables_meet_on_spark(spark: object, tmp_path: Path) -> None:
    query = union(*tables())
    result = tg.run(query, to=tmp_path / "out", spark=spark, progress=False)  # type: ignore[arg-type]
    assert difference(result.read(), answer(query).rows) is None


def test_every_runtime_calls_them_alike() -> None:
    query = union(*tables())
    called = {
        runtime: [node.name for node in sources(compile_query(query.node, runtime).query)]
        for runtime in ("reference", "local", "spark")
    }
    assert called == {runtime: ["table", "table-2"] for runtime in ("reference", "local", "spark")}
    assert "\n  2  table-2 " in query.explain()
    assert answer(query, {"table": rows(0), "table-2": rows(0)}).rows.column("n").to_pylist()[0] == 8


def test_a_name_that_was_given_is_kept_and_others_go_around_it() -> None:
    left, right = tables()
    third = tg.stream(rows(0), time="ts", name="table-2")
    query = compile_query(left.union(right, third).node, "local").query
    assert [node.name for node in sources(query)] == ["table", "table-3", "table-2"]


def test_a_stream_that_is_read_twice_is_one() -> None:
    stream = tg.stream(rows(0, 30), time="ts", name="calls")
    query = stream.join(stream, on="k", within="3 seconds", name="pairs")
    assert [node.name for node in walk(compile_query(query.node, "local").query)] == ["calls", "pairs"]
    assert difference(collected(query), answer(query).rows) is None
    diamond = stream.filter(nw.col("k") > 0, name="some").union(stream.filter(nw.col("k") < 1, name="rest"))
    assert collected(counted(diamond)).num_rows > 0


def test_two_given_names_that_clash_are_refused_when_the_query_is_built() -> None:
    left, right = (tg.stream(rows(first), time="ts", name="calls") for first in (0, 40))
    with pytest.raises(QueryError, match=r"a stream and another stream are both called 'calls'.*name="):
        left.union(right)
    with pytest.raises(QueryError, match="both called 'calls'"):
        left.join(right, within="1 second")
    with pytest.raises(QueryError, match="both called 'calls'"):
        gather(left, right)
    with pytest.raises(QueryError, match="a filter and an aggregate are both called 'f'"):
        left.filter(nw.col("k") > 0, name="f").key_by("k").window("1 second").aggregate(n=tg.count(), name="f")
    with pytest.raises(QueryError, match=r"step 'filter_1': name is text; got 7"):
        left.filter(nw.col("k") > 0, name=7)  # type: ignore[arg-type]


class Endless:
    """Tuples until the job it feeds is told to stop."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        first = 0
        while True:
            yield from rows(first, 200).to_batches()
            first += 200
            time.sleep(0.001)


def test_each_of_two_unnamed_aggregates_can_be_reconfigured() -> None:
    stream = tg.stream(Endless(), time="ts", schema=SCHEMA)
    query = counted(stream).union(counted(stream))
    job = tg.start(query, instances=1, to=lambda _: None)
    try:
        first, second = job.subqueries
        assert first != second
        job.reconfigure(subquery=second, instances=3)
        assert job.instances == {first: 1, second: 3}
    finally:
        job.stop()
        job.wait()


def test_elastic_decides_for_each_of_two_unnamed_aggregates() -> None:
    stream = tg.stream(Endless(), time="ts", schema=SCHEMA)
    query = counted(stream).union(counted(stream))
    job = tg.start(query, instances=(1, 2), to=lambda _: None, elastic=tg.Elastic("steady", period_seconds=0.05))
    try:
        assert job.scaling is not None
        deadline = time.monotonic() + 10
        decided: set[str] = set()
        while len(decided) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
            decided = {name for name, latest in job.scaling.latest.items() if latest.decision is not None}
        assert decided == set(job.subqueries)
        assert len(decided) == 2
    finally:
        job.stop()
        job.wait()
