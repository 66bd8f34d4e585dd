"""Nexmark: the generator keeps its proportions, and all 23 queries give on every runtime what DuckDB says of all events."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from examples.nexmark.answers import ANSWERS, LAST_ROWS
from examples.nexmark.generator import FIRST_ID, KINDS, Nexmark, side_table
from examples.nexmark.market import Market, market, market_of_files
from examples.nexmark.queries import QUERIES
from tests.kit.runtimes import OnDriver, OnLocal, OnReference, OnSpark, Runtime
from tidegate.query.nodes import sources
from tidegate.testing import difference

# 50 seconds around midnight, so that there are two days, and auctions that are open in both.
EVENTS = Nexmark(5_000, rate=100, start=datetime(2024, 1, 1, 23, 59, 30, tzinfo=UTC))
FEW = Nexmark(600, rate=20, seed=2, start=datetime(2024, 1, 1, 23, 59, 50, tzinfo=UTC))
EVERY_QUERY = pytest.mark.parametrize("name", QUERIES)


class Judge:
    """DuckDB over all events of an input."""

    def __init__(self, events: Nexmark) -> None:
        self.tables = events.tables()
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for kind, table in {**self.tables, "side": side_table()}.items():
            self._connection.register(kind, table)

    def expect(self, name: str, rows: pa.Table) -> None:
        """Rows of a query, the last of each key where it gives several, are those that its answer says."""
        wanted = self._connection.sql(ANSWERS[name]).to_arrow_table()
        assert wanted.num_rows or name == "q2"  # few auctions, and none that is a multiple of 123
        if name in LAST_ROWS:
            key, latest = LAST_ROWS[name]
            self._connection.register("given", rows)
            last = f"row_number() over (partition by {key} order by {latest} desc) = 1"
            rows = self._connection.sql(f"select * from given qualify {last}").to_arrow_table()
        assert difference(rows.select(wanted.column_names), wanted) is None


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(EVENTS)


@pytest.fixture(scope="module")
def judge_of_few() -> Judge:
    return Judge(FEW)


def streams(judge: Judge, events: Nexmark) -> Market:
    return market({kind: table.schema for kind, table in judge.tables.items()}, events.longest_auction)


def run(runtime: Runtime, name: str, judge: Judge, events: Nexmark) -> None:
    """The events in three batches, each of all kinds."""
    thirds = [(events.events * part // 3, events.events * (part + 1) // 3) for part in range(3)]
    batches = [next(events.blocks(*third)) for third in thirds]
    query = QUERIES[name](streams(judge, events))
    read = {source.name for source in sources(query.node)}
    result = runtime.run(query, [{kind: batch[kind] for kind in read} for batch in batches])
    assert result.late == 0
    judge.expect(name, result.rows)


@EVERY_QUERY
def test_in_process(name: str, judge: Judge) -> None:
    run(OnLocal(2), name, judge, EVENTS)


@EVERY_QUERY
def test_in_three_cells(name: str, judge: Judge) -> None:
    run(OnDriver(3), name, judge, EVENTS)


@EVERY_QUERY
def test_on_the_reference(name: str, judge_of_few: Judge) -> None:
    run(OnReference(), name, judge_of_few, FEW)


@EVERY_QUERY
def test_on_spark(name: str, judge: Judge, spark: Any, tmp_path: Path) -> None:
    run(OnSpark(spark, tmp_path, 2), name, judge, EVENTS)


def test_there_are_23() -> None:
    assert list(QUERIES) == list(ANSWERS) == [f"q{number}" for number in range(23)]


def test_bids_by_day_and_night() -> None:
    """Two hours and a half of an evening, with a bid a second: until 19 o'clock it is day, from 20 o'clock on night."""
    events = Nexmark(9_000, rate=1, start=datetime(2024, 1, 1, 18, 30, tzinfo=UTC))
    evening = Judge(events)
    made: list[pa.Table] = []
    tg.run(QUERIES["q14"](market(evening.tables, events.longest_auction)), on="local", to=made.append, progress=False)
    rows = pa.concat_tables(made)
    assert set(rows["bid_time_type"].to_pylist()) == {"dayTime", "otherTime", "nightTime"}
    evening.expect("q14", rows)


def test_events_do_not_depend_on_how_many_are_generated_or_where_they_are_cut(tmp_path: Path) -> None:
    events, fewer = Nexmark(60_000), Nexmark(50_070)
    whole = events.tables()
    for kind, table in fewer.tables().items():
        assert table.equals(whole[kind].slice(0, table.num_rows))
    events.write(tmp_path, events_in_a_file=25_000)
    made: list[pa.Table] = []
    tg.run(QUERIES["q0"](market_of_files(tmp_path, events.longest_auction)), on="local", to=made.append, progress=False)
    assert pa.concat_tables(made).combine_chunks().equals(whole["bid"].select(made[0].column_names).combine_chunks())
    assert Nexmark(60_000, seed=2).tables()["bid"] != whole["bid"]


def test_proportions_and_hot_ones() -> None:
    events = Nexmark(100_000)
    person, auction, bid = (events.tables()[kind] for kind in KINDS)
    assert (person.num_rows, auction.num_rows, bid.num_rows) == (2_000, 6_000, 92_000)
    assert auction["id"].to_pylist() == list(range(FIRST_ID, FIRST_ID + 6_000))
    assert person["id"].to_pylist() == list(range(FIRST_ID, FIRST_ID + 2_000))

    def share(test: Any) -> float:
        return float(pc.mean(test.cast(pa.float64())).as_py())

    def every_hundredth(ids: Any, place: int) -> Any:
        return pc.equal(pc.subtract(ids, pc.multiply(pc.divide(ids, 100), 100)), place)

    # The hot ones, and of the others one in a hundred by chance.
    assert share(every_hundredth(bid["auction"], 0)) == pytest.approx(0.505, abs=0.02)
    assert share(every_hundredth(bid["bidder"], 1)) == pytest.approx(0.7525, abs=0.02)
    assert share(every_hundredth(auction["seller"], 0)) == pytest.approx(0.7525, abs=0.03)
    assert share(pc.starts_with(bid["channel"], "channel-")) == pytest.approx(0.5, abs=0.02)
    assert share(pc.match_substring(bid["url"], "channel_id=")) == pytest.approx(0.45, abs=0.02)
    assert pc.approximate_median(bid["price"]).as_py() == pytest.approx(100_000, rel=0.1)
    assert pc.mean(pc.binary_length(bid["extra"])).as_py() == pytest.approx(68, abs=1)
    open_for = pc.subtract(auction["expires"].cast(pa.int64()), auction["date_time"].cast(pa.int64()))
    longest = events.longest_auction.total_seconds() * 1e6
    assert pc.min(open_for).as_py() > 0 and 0.9 * longest < pc.max(open_for).as_py() <= longest
    for moments in (bid["date_time"], bid["arrival"]):
        assert moments.to_pylist() == sorted(moments.to_pylist())
    assert pc.min(pc.subtract(bid["arrival"], bid["date_time"]).cast(pa.int64())).as_py() > 0
