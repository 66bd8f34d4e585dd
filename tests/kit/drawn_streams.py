"""Generated streams for steps that take settled tuples: what stands before the step, and the data, cut into parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import narwhals as nw
import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import SCHEMA, tables

BEFORE = ["nothing", "filter", "union", "self-union", "counts"]
DISORDERS_US = [0, 0, 999, 5_000, 100_000]


def two_streams(disorder: int) -> tuple[tg.Stream, tg.Stream]:
    """The streams s0 and s1."""
    first, second = (tg.stream(SCHEMA, time="ts", disorder=f"{disorder}us", name=name) for name in ("s0", "s1"))
    return first, second


def stream_behind(before: str, disorder: int) -> tg.Stream:
    """What a step reads; behind ``counts`` it has the columns ts, k, n and x."""
    first, second = two_streams(disorder)
    return {
        "nothing": lambda: first,
        "filter": lambda: first.filter(nw.col("n") > 0),
        "union": lambda: first.union(second),
        "self-union": lambda: first.union(first),
        "counts": lambda: counts_of(first),
    }[before]()


def counts_of(stream: tg.Stream) -> tg.Stream:
    """Results of another stateful step, with columns as sources have them."""
    counted = stream.key_by("k").window("3ms", every="1ms").aggregate(n=tg.count(), x=tg.last("x"))
    return counted.select("ts", "k", "n", "x")


@st.composite
def cut_batches(
    draw: st.DrawFn,
    names: Sequence[str] = ("s0", "s1"),
    *,
    most: int = 5,
    rows: Sequence[int] = (0, 2, 4, 9),
    jumps: Sequence[int] = (0, 1_000, 6_000, 40_000),
    shaped: Callable[[str, pa.Table], pa.Table] = lambda _, table: table,
) -> list[dict[str, list[pa.Table]]]:
    """Batches of some streams, each of two parts; ``shaped`` gives a stream its own columns."""
    base = draw(st.sampled_from([1_700_000_000_000_000, -20_000, 3]))
    batches: list[dict[str, list[pa.Table]]] = []
    for _ in range(draw(st.integers(1, most))):
        parts = {}
        for name in names:
            table = shaped(name, draw(tables(draw(st.sampled_from(rows)), base)))
            cut = draw(st.integers(0, table.num_rows))
            parts[name] = [table.slice(0, cut), table.slice(cut)]
        base += draw(st.sampled_from(jumps))
        batches.append(parts)
    return batches
