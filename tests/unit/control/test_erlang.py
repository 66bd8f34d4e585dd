"""M/M/k queues against closed forms, exact fractions and the definition by logarithms."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.erlang import (
    erlang_b,
    erlang_c,
    least_stable,
    mean_sojourn,
    mean_sojourns,
)
from tidegate.errors import UserError


def _c_by_definition(servers: int, load: Fraction) -> Fraction:
    """(a^k/k!)·k/(k − a) over Σ_{n<k} a^n/n! + that, in exact arithmetic."""
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum((load**n / math.factorial(n) for n in range(servers)), Fraction(0)) + last)


@given(st.integers(1, 40), st.fractions(0, 1, max_denominator=100))
def test_erlang_c_is_the_textbook_sum(servers: int, utilisation: Fraction) -> None:
    load = utilisation * servers
    expected = 1.0 if utilisation == 1 else float(_c_by_definition(servers, load))
    assert erlang_c(servers, float(load)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("servers", [1_000, 10_000])
@pytest.mark.parametrize("utilisation", [0.5, 0.9, 0.99, 0.999])
def test_erlang_b_holds_for_thousands_of_servers(servers: int, utilisation: float) -> None:
    load = servers * utilisation
    logs = [n * math.log(load) - math.lgamma(n + 1) for n in range(servers + 1)]
    top = max(logs)
    expected = math.exp(logs[-1] - top) / math.fsum(math.exp(each - top) for each in logs)
    assert erlang_b(servers, load) == pytest.approx(expected, rel=1e-7)
    assert 0 < mean_sojourn(servers, load, 1.0) < math.inf


def test_one_server_is_the_single_queue() -> None:
    assert erlang_c(1, 0.75) == pytest.approx(0.75)
    assert mean_sojourn(1, 30.0, 40.0) == pytest.approx(1 / (40 - 30))


def test_two_servers_by_hand() -> None:
    # a = 1: B(2) = (1/2)/(1 + 1 + 1/2) = 1/5, C = 2·(1/5)/(2 − 4/5) = 1/3, E[T] = (1/3)/(2·5 − 5) + 1/5
    assert erlang_b(2, 1.0) == pytest.approx(1 / 5)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert mean_sojourn(2, 5.0, 5.0) == pytest.approx(1 / 15 + 1 / 5)


def test_the_least_stable_number_is_the_floor_and_one() -> None:
    assert [least_stable(rate, 10.0) for rate in (0.0, 9.9, 10.0, 10.1, 20.0)] == [1, 1, 2, 2, 3]


@given(st.floats(0, 1e6), st.floats(1e-3, 1e4))
def test_the_least_stable_number_is_stable(arrival_rate: float, service_rate: float) -> None:
    servers = least_stable(arrival_rate, service_rate)
    assert servers * service_rate > arrival_rate
    assert servers <= arrival_rate / service_rate + 2


@given(st.floats(0, 500), st.floats(0.1, 100))
def test_the_series_starts_at_the_least_and_its_gains_fall(arrival_rate: float, service_rate: float) -> None:
    first = least_stable(arrival_rate, service_rate)
    series = list(islice(mean_sojourns(arrival_rate, service_rate), 12))
    for more, seconds in enumerate(series):
        assert seconds == pytest.approx(mean_sojourn(first + more, arrival_rate, service_rate), rel=1e-9)
    gains = [before - after for before, after in pairwise(series)]
    assert all(gain >= -1e-15 * series[0] for gain in gains)
    assert all(later <= earlier * (1 + 1e-9) + 1e-15 * series[0] for earlier, later in pairwise(gains))


def test_too_few_servers_never_finish() -> None:
    assert mean_sojourn(2, 20.0, 10.0) == math.inf
    assert erlang_c(2, 2.0) == 1.0


@pytest.mark.parametrize(("arrival_rate", "service_rate"), [(-1.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.inf)])
def test_rates_that_cannot_be_are_refused(arrival_rate: float, service_rate: float) -> None:
    with pytest.raises(UserError, match="leave out a queue whose rates are not known"):
        mean_sojourn(1, arrival_rate, service_rate)
