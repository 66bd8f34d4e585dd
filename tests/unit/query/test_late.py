"""Late tuples as a stream: of which step, what may follow, and what is refused when the query is built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.kit.spark_driver import Batch, Driver
from tidegate.cli.main import main
from tidegate.errors import QueryError, UnsupportedError
from tidegate.query.nodes import Late
from tidegate.query.outputs import untagged
from tidegate.stream import one_query

TIME = pa.timestamp("us")
COLUMNS = {"ts": TIME, "k": pa.string(), "n": pa.int64()}


def stream(name: str = "s") -> tg.Stream:
    return tg.stream(COLUMNS, time="ts", name=name)


def counts(of: tg.Stream | None = None, name: str = "counts") -> tg.Stream:
    return (of or stream()).key_by("k").window("1 minute").aggregate(n=tg.count(), name=name)


def gathered() -> tg.Stream:
    def update(window: Any, arriving: Any) -> None:
        return None

    three = tg.gather(*(stream(name).key_by("k") for name in "abc")).window("1 minute")
    return three.apply(update=update, state={"n": pa.int64()}, returns={"n": pa.int64()}, name="visits")


def test_the_nearest_stateful_step_is_meant_and_its_input_says_which_columns() -> None:
    renamed = stream().select("ts", "k", m=nw.col("n"))
    late = counts(renamed).filter(nw.col("n") > 1).with_columns(x=nw.lit(1)).late()
    assert isinstance(late.node, Late)
    assert late.node.operator.name == "counts"
    assert (late.schema.names, late.time) == (["ts", "k", "m", "missed_watermark"], "ts")
    joined = stream().join(counts(stream("r")), on="k", within="1 minute", name="pairs")
    assert joined.late().schema.names == ["ts", "k", "n", "missed_watermark"], "the other side is never late"
    assert gathered().late(of=2).node.inputs[0].name == "visits"


@pytest.mark.parametrize(
    ("query", "of", "told"),
    [
        (lambda: stream().filter(nw.col("n") > 1), None, r"stream 'filter_1' has none before it; call \.late\(\)"),
        (
            lambda: counts().select("ts").union(counts(stream("r"), "b").select("ts")),
            None,
            r"several together, 'counts', 'b'",
        ),
        (
            lambda: counts(counts().select("ts", "k"), "again"),
            None,
            r"'again' reads the results of 'counts', .*never late",
        ),
        (lambda: counts().late(), None, r"has late tuples already"),
        (
            lambda: stream().join(stream("r"), within="1us"),
            None,
            r"2 inputs, .*says of which; choose of='left' or of='right'",
        ),
        (lambda: stream().join(stream("r"), within="1us"), 2, r"no such input of=2; choose of='left' or of='right'"),
        (lambda: gathered(), "left", r"3 inputs, .*choose of=0 or of=1 or of=2"),
        (
            lambda: counts(stream().with_columns(missed_watermark=nw.col("ts"))),
            None,
            r"column 'missed_watermark'.*rename",
        ),
    ],
)
def test_what_has_no_late_tuples_or_several_is_refused(query: Callable[[], tg.Stream], of: Any, told: str) -> None:
    with pytest.raises(QueryError, match=told):
        query().late(of)


@pytest.mark.parametrize(
    "then",
    [
        lambda late: late.key_by("k").window("1 minute").aggregate(n=tg.count()),
        lambda late: late.session("1 minute").aggregate(n=tg.count()),
        lambda late: late.count_window(3).aggregate(n=tg.count()),
        lambda late: late.dedup("k", within="1 minute"),
        lambda late: late.join(stream("r"), on="k", within="1 minute"),
        lambda late: stream("r").join_asof(late, on="k"),
        lambda late: late.loop(lambda rows: (rows, rows), rounds=3),
        lambda late: stream("r").lookup(late.select("ts", "k", m=nw.col("n")), on="k"),
        lambda late: counts(stream("r").union(late.select("ts", "k", "n")), "again"),
        lambda late: late.key_by("k").window("1 minute").top_n(1, by="n"),
    ],
)
def test_no_stateful_step_may_follow(then: Callable[[tg.Stream], tg.Stream]) -> None:
    with pytest.raises(QueryError, match=r"are the late tuples of 'counts', which lie behind the watermark"):
        then(counts().late(name="missed"))


def test_a_round_of_a_loop_has_none() -> None:
    with pytest.raises(QueryError, match=r"'missed' in its body asks for late tuples"):
        stream().loop(
            lambda rows: (
                rows,
                rows.key_by("k").window("1us").aggregate(n=tg.count()).late(name="missed").select("ts", "k", "n"),
            ),
            rounds=3,
        )


def test_what_is_made_of_aggregates_alone_has_none() -> None:
    with pytest.raises(UnsupportedError, match=r"'missed' cannot be made of Aggregates.*leave operators out"):
        tg.run(counts().late(name="missed"), on="local", operators="multi")


def test_explain_says_where_they_come_from() -> None:
    query = counts()
    text = tg.explain({"counts": query, "late": query.late(name="missed")}, "local")
    assert "tuples too late for counts" in text
    assert "the tuples that are too late for it" in text


def test_hot_keys_leave_them_where_tuples_come_in() -> None:
    """An aggregate of large states becomes two steps, and tuples are late for the first."""
    users = stream().key_by("k").window("10us").aggregate(n=tg.distinct("n"), name="users")
    query = one_query("test", {"users": users, "late": users.late()})
    early, late = ({"s": [pa.table({"ts": pa.array([t], TIME), "k": ["a"], "n": [1]})]} for t in (25, 3))
    driver = Driver(query.node, 2, hot_keys=True)
    assert len(driver.plan.subqueries) == 2
    outcome = driver.run([Batch(early), Batch(late)])
    made = pa.concat_tables([untagged(table, "late") for table in outcome.tables])
    assert made.column("ts").cast(pa.int64()).to_pylist() == [3]


def test_the_command_line_writes_a_folder_for_each(tmp_path: Path) -> None:
    (tmp_path / "query.py").write_text(
        "import pyarrow as pa, tidegate as tg\n"
        "columns = {'ts': pa.timestamp('us'), 'k': pa.string()}\n"
        "items = [{'ts': 25, 'k': 'a'}, tg.heartbeat(25), {'ts': 3, 'k': 'b'}]\n"
        "counts = tg.stream(tg.marked(items), time='ts', schema=columns).key_by('k').window('10us')"
        ".aggregate(n=tg.count(), name='counts')\n"
        "query = {'counts': counts, 'late': counts.late()}\n"
    )
    out = tmp_path / "out"
    assert main(["run", str(tmp_path / "query.py"), "--on", "local", "--to", str(out), "--quiet"]) == 0
    assert pq.read_table(out / "late").column("k").to_pylist() == ["b"]
    assert pq.read_table(out / "counts").column("k").to_pylist() == ["a"]
