"""The six operators of STRETCH's appendices against plain Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from examples.inputs.tweets import tweets
from examples.stretch.application import stretch, with_points
from examples.stretch.longest_tweet import operator_2
from tidegate.testing import answer, difference

MINUTE = 60_000_000


def moments(table: pa.Table) -> list[tuple[int, dict[str, Any]]]:
    times = table["ts"].cast(pa.int64()).to_pylist()
    return list(zip(times, table.to_pylist(), strict=True))


def ends(time: int, size: int, every: int) -> list[int]:
    """When the results of the windows that hold a moment leave."""
    last = time // every * every
    return [begin + size - 1 for begin in range(last, time - size, -every)]


def check(found: dict[str, pa.Table], inputs: dict[str, pa.Table]) -> None:
    longest: dict[tuple[int, str], int] = {}
    words: Counter[tuple[int, str, Any]] = Counter()
    pairs: Counter[tuple[int, str, Any]] = Counter()
    for time, row in moments(inputs["tweets"]):
        text = row["tweet"].split()
        for end in ends(time, 60 * MINUTE, 30 * MINUTE):
            for tag in (word for word in text if word[0] == "#"):
                longest[end, tag] = max(longest.get((end, tag), 0), len(row["tweet"]))
        near = {(one, text[j]) for i, one in enumerate(text) for j in range(i + 1, len(text)) if j - i <= 3}
        for end in ends(time, 2 * MINUTE, MINUTE):
            words.update((end, word, None) for word in set(text))
            pairs.update((end, *pair) for pair in near)
    for name in ("operator_1", "operator_2"):
        assert {(time, row["hashtag"]): row["chars"] for time, row in moments(found[name])} == longest
    for name, counted in (("operator_4", words), ("operator_5", words), ("operator_5_pairs", pairs)):
        assert {(time, row["one"], row["other"]): row["count"] for time, row in moments(found[name])} == counted
    joined = sorted(
        (max(at, at_2), left["x"], left["y"], right["x"], right["y"])
        for at, left in moments(inputs["left"])
        for at_2, right in moments(inputs["right"])
        if abs(at - at_2) <= 30_000_000 and abs(left["x"] - right["x"]) <= 10 and abs(left["y"] - right["y"]) <= 10
    )
    assert joined
    assert (
        sorted((time, row["x"], row["y"], row["a"], row["b"]) for time, row in moments(found["operator_3"])) == joined
    )
    copies = Counter((time, row["copy"], row["tweet"]) for time, row in moments(found["operator_6"]))
    once = Counter((time, copy, row["tweet"]) for time, row in moments(inputs["tweets"]) for copy in (1, 2, 3))
    assert copies == once + once


@pytest.mark.parametrize(
    "on", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)])]
)
def test_operators_give_what_plain_python_gives(on: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    if on == "spark":
        request.getfixturevalue("spark")
    inputs = with_points(pq.read_table(tweets(tmp_path / "in", rows=250, hours=2)), 1)
    # So far apart that what is stored is purged before the end.
    spread = {name: inputs[name].set_column(0, "ts", _slower(inputs[name]["ts"])) for name in ("left", "right")}
    check(stretch.run(inputs | spread, on), inputs | spread)


def _slower(times: pa.ChunkedArray) -> pa.Array:
    told = times.cast(pa.int64()).to_numpy()
    return pa.array(told[0] + (told - told[0]) * 30, times.type)


def test_the_aggregate_in_columns_says_the_same(tmp_path: Any) -> None:
    stream = tg.stream(tweets(tmp_path / "in", rows=300), time="ts", name="tweets")
    by_max = (
        stream.with_columns(chars=nw.col("tweet").str.len_chars(), tags=nw.col("tweet").str.split(" "))
        .key_by(tg.each("tags", name="hashtag"))
        .window("1 hour", every="30 minutes")
        .aggregate(chars=tg.max("chars"))
        .filter(nw.col("hashtag").str.starts_with("#"))
        .select("ts", "hashtag", "chars")
    )
    assert difference(answer(operator_2(stream)).rows, answer(by_max).rows) is None
