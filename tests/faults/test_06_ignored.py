"""What was ignored without a word: a second read of a generator, arguments of another runtime, numbers without a unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.cli.main import main
from tidegate.errors import QueryError, UserError

SCHEMA = {"ts": pa.timestamp("us"), "k": pa.int64()}
TABLE = pa.table({"ts": pa.array([1, 2, 3], pa.timestamp("us")), "k": [1, 1, 2]})


def tuples() -> Iterator[dict[str, int]]:
    yield from ({"ts": at, "k": 1} for at in range(5))


def read(stream: tg.Stream) -> int:
    return sum(table.num_rows for table in tg.start(stream))


ONCE: list[Callable[[], Any]] = [
    lambda: tuples(),
    lambda: iter(list(tuples())),
    lambda: tg.marked(tuples()),
    lambda: tg.paced(tuples(), rate=1e6),
    lambda: tg.paced(tuples(), every="1ms"),
    lambda: tg.paced((0.0, row) for row in tuples()),
    lambda: map(lambda at: {"ts": at, "k": 1}, range(5)),  # noqa: C417 - no list
]


@pytest.mark.parametrize("origin", ONCE)
def test_what_can_be_read_once_is_refused_the_second_time(origin: Callable[[], Any]) -> None:
    stream = tg.stream(origin(), time="ts", schema=SCHEMA, name="calls")
    assert read(stream) == 5
    with pytest.raises(QueryError, match=r"stream 'calls' reads a \w+, which gives its items once.*a list.*a function"):
        tg.start(stream)
    with pytest.raises(QueryError, match="gives its items once"):
        tg.run(stream.filter(stream_is_odd()), on="local", to=lambda _: None)


def stream_is_odd() -> Any:
    import narwhals as nw

    return nw.col("k") == 1


def test_a_generator_that_is_exhausted_is_refused_in_another_stream_too() -> None:
    generator = tuples()
    assert read(tg.stream(generator, time="ts", schema=SCHEMA)) == 5
    with pytest.raises(QueryError, match="gives its items once"):
        tg.start(tg.stream(generator, time="ts", schema=SCHEMA))


def test_two_streams_cannot_share_one_generator() -> None:
    generator = tuples()
    left, right = (tg.stream(generator, time="ts", schema=SCHEMA, name=name) for name in ("left", "right"))
    with pytest.raises(QueryError, match="streams 'left' and 'right' read the same generator"):
        tg.start(left.union(right))
    shared = tg.stream(tuples(), time="ts", schema=SCHEMA)
    assert read(shared.union(shared)) == 10, "one stream may be read twice in a query"


@pytest.mark.parametrize("wrap", [lambda given: given, tg.marked, lambda given: tg.paced(given, rate=1e6)])
def test_a_function_that_makes_iterators_is_read_again(wrap: Callable[[Any], Any]) -> None:
    stream = tg.stream(wrap(tuples), time="ts", schema=SCHEMA)
    assert (read(stream), read(stream)) == (5, 5)
    items = tg.stream(wrap(list(tuples())), time="ts", schema=SCHEMA)
    assert (read(items), read(items)) == (5, 5)


def test_a_function_that_gives_no_iterable_is_named() -> None:
    stream = tg.stream(lambda: 7, time="ts", schema=SCHEMA, name="calls")
    with pytest.raises(UserError, match="returned int; it should return an iterable of batches, tables or dicts"):
        read(stream)


@pytest.mark.parametrize("runtime", ["local", "reference"])
@pytest.mark.parametrize(
    "option", [{"files_per_batch": 3}, {"bounded": False}, {"spark": "local[2]"}, {"cells": 2}, {"hot_keys": True}]
)
def test_what_only_spark_knows_is_refused_elsewhere(runtime: str, option: dict[str, Any], tmp_path: Path) -> None:
    query = tg.stream(TABLE, time="ts").key_by("k").window("1 second").aggregate(n=tg.count())
    name = next(iter(option))
    with pytest.raises(QueryError, match=rf"{name}=.* is for on='spark'.*on='{runtime}'.*leave it out"):
        tg.run(query, on=runtime, to=tmp_path / "out", progress=False, **option)
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_is_refused_where_nothing_goes_on(tmp_path: Path) -> None:
    query = tg.stream(TABLE, time="ts").key_by("k").window("1 second").aggregate(n=tg.count())
    with pytest.raises(QueryError, match=r"checkpoint=.*on='reference'.*leave it out"):
        tg.run(query, on="reference", to=tmp_path / "out", progress=False, checkpoint=tmp_path / "cp")
    assert not (tmp_path / "out").exists()


def test_the_command_line_refuses_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.py").write_text(
        "import pyarrow as pa, tidegate as tg\n"
        "query = tg.stream(pa.table({'ts': pa.array([1], pa.timestamp('us'))}), time='ts')\n"
    )
    assert main(["run", str(tmp_path / "q.py"), "--on", "local", "--files-per-batch", "2"]) == 2
    assert "files_per_batch=2 is for on='spark'" in capsys.readouterr().err


def test_a_format_without_a_folder_is_refused() -> None:
    with pytest.raises(QueryError, match="format='jsonl' is for results in a folder"):
        tg.start(tg.stream(TABLE, time="ts"), format="jsonl")


CALLS = tg.stream(SCHEMA, time="ts", name="calls")
BARE: dict[str, Callable[[Any], Any]] = {
    "size": lambda d: CALLS.key_by("k").window(d),
    "every": lambda d: CALLS.key_by("k").window("1 hour", every=d),
    "lateness": lambda d: CALLS.key_by("k").window("1 hour", lateness=d),
    "gathered size": lambda d: tg.gather(CALLS.key_by("k")).window(d),
    "within": lambda d: CALLS.join(CALLS, within=d),
    "join window": lambda d: CALLS.join(CALLS, window=d),
    "join every": lambda d: CALLS.join(CALLS, window="1 hour", every=d),
    "disorder": lambda d: tg.stream(SCHEMA, time="ts", disorder=d),
    "ahead": lambda d: tg.stream(SCHEMA, time="ts", ahead=d),
    "paced": lambda d: tg.paced([], every=d),
}


@pytest.mark.parametrize("value", [10, 2**70, 0.5, True, np.int64(10), np.float32(10)])
@pytest.mark.parametrize("place", BARE)
def test_a_number_without_unit_is_no_duration(place: str, value: Any) -> None:
    with pytest.raises(QueryError, match=r"(seconds|timedelta)"):
        BARE[place](value)


def test_what_to_write_instead() -> None:
    with pytest.raises(QueryError, match=r"'10 seconds', '10 microseconds' or timedelta\(seconds=10\)"):
        CALLS.key_by("k").window(10)
    same = [
        CALLS.key_by("k").window(size).window.size for size in ("10us", "10 microseconds", timedelta(microseconds=10))
    ]
    assert same == [10, 10, 10]


@pytest.mark.parametrize("place", ["lateness", "within", "disorder", "ahead"])
def test_nothing_at_all_needs_no_unit(place: str) -> None:
    BARE[place](0)


@pytest.mark.parametrize("value", ["600000 weeks", "9" * 30 + " days", "9" * 5000 + "s", timedelta.max])
@pytest.mark.parametrize("place", BARE)
def test_a_duration_longer_than_time_itself_is_refused(place: str, value: Any) -> None:
    with pytest.raises(QueryError, match="longer than the 999 years"):
        BARE[place](value)
