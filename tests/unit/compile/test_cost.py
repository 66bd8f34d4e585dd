from __future__ import annotations

import pytest

from tidegate.compile.cost import QueryShape, cost_of, shape_of
from tidegate.errors import UserError
from tidegate.query.aggregates import count

FIGURE_1 = QueryShape(operators=6, stateful=2, prefix=True)


def test_figure_1_on_90_nodes() -> None:
    ways = cost_of(FIGURE_1, instances=90, rate=100_000.0)
    assert [way.name for way in ways] == ["query-cloud", "operator-cloud", "operator-set"]
    assert [way.hops for way in ways] == [2, 5, 2]
    assert [way.fan_out for way in ways] == [89, 15, 30]
    assert [way.subclusters for way in ways] == [1, 6, 3]


def test_channels_are_counted_alike_and_the_paper_s_figures_stand_beside_them() -> None:
    ways = cost_of(FIGURE_1, instances=90, rate=100_000.0)
    assert [way.channels for way in ways] == pytest.approx([90 * 89, 15**2 * 5, 30**2 * 2])
    assert [way.paper_channels for way in ways] == pytest.approx([90 * 89, 15 * 5, 30 * 2])


def test_cost_weighs_channels_and_shipped_tuples() -> None:
    ways = cost_of(FIGURE_1, instances=90, rate=1_000.0, alpha=0.5, beta=0.25)
    assert [way.cost for way in ways] == pytest.approx([0.5 * 8010 + 500, 0.5 * 1125 + 1250, 0.5 * 1800 + 500])
    assert [way.paper_cost for way in ways] == pytest.approx([0.5 * 8010 + 500, 0.5 * 75 + 1250, 0.5 * 60 + 500])


def test_the_paper_s_order_holds_at_its_rate_whichever_way_channels_are_counted() -> None:
    query_cloud, operator_cloud, operator_set = cost_of(FIGURE_1, instances=90, rate=100_000.0)
    assert operator_set.cost < min(query_cloud.cost, operator_cloud.cost)
    assert operator_set.paper_cost < min(query_cloud.paper_cost, operator_cloud.paper_cost)


def test_without_a_prefix_there_is_a_subcluster_and_a_hop_less() -> None:
    _, _, operator_set = cost_of(QueryShape(operators=4, stateful=2, prefix=False), instances=90, rate=1.0)
    assert (operator_set.subclusters, operator_set.hops, operator_set.fan_out) == (2, 1, 45)
    assert operator_set.channels == pytest.approx(45**2)


def test_a_stateless_query_ships_nothing_as_a_whole() -> None:
    query_cloud, operator_cloud, operator_set = cost_of(QueryShape(operators=2, stateful=0, prefix=True), 10, rate=5.0)
    assert (query_cloud.cost, operator_set.cost) == (0, 0)
    assert (operator_cloud.hops, operator_cloud.channels) == (1, 25)


def test_operators_are_counted_without_sources(heavy_customers, numbers, more_numbers) -> None:
    assert shape_of(heavy_customers.node) == QueryShape(operators=3, stateful=1, prefix=True)
    assert shape_of(numbers.node) == QueryShape(operators=0, stateful=0, prefix=False)
    counts = numbers.key_by("a").window("1 minute").aggregate(n=count())
    assert shape_of(counts.node) == QueryShape(operators=1, stateful=1, prefix=False)
    both = numbers.union(more_numbers).key_by("a").window("1 minute").aggregate(n=count())
    assert shape_of(both.node) == QueryShape(operators=2, stateful=1, prefix=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"instances": 0}, "at least one instance; got 0"),
        ({"rate": -1.0}, r"rate is tuples per second, from 0; got -1\.0"),
        ({"alpha": 2.0}, r"alpha is a weight from 0 to 1; got 2\.0"),
        ({"beta": -0.5}, r"beta is a weight from 0 to 1; got -0\.5"),
    ],
)
def test_impossible_figures_are_refused(given, message) -> None:
    with pytest.raises(UserError, match=message):
        cost_of(FIGURE_1, **({"instances": 2, "rate": 1.0} | given))
