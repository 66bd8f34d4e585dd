"""What counts as known in an observation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tidegate.control.controller import Limits
from tidegate.control.controllers import CONTROLLERS
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


def test_a_rate_too_small_to_divide_by_is_none() -> None:
    seen = replace(SEEN, offered=1e-309, admitted=1e-10, processed=1e-309, demand=2e-9, busy=(1e-309, 0.0))
    assert (seen.offered, seen.admitted, seen.processed, seen.demand) == (0.0, 0.0, 0.0, 2e-9)
    assert seen.busy_instances == 0
    assert replace(seen, processed=100.0).service_rate is None
    assert math.isnan(replace(SEEN, offered=math.nan).offered or 0.0)


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
@pytest.mark.parametrize("tiny", [5e-324, 1e-309, 1e-12])
def test_no_controller_stumbles_over_next_to_nothing(name: str, tiny: float) -> None:
    """Work that is too little to tell what a tuple costs is no reason for more instances, nor for an error."""
    full = {"offered": 5_000.0, "admitted": 5_000.0, "processed": 5_000.0, "demand": 5_000.0, "congestion": 0.0}
    full |= {"backlog": 0.0, "busy": (0.5, 0.5)}
    for field, value in (("processed", tiny), ("busy", (tiny, tiny)), ("demand", tiny), ("offered", tiny)):
        run = CONTROLLERS[name](**({"target_seconds": 0.5} if name == "queueing" else {})).start(Limits(1, 8))
        decision = run.decide(replace(SEEN, **{**full, field: value}))
        assert 1 <= decision.instances <= 8
