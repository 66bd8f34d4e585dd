"""An autoscaler beside real Spark queries: on a cluster of workers, and where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from itertools import groupby
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.control.events import Notice
from tidegate.control.rules import Rule, Rules
from tidegate.errors import QueryError, UnsupportedError, UserError
from tidegate.runtime.spark.executors import Executor
from tidegate.runtime.spark.observe import SparkObserver
from tidegate.runtime.spark.scaling import CellScaling, cluster_sizes
from tidegate.runtime.spark.sinks import SparkFolder
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark
UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.cluster
@pytest.mark.timeout(480)
def test_one_executor_becomes_two_under_load_and_one_again_and_its_death_is_survived() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "tests.kit.cluster_story"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-3000:]
    told = json.loads(made.stdout.splitlines()[-1])
    assert "2 partitions, so 1 of them would never get a stateful task" in told["refused"]
    assert told["went"] == [True] * 6, told
    assert told["right"], "counts are not those of the input"
    assert told["failure"] is None
    path = [(each["instances_before"], each["instances"]) for each in told["decisions"]]
    assert path[:3] == [(2, 1), (1, 2), (2, 1)]
    assert any("is gone without being released" in text for _, text in told["notices"])
    assert all("due" in each["why"] for each in told["decisions"])


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_a_cell_gets_another_instance_where_its_executor_has_a_core_to_spare() -> None:
    made = subprocess.run([sys.executable, "-m", "tests.kit.cells_story"], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    told = json.loads(made.stdout.splitlines()[-1])
    assert told["went"] == [True, True], told
    assert told["right"], "counts are not those of the input"
    assert told["failure"] is None
    # The controller of the story asks again as long as a batch takes to bring what it asked for.
    path = [(each["instances_before"], each["instances"], each["note"]) for each in told["decisions"]]
    assert [each for each, _ in groupby(path)] == [
        (1, 2, "1 executor, 2 in each cell"),
        (2, 1, "1 executor, 1 in each cell"),
    ]


def rates(spark: Any, tmp_path: Path, name: str = "rates") -> Any:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    writer = rows.writeStream.format("noop").queryName(name)
    return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()


def test_a_local_master_is_refused_with_what_works_instead(spark: Any, tmp_path: Path) -> None:
    query = rates(spark, tmp_path)
    try:
        with pytest.raises(UnsupportedError, match=r"master is 'local\[2\]'.*local-cluster\[2,1,1024\].*dry_run=True"):
            tg.autoscale(query)
    finally:
        query.stop()


def counts(kind: pa.DataType) -> tg.Stream:
    rows = pa.table({"ts": pa.array([0, 1, 20], kind), "k": [1, 2, 1]})
    return tg.stream(rows, time="ts").key_by("k").window("10us").aggregate(n=tg.count())


def test_an_elastic_run_is_refused_where_it_could_not_scale_before_a_query_is_started(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFolder, "committer", lambda *given: pytest.fail("a query was started"))
    with pytest.raises(UnsupportedError, match="driver is the only executor"):
        tg.run(counts(UTC), to=tmp_path / "out", spark=spark, elastic=True, progress=False)
    with pytest.raises(UserError, match="there is no subquery 'speed'"):
        rules = Rules(Rule(), (("speed", Rule()),))
        tg.run(counts(UTC), to=tmp_path / "other", spark=spark, elastic=rules, progress=False)
    with pytest.raises(UnsupportedError, match=r"master is 'local\[3\]'"):
        tg.run(counts(UTC), to=tmp_path / "third", spark="local[3]", elastic=True, progress=False)
    assert not (tmp_path / "third").exists(), "what is known by the master is said before anything is made"


@pytest.mark.parametrize("kind", [UTC, pa.timestamp("us")], ids=str)
def test_an_elastic_run_gives_the_same_answer_with_and_without_a_time_zone(
    spark: Any, tmp_path: Path, kind: pa.DataType
) -> None:
    elastic = tg.Elastic(dry_run=True, period_seconds=0.5)
    # Two steps, the second with lists in its results.
    query = counts(kind).key_by("k").window("20us").aggregate(each=tg.collect("n"))
    result = tg.run(query, to=tmp_path / "out", spark=spark, elastic=elastic, progress=False)
    assert difference(result.read(), answer(query).rows) is None


def test_a_dry_run_observes_any_query_and_notices_its_end(spark: Any, tmp_path: Path) -> None:
    query = rates(spark, tmp_path)
    path = tmp_path / "run.ledger"
    with tg.autoscale(query, "saso", dry_run=True, ledger=path, period_seconds=0.5, page=0) as scaling:
        while len(scaling.latest) == 0 or not scaling.latest["rates"].observation.processed:
            assert scaling.active
        assert scaling.page_url is not None
        with urllib.request.urlopen(scaling.page_url.replace("/?", "/data?"), timeout=30) as page:
            shown = json.load(page)
        assert (shown["graph"], shown["latest"]["rates"]["instances"]) == (None, 1), "its plan is Spark's own"
        query.stop()
        scaling._thread.join(30)
    seen = scaling.latest["rates"].observation
    assert seen.instances == 1
    assert seen.offered is not None
    assert seen.offered > 0
    assert (seen.busy, seen.watermark_lag_seconds) == (None, None), "what is not known is absent"
    assert scaling.changes == ()
    assert scaling.notices[-1].notice is Notice.QUERY_ENDED


def test_times_without_a_zone_are_refused_where_spark_would_read_them_in_another_than_utc(
    spark: Any, tmp_path: Path
) -> None:
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "Europe/Stockholm")
    rows = elsewhere.readStream.schema("ts timestamp_ntz, k int").json(str(tmp_path))
    query = tg.stream(rows, time="ts").key_by("k").window("10us").aggregate(n=tg.count())
    with pytest.raises(
        QueryError, match=r"have no zone, and this session would read them as times in Europe/Stockholm"
    ):
        query.to_spark(state=tmp_path / "state")


class FourCores:
    """One executor of four cores, of which nothing else is known."""

    def seen(self) -> tuple[Executor, ...]:
        return (Executor("0", 4, 0.0),)

    def lost(self) -> list[str]:
        return []


def test_instances_in_cells_are_changed_and_seen_while_a_query_runs(spark: Any, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.mkdir()
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    stream = tg.stream(rows, time="timestamp").with_columns(k=nw.col("value") % 7)
    counts = stream.key_by("k").window("1 second").aggregate(n=tg.count())
    df = counts.to_spark(checkpoint=tmp_path / "checkpoint", control=control, cells=2, instances=1)
    writer = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query, executors = writer.start(), FourCores()
    observer = SparkObserver(query, executors, "q", 0.1)  # type: ignore[arg-type]
    scaling = CellScaling(observer, executors, control, 2, 4, cluster_sizes(2, 4, 1, 1))  # type: ignore[arg-type]

    def cores_seen(until: int) -> list[int]:
        seen: list[int] = []
        while not seen or seen[-1] != until:
            assert query.isActive
            seen += [each.instances for each in scaling.poll().observations]
            time.sleep(0.1)
        return seen

    try:
        assert cores_seen(2)[-1] == 2, "one instance in each of two cells"
        assert scaling.reconfigure("q", 4, None).accepted
        assert set(cores_seen(4)) <= {2, 4}
        assert scaling.reconfigure("q", 2, None).accepted
        assert set(cores_seen(2)) <= {2, 4}
    finally:
        query.stop()


def test_what_is_no_query_is_refused(spark: Any) -> None:
    with pytest.raises(UserError, match=r"takes a running StreamingQuery.*got DataFrame"):
        tg.autoscale(spark.range(1))
