"""Windows in number of tuples, whose answers were worked out by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

pytestmark = pytest.mark.dedicated

TRADES = pa.schema([("ts", TIME), ("share", pa.string()), ("price", pa.float64())])


def trades(**settings: Any) -> tg.Stream:
    return tg.stream(TRADES, time="ts", name="trades", **settings)


def test_each_so_many_tuples_of_a_key_are_a_window(runtime: Runtime) -> None:
    """Three tuples, every two: a window begins with the tuples 0, 2, 4 of a key; the last of each is not full.

    ::

        a   09:00 ●   09:01 ●   09:03 ●   09:05 ●   09:06 ●   09:08 ●
            ├──────── window 0 ────────┤
                                ├──────── window 1 ────────┤
                                                    ├── window 2 …
        b        09:00 ●                       09:05 ●
    """
    query = (
        trades(disorder="2 minutes")
        .key_by("share")
        .count_window(3, every=2)
        .aggregate(n=tg.count(), high=tg.max("price"), all=tg.collect("price"))
    )
    assert query.schema.names == ["ts", "share", "window_start", "window_end", "n", "high", "all"]
    batches = [
        {"trades": rows(TRADES, ("09:01", "a", 2.0), ("09:00", "b", 9.0), ("09:00", "a", 1.0))},
        {"trades": rows(TRADES, ("09:05", "a", 4.0), ("09:03", "a", None))},
        {"trades": rows(TRADES, ("09:06", "a", 5.0), ("09:05", "b", 9.0), ("09:08", "a", 6.0))},
    ]
    result = runtime.run(query, batches)
    expect(
        query,
        result.rows,
        ("09:03", "a", "09:00", "09:03", 3, 2.0, [1.0, 2.0, None]),
        ("09:06", "a", "09:03", "09:06", 3, 5.0, [None, 4.0, 5.0]),
    )
    assert result.unfilled == 2


def test_ties_count_in_canonical_order(quick_runtime: Runtime) -> None:
    """Of tuples of one time the null price comes first, then the others by size; without a key there is one count."""
    query = trades().count_window(2).aggregate(first=tg.first("price"), last=tg.last("price"))
    batches = [
        {"trades": rows(TRADES, ("09:00", "a", 3.0), ("09:00", "a", None), ("09:00", "a", 2.0), ("09:00", "a", 1.0))}
    ]
    result = quick_runtime.run(query, batches)
    expect(query, result.rows, ("09:00", "09:00", "09:00", None, 1.0), ("09:00", "09:00", "09:00", 2.0, 3.0))
    assert result.unfilled == 0


def test_a_tuple_before_the_watermark_is_late_and_counts_for_nothing(quick_runtime: Runtime) -> None:
    query = trades(disorder="10 seconds").key_by("share").count_window(2).aggregate(total=tg.sum("price"))
    batches = [
        {"trades": rows(TRADES, ("09:00:40", "a", 1.0))},
        {"trades": rows(TRADES, ("09:00:29", "a", 2.0), ("09:00:30", "a", 4.0))},
        {"trades": rows(TRADES, ("09:01", "a", 8.0))},
    ]
    result = quick_runtime.run(query, batches)
    expect(query, result.rows, ("09:00:40", "a", "09:00:30", "09:00:40", 5.0))
    assert (result.late, result.unfilled) == (1, 1)


def test_keys_may_be_many_null_and_floats(quick_runtime: Runtime) -> None:
    """Null is a key, NaN is one key, and −0.0 is 0.0."""
    query = trades().key_by("share", "price").count_window(2).aggregate(n=tg.count())
    nan = float("nan")
    batches = [
        {"trades": rows(TRADES, ("09:00", None, nan), ("09:01", "a", 0.0), ("09:02", None, None), ("09:03", "a", nan))},
        {
            "trades": rows(
                TRADES, ("09:10", None, nan), ("09:11", "a", -0.0), ("09:12", None, None), ("09:13", "b", nan)
            )
        },
    ]
    result = quick_runtime.run(query, batches)
    expect(
        query,
        result.rows,
        ("09:10", None, nan, "09:00", "09:10", 2),
        ("09:11", "a", 0.0, "09:01", "09:11", 2),
        ("09:12", None, None, "09:02", "09:12", 2),
    )
    assert result.unfilled == 2


def test_windows_of_one_tuple_are_its_own(quick_runtime: Runtime) -> None:
    query = trades().key_by("share").count_window(1).aggregate(price=tg.last("price"))
    batches = [{"trades": rows(TRADES, ("09:00", "a", 1.0))}, {}, {"trades": rows(TRADES, ("09:01", "a", 2.0))}]
    result = quick_runtime.run(query, batches)
    expect(query, result.rows, ("09:00", "a", "09:00", "09:00", 1.0), ("09:01", "a", "09:01", "09:01", 2.0))
    assert result.unfilled == 0


def test_mistakes_are_found_when_the_query_is_built() -> None:
    keyed = trades().key_by("share")
    for wrong in (0, -1, True, 2.5, "1 minute"):
        with pytest.raises(tg.QueryError, match="size of a count window is a number of tuples"):
            keyed.count_window(wrong)  # type: ignore[arg-type]
    with pytest.raises(tg.QueryError, match=r"windows in time are \.window\('1 minute'\)"):
        keyed.count_window("1 minute")  # type: ignore[arg-type]
    with pytest.raises(tg.QueryError, match=r"advances by 5 tuples and holds 3.*make every ≤ size"):
        keyed.count_window(3, every=5)
    with pytest.raises(tg.QueryError, match=r"every=\.\.\., as in \.count_window"):
        keyed.count_window(3, slide=1)  # type: ignore[call-arg]
    with pytest.raises(tg.QueryError, match="name at least one aggregate"):
        keyed.count_window(3).aggregate()
