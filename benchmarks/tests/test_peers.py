"""Peers in environments of their own: found, or missing for a reason; and the keys they count."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from benchmarks.engines import ENGINES
from benchmarks.engines.csv_input import write_csv
from benchmarks.engines.text_keys import key_columns, keys_of
from benchmarks.inputs import InputSpec, prepare
from benchmarks.measure import Trial, groups_that_fit
from benchmarks.pairs import pairs_of_words
from benchmarks.peers import READY, REASON, reason_missing
from benchmarks.workloads import KEYED, PAIRCOUNT_L, WORDCOUNT, Batching


def test_a_peer_says_why_it_is_missing(tmp_path: Path) -> None:
    assert "make peers" in (reason_missing("flink", tmp_path) or "")
    (tmp_path / "flink" / "bin").mkdir(parents=True)
    (tmp_path / "flink" / REASON).write_text("ERROR: no matching distribution\n")
    assert "no matching distribution" in (reason_missing("flink", tmp_path) or "")
    (tmp_path / "flink" / "bin" / "python").touch()
    (tmp_path / "flink" / READY).touch()
    assert reason_missing("flink", tmp_path) is None


def test_keys_of_a_text_are_those_of_the_vectorised_form() -> None:
    text = "a b a c b"
    assert keys_of(WORDCOUNT)(text) == {"a", "b", "c"}
    (pairs,) = pairs_of_words(pa.array([text]), PAIRCOUNT_L.pair_distance).to_pylist()
    assert keys_of(PAIRCOUNT_L)(text) == {f"{pair['left']} {pair['right']}" for pair in pairs}


def test_keys_become_columns_again() -> None:
    columns = key_columns(PAIRCOUNT_L, ["a b", "c d"])
    assert {name: column.to_pylist() for name, column in columns.items()} == {"left": ["a", "c"], "right": ["b", "d"]}
    assert key_columns(KEYED, ["7"])["key"].to_pylist() == [7]


def test_parts_of_a_csv_input_hold_every_tuple_in_order(tmp_path: Path) -> None:
    data = prepare(InputSpec("keyed", Batching(10, 4), seed=1, tuples_per_second=10), tmp_path)
    tuples = write_csv(data, KEYED, tmp_path / "csv", pa.int64(), parts=3, header=False)
    parts = [file.read_text().splitlines() for file in sorted((tmp_path / "csv").iterdir())]
    assert [len(part) for part in parts] == [4, 3, 3]
    times = [[int(line.split(",")[0]) for line in part] for part in parts]
    assert [sorted(part) for part in times] == times
    assert sorted(time for part in times for time in part) == tuples["ts"].to_pylist()


def test_peers_take_turns_apart_before_everyone_is_alone(tmp_path: Path) -> None:
    data = prepare(InputSpec("keyed", Batching(10, 4), seed=1, tuples_per_second=10), tmp_path)
    trials = [Trial(ENGINES[name], data, None) for name in ("spark-hdfs", "flink", "bytewax")]  # type: ignore[arg-type]
    spark, flink, bytewax = trials
    assert groups_that_fit(trials, 4, 12 * 2**30) == [(spark, flink, bytewax)]
    assert groups_that_fit(trials, 4, 6 * 2**30) == [(spark,), (flink, bytewax)]
    assert groups_that_fit(trials, 4, 2**30) == [(spark,), (flink,), (bytewax,)]
