"""Generated inputs: the same tuples however they are cut, in files that Spark reads in order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.inputs import Input, InputSpec, prepare
from benchmarks.real_tweets import replicate
from benchmarks.workloads import Batching, InputKind


def rows(data: Input) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in data.files]).combine_chunks()


@pytest.mark.parametrize("kind", ["tweets", "keyed"])
def test_cutting_does_not_change_the_tuples(kind: InputKind, tmp_path: Path) -> None:
    coarse = prepare(InputSpec(kind, Batching(60_000, 30_000), seed=1, tuples_per_second=1_000), tmp_path)
    fine = prepare(InputSpec(kind, Batching(60_000, 7_000), seed=1, tuples_per_second=1_000), tmp_path)
    assert [pq.read_metadata(file).num_rows for file in fine.files] == [7_000] * 8 + [4_000]
    assert rows(coarse).equals(rows(fine))


def test_files_are_a_second_apart_and_found_again(tmp_path: Path) -> None:
    spec = InputSpec("keyed", Batching(100, 30), seed=1, tuples_per_second=10)
    data = prepare(spec, tmp_path)
    modified_s = [file.stat().st_mtime for file in data.files]
    assert all(later - earlier >= 1 for earlier, later in pairwise(modified_s))
    assert prepare(spec, tmp_path) == data
    assert [path.name for path in tmp_path.iterdir()] == [spec.folder_name]


def test_copies_of_real_tweets_follow_one_another() -> None:
    minute_us = 60_000_000
    ts = pa.array([0, 30_000_000, minute_us], pa.timestamp("us", tz="UTC"))
    tweets = pa.table({"ts": ts, "user": pa.array([1, 2, 3]), "text": ["a", "b", "c"]})
    copies = replicate(tweets, 5)
    assert copies["ts"].cast(pa.int64()).to_pylist() == [0, 30_000_000, minute_us, 2 * minute_us, 150_000_000]
    assert copies["text"].to_pylist() == ["a", "b", "c", "a", "b"]
