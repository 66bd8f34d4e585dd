"""Queues played tuple by tuple against Erlang's closed forms, and the fluid simulation's latency against both."""

from __future__ import annotations

import numpy as np
import pytest

from lab.exact_queues import Server, batch_mean, departures, sojourns
from lab.keys import UniformKeys
from lab.network import one, simulate
from tidegate.control.erlang import mean_sojourn
from tidegate.errors import UserError
from tidegate.simulate.loads import ConstantLoad
from tidegate.simulate.model import SubqueryModel
from tidegate.simulate.run import SimulationSettings

# Student's t with 29 degrees of freedom leaves 0.1 % outside 3.66 standard errors; the seeds are fixed.
ERRORS = 3.66


def test_departures_by_hand() -> None:
    #  arrivals  0    1    2    3
    #  service   5    2    2    1
    #  server A  0────────────5
    #  server B       1────3────5──6      the third starts at 3, the fourth at 5
    done = departures(np.array([0.0, 1, 2, 3]), np.array([5.0, 2, 2, 1]), 2)
    assert done.tolist() == [5, 3, 5, 6]


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
def test_m_m_1(utilisation: float) -> None:
    """E[T] = 1/(μ − λ), by itself and through Erlang's formula."""
    (spent,) = sojourns([Server(1, 1.0)], utilisation, 150_000, seed=11)
    estimate = batch_mean(spent)
    assert estimate.standard_error < 0.05 * estimate.mean
    assert estimate.covers(1 / (1 - utilisation), ERRORS)
    assert mean_sojourn(1, utilisation, 1.0) == pytest.approx(1 / (1 - utilisation))


@pytest.mark.parametrize(("servers", "utilisation"), [(2, 0.7), (5, 0.8), (20, 0.9)])
def test_m_m_k(servers: int, utilisation: float) -> None:
    (spent,) = sojourns([Server(servers, 2.0)], utilisation * servers * 2.0, 150_000, seed=5)
    estimate = batch_mean(spent)
    assert estimate.standard_error < 0.05 * estimate.mean
    assert estimate.covers(mean_sojourn(servers, utilisation * servers * 2.0, 2.0), ERRORS)


def test_a_chain_is_a_jackson_network() -> None:
    """Stations in a row behave as if each had Poisson arrivals of its own; the second gets 40 % of the first's."""
    first, second = sojourns([Server(3, 1.0, passes=0.4), Server(2, 0.6)], 2.2, 150_000, seed=8)
    assert batch_mean(first).covers(mean_sojourn(3, 2.2, 1.0), ERRORS)
    assert batch_mean(second).covers(mean_sojourn(2, 0.88, 0.6), ERRORS)


@pytest.mark.parametrize(("instances", "rate"), [(1, 60.0), (4, 300.0), (12, 1_100.0)])
def test_the_fluid_has_the_latency_of_the_played_queue(instances: int, rate: float) -> None:
    run = simulate(one(SubqueryModel("q", 0.01), ConstantLoad(rate)), None, SimulationSettings(20, instances))
    (spent,) = sojourns([Server(instances, 100.0)], rate, 150_000, seed=3)
    assert batch_mean(spent).covers(float(run.only.latency[-1]), ERRORS)


def test_with_keys_each_instance_is_a_queue_of_its_own() -> None:
    subquery = SubqueryModel("q", 0.01, keys=UniformKeys(8), shards=8)
    run = simulate(one(subquery, ConstantLoad(240.0)), None, SimulationSettings(20, 4))
    shares = run.only.busiest[-1], run.only.utilisation[-1]
    assert shares[0] > shares[1] == pytest.approx(0.6), "eight keys do not fall evenly on eight shards"
    assert run.only.latency[-1] > mean_sojourn(1, 60.0, 100.0) > mean_sojourn(4, 240.0, 100.0)


def test_a_server_is_checked() -> None:
    with pytest.raises(UserError, match="servers ≥ 1"):
        Server(0, 1.0)
    with pytest.raises(UserError, match="do not fill"):
        batch_mean(np.ones(3))
