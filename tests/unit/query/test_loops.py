from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import QueryError

n = nw.col("n")


def numbers(name: str = "numbers") -> tg.Stream:
    return tg.stream({"ts": pa.timestamp("us"), "k": pa.string(), "n": pa.int64()}, time="ts", name=name)


def both(stream: tg.Stream) -> tuple[tg.Stream, tg.Stream]:
    return stream.filter(n > 0).with_columns(n=n - 1), stream.filter(n <= 0)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (lambda s: s, "returns two streams, the rows that run again and those that leave"),
        (lambda s: (s, s, s), "returns two streams"),
        (
            lambda s: (s.select("ts", "n"), s),
            r"must have the columns of what came in; \(ts: timestamp\[us\], n: int64\) is not",
        ),
        (lambda s: (s.union(numbers("others")), s), "its body reads the stream 'others'"),
        (
            lambda s: (s, s.key_by("k").window("1 second").aggregate(c=tg.count())),
            "has windows of 1 second; rows of one time",
        ),
        (lambda s: (s, s.join(s.select("ts", "k"), on="k", within="1 second")), "has no window; rows of one time"),
        (
            lambda s: (s, s.join(s.select("ts", "k"), last=1).select("ts", "k", "n")),
            "is a join over the last tuples;",
        ),
        (
            lambda s: (s, s.key_by("k").unbounded().apply(update=lambda w, t: None, returns={})),
            "is an apply; a body has",
        ),
    ],
)
def test_a_body_that_cannot_run_in_rounds_is_refused(body, told) -> None:
    with pytest.raises(QueryError, match=f"step 'again': .*{told}"):
        numbers().loop(body, rounds=3, name="again")


@pytest.mark.parametrize("rounds", [0, -1, True, 2.5, None])
def test_rounds_are_a_number_from_one(rounds) -> None:
    with pytest.raises(QueryError, match="rounds is how often a row may run through the body, from 1; got"):
        numbers().loop(both, rounds=rounds)


@pytest.mark.parametrize("runtime", ["local", "spark"])
def test_a_loop_is_explained_with_its_rounds(runtime) -> None:
    query = numbers().loop(both, rounds=3, name="down")
    assert "up to 3 rounds through" in query.explain(runtime)
