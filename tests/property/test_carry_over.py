"""Queries that go from one runtime to the other and back, each leg stopped somewhere, against the law."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.carried import lives
from tests.kit.effort import LONG
from tests.kit.moving import QUERIES, stream


def with_stores() -> tg.Stream:
    """How often each number came with a tag, in a store that a window keeps as it slides."""

    def count(window: Any, arriving: Any) -> object:
        seen, n = window.store("seen"), arriving["n"] % 5
        seen.put(n, (seen.get(n) or 0) + 1)
        return tg.updated()

    def emit(window: Any) -> dict[str, object]:
        return {"tag": window.key, "most": max((times for _, times in window.store("seen").items()), default=0)}

    return (
        stream()
        .key_by(tg.each("tags", name="tag"))
        .window("6ms", every="2ms")
        .apply(
            update=count,
            output=emit,
            stores={"seen": tg.store(key=pa.int64(), value=pa.int64())},
            returns={"tag": pa.int64(), "most": pa.int64()},
        )
    )


def merged() -> tg.Stream:
    """Two streams in one, without state in front of the windows and none at all beside them."""
    one = stream().select("ts", "k", "n")
    both = one.union(stream("two").select("ts", "k", "n"))
    return both.key_by("k").window("5ms").aggregate(n=tg.sum("n"))


OTHERS: dict[str, Callable[[], tg.Stream]] = {
    "stores": with_stores,
    "stateless": lambda: stream().select("ts", "k", "n").union(stream("two").select("ts", "k", "n")),
    "merged": merged,
    "dedup": lambda: stream().dedup("k", within="4ms"),
    "pairs then windows": lambda: (
        stream().join(stream("two"), on="k", within="3ms").key_by("k").window("4ms").aggregate(n=tg.sum("n"))
    ),
    "top": lambda: stream().key_by("k").window("5ms").top_n(2, by="n"),
    "found then filtered": lambda: stream().join_asof(stream("two"), on="k").filter(nw.col("n") > 20),
}


@pytest.mark.parametrize("kind", [*QUERIES, *OTHERS])
def test_a_run_goes_on_on_the_other_runtime(kind: str, tmp_path: Path) -> None:
    query = {**QUERIES, **OTHERS}[kind]()
    legs = lives(kind, query, range(60 if LONG else 2), tmp_path)
    assert legs > (60 if LONG else 1)
