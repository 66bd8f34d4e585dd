"""`tg.run(on="micro")`: the answer of the reference, and what it refuses before it reads."""

from __future__ import annotations

from pathlib import Path

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.testing import answer, difference

TUPLES = pa.table(
    {
        "ts": pa.array([1_000_000 * second for second in (0, 1, 4, 3, 9, 12)], pa.timestamp("us", tz="UTC")),
        "k": ["a", "b", "a", None, "b", "a"],
        "n": [1, 2, 3, 4, 5, 6],
    }
)


def test_the_answer_is_the_references(tmp_path: Path) -> None:
    stream = tg.stream(TUPLES, time="ts", disorder="1 second", name="tuples")
    busy = stream.filter(nw.col("n") > 1)
    query = busy.join(stream, on="k", window="5 seconds", where=lambda l, r: l.n <= r.n)
    result = tg.run(query, on="micro", to=tmp_path / "out", progress=False)
    # In [0, 5) b meets itself, as a does with its tuple of 4; null meets nothing; then the tuples alone in their windows.
    assert sorted(zip(*(result.read()[name].to_pylist() for name in ("n", "n_right")), strict=True)) == [
        (2, 2), (3, 3), (5, 5), (6, 6),
    ]  # fmt: skip
    assert difference(result.read(), answer(query).rows) is None
    assert (result.rows, result.results, result.late) == (6, 4, 0)


def test_a_late_tuple_stops_the_run(tmp_path: Path) -> None:
    query = tg.stream(TUPLES, time="ts", name="tuples").key_by("k").window("5 seconds").aggregate(n=tg.count())
    with pytest.raises(tg.DataError, match=r"source 'tuples', split 0: row 3 has the time 1970-01-01 00:00:03, after"):
        tg.run(query, on="micro", to=tmp_path / "out", progress=False)


def test_what_it_does_not_have_is_refused(tmp_path: Path) -> None:
    stream = tg.stream(TUPLES, time="ts", name="tuples")
    with pytest.raises(tg.UnsupportedError, match="a join within a distance"):
        tg.run(stream.join(stream, within="1 second"), on="micro")
    with pytest.raises(tg.UnsupportedError, match="is a loop, which the engine of one operator does not have"):
        tg.run(stream.filter(nw.col("n") > 1), on="micro", operators="single")
    with pytest.raises(tg.QueryError, match="the engine of one operator runs a query alone"):
        tg.run(stream, on="micro", instances=2)
