"""Values that users' functions get and give: the short ways to them give what the long ones do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.query.user_functions import Misfit, Record, plain_size, python_values, record_of

MOMENTS = [0, 1, -1, 1_700_000_000_123_456, -62_135_596_800_000_000]
COLUMNS = [
    pa.array([1, -(2**63), 2**63 - 1]),
    pa.array([3, None]),
    pa.array([0.5, float("inf"), -0.0]),
    pa.array([1.5], pa.float32()),
    pa.array(["", "tide", "gâté"]),
    pa.array(["a", None]),
    pa.array(["a", "b", "a"]).dictionary_encode(),
    pa.array(MOMENTS).cast(pa.timestamp("us")),
    pa.array(MOMENTS).cast(pa.timestamp("us", tz="UTC")),
    pa.array([0, 1]).cast(pa.timestamp("us", tz="Europe/Berlin")),
    pa.array([0, None]).cast(pa.timestamp("us", tz="UTC")),
    pa.array([True, False]),
    pa.array([[1], None]),
    pa.array([], pa.timestamp("us", tz="UTC")),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column.type}, {column.null_count} null")
def test_values_are_those_of_arrow(column: pa.Array) -> None:
    sliced = column.slice(min(1, len(column)))
    for each in (column, sliced, pa.chunked_array([column, sliced])):
        found, wanted = python_values(each), each.to_pylist()
        assert found == wanted
        assert list(map(type, found)) == list(map(type, wanted))
        assert list(map(repr, found)) == list(map(repr, wanted))


def test_a_moment_beyond_python_is_refused_as_arrow_does() -> None:
    column = pa.array([2**62]).cast(pa.timestamp("us", tz="UTC"))
    with pytest.raises((ValueError, OverflowError)):
        column.to_pylist()
    with pytest.raises((ValueError, OverflowError)):
        python_values(column)


ROW = {
    "n": pa.int32(), "f": pa.float64(), "it's": pa.string(), "raw": pa.binary(), "yes": pa.bool_(),
    "at": pa.timestamp("us", tz="UTC"), "list": pa.list_(pa.int64()),
}  # fmt: skip
SHAPE = record_of(pa.schema(list(ROW.items())))
PLAIN: dict[str, Any] = {"n": 1, "f": 0.5, "it's": "abc", "raw": b"de", "yes": True, "at": None, "list": None}
BYTES = 8 + 8 + 3 + 2 + 1 + 1 + 1


def test_a_row_is_kept_in_the_order_of_its_columns_and_knows_its_size() -> None:
    record, size = SHAPE.check(dict(reversed(PLAIN.items())))
    assert type(record) is Record
    assert record == PLAIN
    assert list(record) == list(ROW)
    assert (record.size, size, record.shape) == (BYTES, BYTES, SHAPE)


@pytest.mark.parametrize(
    ("name", "given", "kept", "more"),
    [
        ("n", np.int64(7), 7, 0),
        ("f", 2, 2.0, 0),
        ("yes", np.True_, True, 0),
        ("at", 0, datetime(1970, 1, 1, tzinfo=UTC), 7),
        ("list", [1, None], (1, None), 8),
    ],
)
def test_what_is_not_plain_is_converted(name: str, given: Any, kept: Any, more: int) -> None:
    record, size = SHAPE.check({**PLAIN, name: given})
    assert record == {**PLAIN, name: kept}
    assert type(record[name]) is type(kept) or isinstance(record[name], tuple)
    assert size == BYTES + more


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({**PLAIN, "n": 2**31}, "n: 2147483648 is not int32"),
        ({**PLAIN, "n": True}, "n: True is not int32"),
        ({**PLAIN, "f": "x"}, "f: 'x' is not double"),
        ({**PLAIN, "it's": b"x"}, "it's: b'x' is not string"),
        ({**PLAIN, "other": 1}, "with the unknown 'other'"),
        ({name: value for name, value in PLAIN.items() if name != "n"}, "without 'n'"),
    ],
)
def test_what_does_not_fit_is_named(row: dict[str, Any], told: str) -> None:
    with pytest.raises(Misfit, match=told):
        SHAPE.check(row)


def test_parts_of_keys_that_are_no_plain_values_need_a_closer_look() -> None:
    size_of = plain_size([pa.int64(), pa.string()])
    assert size_of(1, "abc") == 11
    assert size_of(None, "") == 1
    assert size_of(np.int64(1), "abc") == size_of(2**63, "abc") == size_of(1, 2) == -1
