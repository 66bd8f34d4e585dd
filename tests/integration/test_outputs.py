"""Several results of one query on real Spark and in process: shared steps run once, and each result is there once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.results import logged_names, part_files
from tidegate.runtime.spark.part_log import PartLog
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark

MOMENT = pa.timestamp("us", tz="UTC")
ROWS = 40


def trades(folder: Path, files: int = 3) -> str:
    """Files of trades, a second apart, each written after the one before."""
    folder.mkdir()
    for number in range(files):
        at = range(number * ROWS, (number + 1) * ROWS)
        amounts = pa.array([None if second % 11 == 0 else second % 7 for second in at], pa.int64())
        table = pa.table(
            {
                "ts": pa.array([1_000_000 * second for second in at], MOMENT),
                "k": [f"k{s % 3}" for s in at],
                "n": amounts,
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_700_000_000 + 2 * number,) * 2)
    return str(folder / "*.parquet")


def check(result: tg.RunResult, results: dict[str, tg.Stream]) -> None:
    """The rows of each result are the reference's, in a folder that has no others."""
    law = answer(results)
    assert result.to is not None
    for name in results:
        told = difference(result.read(name), law[name])
        assert told is None, f"{name}: {told}"
        assert law[name].num_rows > 0
        listed = logged_names(result.to / name)
        assert listed is None or {part.name for part in part_files(result.to / name, "parquet")} == listed


def eleven(files: str, called: Path) -> dict[str, tg.Stream]:
    """Eleven windows over what one operator gives, which notes every call of its function."""

    def settle(window: Any, trade: Any) -> Any:
        with called.open("a") as file:
            file.write(".")
        balance = window.state["balance"] + (trade["n"] or 0)
        return tg.updated({"balance": balance}, rows={"k": window.key, "balance": balance})

    settled = (
        tg.stream(files, time="ts")
        .key_by("k")
        .unbounded()
        .apply(
            update=settle,
            state={"balance": pa.int64()},
            initial={"balance": 0},
            returns={"k": pa.string(), "balance": pa.int64()},
            name="transactor",
        )
    )
    return {
        f"every{size}": settled.key_by("k").window(f"{size} seconds").aggregate(n=tg.count(), most=tg.max("balance"))
        for size in range(5, 16)
    }


def test_a_transactor_of_eleven_aggregations_runs_once_for_each_tuple(tmp_path: Path, spark: Any) -> None:
    called = tmp_path / "called"

    def calls() -> int:
        number = called.stat().st_size
        called.unlink()
        return number

    results = eleven(trades(tmp_path / "in"), called)
    here = tg.run(results, on="local", to=tmp_path / "local", progress=False)
    assert calls() == 3 * ROWS
    there = tg.run(results, to=tmp_path / "spark", files_per_batch=1, cells=1, spark=spark, progress=False)
    assert calls() == 3 * ROWS
    assert here.results == there.results
    assert there.batches > 3, "a batch for each file, and the end of input"
    for run in (here, there):
        check(run, results)


def parted(files: str) -> dict[str, tg.Stream]:
    stream = tg.stream(files, time="ts")
    counts = stream.key_by("k").window("10 seconds").aggregate(n=tg.count(), total=tg.sum("n"))
    return {**stream.route(big=nw.col("n") > 4, rest=True), "counts": counts, "busy": counts.filter(nw.col("n") > 3)}


def test_a_batch_that_was_listed_in_some_of_its_folders_is_listed_in_the_others_and_nowhere_twice(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # batch 1   listed in big and rest; then the driver dies; it is run again and listed in counts and busy
    results, out = parted(trades(tmp_path / "in")), tmp_path / "out"
    add = PartLog.add

    def dies(log: PartLog, batch: int, parts: Any) -> None:
        if batch == 1 and log.folder.name == "counts":
            raise RuntimeError("the driver dies between two folders")
        add(log, batch, parts)

    def run() -> tg.RunResult:
        return tg.run(results, to=out, files_per_batch=1, spark=spark, progress=False)

    with monkeypatch.context() as patched:
        patched.setattr(PartLog, "add", dies)
        with pytest.raises(Exception, match="the driver dies between two folders"):
            run()
    listed = {name: (out / name / "_spark_metadata" / "1").exists() for name in results}
    assert listed == {"big": True, "rest": True, "counts": False, "busy": False}
    before = {name: logged_names(out / name) or frozenset() for name in results}
    check(run(), results)
    for name in results:
        assert before[name] <= (logged_names(out / name) or frozenset()), "what was listed stays as it was"
        assert spark.read.parquet(str(out / name)).count() == answer(results)[name].num_rows


def test_a_folder_that_is_gone_is_named_and_other_results_are_another_run(tmp_path: Path, spark: Any) -> None:
    results, out = parted(trades(tmp_path / "in", files=1)), tmp_path / "out"

    def stopped(_: tg.Progress) -> None:
        raise KeyboardInterrupt

    def run(results: dict[str, tg.Stream], progress: Any = False) -> tg.RunResult:
        return tg.run(results, to=out, spark=spark, progress=progress)

    with pytest.raises(KeyboardInterrupt):
        run(results, stopped)
    with pytest.raises(tg.CheckpointError, match="big, rest, counts, busy"):
        run({"all": results["counts"]})
    log = out / "rest" / "_spark_metadata"
    log.rename(tmp_path / "log")
    with pytest.raises(tg.CheckpointError, match=r"out/rest, and they are gone"):
        run(results)
    (tmp_path / "log").rename(log)
    check(run(results), results)


def test_a_dataframe_is_read_once_and_routed_to_json_lines(tmp_path: Path, spark: Any) -> None:
    files = trades(tmp_path / "in")
    seen = tmp_path / "seen"

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        with seen.open("a") as file:
            file.write("." * batch.num_rows)
        return batch

    frame = spark.readStream.schema("ts timestamp, k string, n long").parquet(str(tmp_path / "in"))
    looked = tg.stream(frame, time="ts").map_batches(look)
    parts = dict(looked.route(big=nw.col("n") > 4, some=nw.col("n") > 1, rest=True))
    result = tg.run(parts, to=tmp_path / "out.jsonl", bounded=True, spark=spark, progress=False)
    assert seen.stat().st_size == 3 * ROWS, "the step that all parts read runs once"
    law = answer(dict(tg.stream(files, time="ts").route(big=nw.col("n") > 4, some=nw.col("n") > 1, rest=True)))
    for name in parts:
        told = difference(result.read(name), law[name])
        assert told is None, f"{name}: {told}"
    assert sum(law[name].num_rows for name in parts) == result.results == 3 * ROWS


def test_the_screen_shows_the_first_rows_of_each_result(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    results = parted(trades(tmp_path / "in", files=1))
    tg.run({name: results[name] for name in ("counts", "big")}, spark=spark, show=2, progress=False)
    lines = iter(capsys.readouterr().out.splitlines())

    def words() -> Iterator[list[str]]:
        yield from (next(lines).split() for _ in range(4))

    counts, big = list(words()), list(words())
    assert (counts[0], counts[1][:2], counts[2][2]) == (["counts"], ["ts", "k"], "k0")
    assert (big[0], big[1], [row[-1] for row in big[2:]]) == (["big"], ["ts", "k", "n"], ["5", "6"])
    assert next(lines) == "(21 rows, 4 shown)", "12 windows of a key, and 9 trades"
