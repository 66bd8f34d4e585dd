"""What counts as known in an observation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tidegate.control.observation import Observation, Station

SEEN = Observation("q", 5.0, 5.0, 2)


@pytest.mark.parametrize(
    "busy", [(), (0.5, math.nan), (0.5, math.inf), (math.inf, -math.inf), (-math.inf, 0.5)], ids=repr
)
def test_a_tuple_with_a_gap_is_missing(busy: tuple[float, ...]) -> None:
    assert replace(SEEN, busy=busy).missing(("busy",)) == ("busy",)


@pytest.mark.parametrize("busy", [(0.0,), (0.5, 1.0), (1e308, 1e308)], ids=repr)
def test_finite_values_are_known_even_where_their_sum_is_not_finite(busy: tuple[float, ...]) -> None:
    assert replace(SEEN, busy=busy).missing(("busy",)) == ()


def test_missing_fields_are_named_in_the_order_asked_for() -> None:
    seen = replace(SEEN, offered=3.0, processed=math.nan, network=(Station("q", 2, 1.0, 1.0),))
    assert seen.missing(("processed", "offered", "network", "demand")) == ("processed", "demand")


def test_rates_and_utilisation_come_from_busy_shares_and_are_absent_without_them() -> None:
    seen = replace(SEEN, processed=300.0, busy=(1.0, 0.5))
    assert (seen.utilisation, seen.service_rate) == (0.75, 200.0)
    assert (SEEN.utilisation, SEEN.service_rate) == (None, None)
    assert replace(seen, busy=(0.0, 0.0)).service_rate is None
    assert replace(seen, processed=0.0).service_rate is None
