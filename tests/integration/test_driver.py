"""Real Spark against the driver that stands in for it, on random data with ties, late tuples and restarts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.cases import AGGREGATES, KEYS, SCHEMA, TIME
from tests.kit.keyed_apply_cases import KEYS as KEYED_APPLY_KEYS
from tests.kit.keyed_apply_cases import OTHER, apply_to, renamed
from tests.kit.runtimes import OnDriver, OnSpark
from tidegate.testing import difference, last_revisions

pytestmark = pytest.mark.spark


def some_tuples(source: random.Random, base_us: int) -> pa.Table:
    """Tuples around a time, in whole steps of 500 µs, so that there are ties; some far behind."""
    rows = []
    for _ in range(source.randint(0, 30)):
        behind = source.choice([0, 0, 0, 2_000, 15_000])
        rows.append(
            (
                base_us + 500 * source.randint(0, 40) - behind,
                source.choice([None, "a", "b", "é"]),
                source.choice([None, -1, 0, 3]),
                source.choice([None, 0.5, -2.0, float("nan")]),
                source.choice([None, [], ["a"], ["a", "b", "a"], [None]]),
            )
        )
    columns: list[Any] = [pa.array([row[0] for row in rows], pa.int64()).cast(TIME)]
    columns += [pa.array([row[i] for row in rows], SCHEMA.types[i]) for i in range(1, 5)]
    return pa.table(columns, schema=SCHEMA)


SHAPES = [
    ("one column", 4_000, 4_000, 0, ("count", "sum of integers", "mean of floats", "max", "distinct"), 1),
    ("each", 6_000, 2_000, 0, ("count", "first", "collect", "top_k, taking", "monoid"), 3),
    ("function, composite", 5_000, 2_000, 6_000, ("count", "min", "last"), 2),
]


@pytest.mark.parametrize(("key", "size", "every", "lateness", "aggregates", "instances"), SHAPES)
def test_spark_does_what_the_driver_does(
    spark: Any,
    tmp_path: Path,
    key: str,
    size: int,
    every: int,
    lateness: int,
    aggregates: tuple[str, ...],
    instances: int,
) -> None:
    source = random.Random(f"{key} {size}")
    stream = tg.stream(SCHEMA, time="ts", disorder="1ms", name="s").filter(nw.col("k").is_null() | (nw.col("k") != "b"))
    windowed = stream.key_by(KEYS[key]).window(f"{size}us", every=f"{every}us", lateness=f"{lateness}us")
    query = windowed.aggregate(**{f"a{i}": AGGREGATES[name] for i, name in enumerate(aggregates)})
    base = 1_700_000_000_000_000
    batches = [{"s": some_tuples(source, base + 8_000 * number)} for number in range(5)]

    ours, real = OnDriver(2).run(query, batches), OnSpark(spark, tmp_path, instances).run(query, batches)

    keys = query.node.key_schema.names
    told = difference(last_revisions(ours.rows, keys), last_revisions(real.rows, keys))
    assert told is None, told
    assert ours.late == real.late
    assert lateness or ours.late > 0, "the case should hold late tuples"


def test_spark_runs_user_functions_as_the_driver_does(spark: Any, tmp_path: Path) -> None:
    """Several keys and two inputs in one O+, late tuples, and an aggregate of its results behind it."""
    source = random.Random("applied")
    other = tg.stream(OTHER, time="at", disorder="1ms", name="t").key_by(*KEYED_APPLY_KEYS["each"][1])
    stream = tg.stream(SCHEMA, time="ts", disorder="1ms", name="s").key_by(*KEYED_APPLY_KEYS["each"][0])
    applied = apply_to([stream, other], "single", "sliding", "hash", "applied")
    query = applied.key_by("what", "key").window("7ms", every="2ms").aggregate(n=tg.count(), last=tg.last("value"))
    base = 1_700_000_000_000_000
    batches = [
        {"s": some_tuples(source, base + 8_000 * number), "t": renamed(some_tuples(source, base + 8_000 * number))}
        for number in range(3)
    ]

    ours, real = OnDriver(2).run(query, batches), OnSpark(spark, tmp_path, 2).run(query, batches)

    told = difference(ours.rows, real.rows)
    assert told is None, told
    assert ours.rows.num_rows > 20
    assert ours.late == real.late > 0
