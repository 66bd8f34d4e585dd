"""Rows that go over pipes and into files are the rows that come back, whatever they hold."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import NamedTuple

import pytest

from tidegate.micro.encoding import append, decode, encode, values_in


class Named(NamedTuple):
    a: int


@pytest.mark.parametrize(
    "value",
    [
        [],
        [(1, "é\ud800", None, -0.0, True, b"\x00", (2, [3.5]), {"a": {1}}, 2**80)],
        {5: {("k", 1): [(5, "x"), (5, "x")]}},
        [(1, Decimal("1.5"))],
        [Named(1)],
    ],
)
def test_values_come_back_as_they_are(value: object) -> None:
    back = decode(encode(value))
    assert back == value and repr(back) == repr(value)


def test_values_of_a_file_come_back_in_order() -> None:
    file = io.BytesIO()
    for value in ([(1, "a")], [(2, Named(3))], []):
        append(value, file)
    file.seek(0)
    assert list(values_in(file)) == [[(1, "a")], [(2, Named(3))], []]
