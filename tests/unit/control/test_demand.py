"""Offered rates, propagated through selectivities."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.observation import DataflowEdge, Observation, Station, with_demand


def observed(
    subquery: str,
    offered: float | None = None,
    processed: float | None = 100.0,
    busy: tuple[float, ...] | None = (0.5,),
) -> Observation:
    instances = len(busy) if busy else 1
    return Observation(subquery, 10.0, 5.0, instances, offered=offered, processed=processed, busy=busy)


def demands(*observations: Observation, feeds: tuple[DataflowEdge, ...]) -> dict[str, float | None]:
    return {each.subquery: each.demand for each in with_demand(observations, feeds)}


def test_a_chain_multiplies_selectivities() -> None:
    feeds = (DataflowEdge("a", "b", 0.5), DataflowEdge("b", "c", 10.0))
    assert demands(observed("c"), observed("b"), observed("a", 1_000.0), feeds=feeds) == {
        "a": 1000,
        "b": 500,
        "c": 5000,
    }


def test_what_upstream_failed_to_process_is_still_demanded() -> None:
    slow = observed("a", offered=1_000.0, processed=10.0)
    assert demands(slow, observed("b", processed=10.0), feeds=(DataflowEdge("a", "b", 1.0),)) == {"a": 1000, "b": 1000}


def test_a_diamond_adds_up() -> None:
    feeds = (
        DataflowEdge("a", "b", 0.5),
        DataflowEdge("a", "c", 2.0),
        DataflowEdge("b", "d", 1.0),
        DataflowEdge("c", "d", 0.25),
    )
    found = demands(observed("a", 100.0), observed("b"), observed("c"), observed("d"), feeds=feeds)
    assert found["d"] == pytest.approx(100 * 0.5 + 100 * 2 * 0.25)


def test_a_subquery_may_have_sources_of_its_own_beside_others() -> None:
    feeds = (DataflowEdge("a", "join", 0.5), DataflowEdge(None, "join"))
    (_, join) = with_demand((observed("a", 100.0), observed("join", 30.0)), feeds)
    assert (join.demand, join.network_arrival_rate) == (80, 130)


def test_a_subquery_that_is_fed_does_not_count_what_it_is_offered() -> None:
    assert demands(observed("a", 100.0), observed("b", offered=100.0), feeds=(DataflowEdge("a", "b", 0.1),))["b"] == 10


def test_unknown_upstream_makes_all_that_follows_unknown() -> None:
    feeds = (DataflowEdge("a", "b", None), DataflowEdge("b", "c", 1.0), DataflowEdge("x", "y", 1.0))
    found = demands(observed("a", 100.0), observed("b"), observed("c"), observed("x"), observed("y"), feeds=feeds)
    assert found == {"a": 100, "b": None, "c": None, "x": None, "y": None}


def test_an_unobserved_subquery_is_passed_through_but_no_network_is_known() -> None:
    feeds = (DataflowEdge("a", "hidden", 0.5), DataflowEdge("hidden", "c", 0.5))
    (_, last) = with_demand((observed("a", 100.0), observed("c")), feeds)
    assert (last.demand, last.network, last.network_arrival_rate) == (25, None, None)


def test_the_network_has_every_subquery_and_what_enters() -> None:
    first = observed("a", 100.0, processed=90.0, busy=(0.5, 0.4))
    second = observed("b", processed=40.0, busy=(0.2,))
    both = with_demand((first, second), (DataflowEdge("a", "b", 0.5),))
    stations = (Station("a", 2, 100.0, 100.0), Station("b", 1, 50.0, 200.0))
    for each in both:
        assert each.network is not None
        assert [(s.subquery, s.instances) for s in each.network] == [("a", 2), ("b", 1)]
        for found, expected in zip(each.network, stations, strict=True):
            assert found.arrival_rate == pytest.approx(expected.arrival_rate)
            assert found.service_rate == pytest.approx(expected.service_rate)
        assert each.network_arrival_rate == 100


def test_without_a_service_rate_there_is_no_network() -> None:
    idle = observed("b", processed=0.0, busy=(0.0,))
    assert [each.network for each in with_demand((observed("a", 100.0), idle), (DataflowEdge("a", "b", 1.0),))] == [
        None,
        None,
    ]


def test_a_subquery_that_gets_nothing_is_left_out_of_the_network() -> None:
    idle = observed("b", processed=0.0, busy=(0.0,))
    found = with_demand((observed("a", 100.0), idle), (DataflowEdge("a", "b", 0.0),))
    assert [[s.subquery for s in each.network or ()] for each in found] == [["a"], ["a"]]
    assert found[1].demand == 0


def test_an_idle_query_is_known_to_be_idle_although_no_selectivity_could_be_measured() -> None:
    nothing = {"processed": 0.0, "busy": (0.0,)}
    found = with_demand((observed("a", 0.0, **nothing), observed("b", **nothing)), (DataflowEdge("a", "b", None),))
    for each in found:
        assert (each.demand, each.network, each.network_arrival_rate) == (0, (), 0)
        assert each.missing(("network", "network_arrival_rate")) == ()


@given(st.floats(0, 1e6), st.lists(st.floats(0, 10), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_observations_and_feeds_does_not_matter(
    offered: float, along: list[float], random: Random
) -> None:
    feeds = [DataflowEdge(str(place), str(place + 1), each) for place, each in enumerate(along)]
    observations = [observed("0", offered), *(observed(str(place + 1)) for place in range(len(along)))]
    straight = demands(*observations, feeds=tuple(feeds))
    random.shuffle(feeds)
    random.shuffle(observations)
    assert demands(*observations, feeds=tuple(feeds)) == straight
