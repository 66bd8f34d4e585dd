"""What three ways to spread a query over instances cost (StreamCloud §III.A and §XI).

A strategy costs α·f + β·ρ·h: f for the channels that instances keep open to each other, h for how often a tuple is
shipped. The paper counts channels for the query-cloud, but for the other two it counts one subcluster's size instead of
the pairs between two subclusters. Here f is the number of channels for all three, and the paper's own figures stand
beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors import UserError
from tidegate.query.nodes import Node, Outputs, Source, is_stateful, walk

# The paper leaves both weights open within [0, 1] and expects β to be much the greater.
ALPHA = 0.01
BETA = 1.0


@dataclass(frozen=True, slots=True)
class QueryShape:
    """What the cost model sees of a query.

    Sources are no operators; ``prefix`` says whether the query begins with stateless ones.
    """

    operators: int
    stateful: int
    prefix: bool

    @property
    def subqueries(self) -> int:
        return max(self.stateful + self.prefix, 1)


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to spread a query, with all subclusters of the same size.

    ``fan_out`` is the instances one instance sends to, ``hops`` how often a tuple is shipped. ``paper_channels`` and
    ``paper_cost`` follow the formulas as printed.
    """

    name: str
    subclusters: int
    hops: int
    fan_out: float
    channels: float
    cost: float
    paper_channels: float
    paper_cost: float


def shape_of(query: Node) -> QueryShape:
    """Count the operators of a query."""
    operators = [node for node in walk(query) if not isinstance(node, Source | Outputs)]
    stateful = [node for node in operators if is_stateful(node)]
    behind = {id(node) for node in operators if any(map(is_stateful, walk(node)))}
    return QueryShape(len(operators), len(stateful), prefix=len(behind) < len(operators))


def cost_of(
    shape: QueryShape, instances: int, rate: float, alpha: float = ALPHA, beta: float = BETA
) -> tuple[Strategy, Strategy, Strategy]:
    """The query-cloud, operator-cloud and operator-set strategies on ``instances`` at ``rate`` tuples per second.

    The model takes a query for a chain. Without a stateless prefix the operator-set has one subcluster and one hop
    less. A subcluster smaller than one instance shares it with others.

    >>> for way in cost_of(QueryShape(operators=6, stateful=2, prefix=True), instances=90, rate=100_000.0):
    ...     print(way.name, way.hops, way.fan_out, way.channels, way.paper_channels)
    query-cloud 2 89.0 8010.0 8010.0
    operator-cloud 5 15.0 1125.0 75.0
    operator-set 2 30.0 1800.0 60.0
    """
    _check(instances, rate, alpha, beta)

    def strategy(name: str, subclusters: int, hops: int, fan_out: float, paper_channels: float) -> Strategy:
        senders = instances if subclusters == 1 else instances * (subclusters - 1) / subclusters
        channels, shipping = senders * fan_out, beta * rate * hops
        costs = alpha * channels + shipping, alpha * paper_channels + shipping
        return Strategy(name, subclusters, hops, fan_out, channels, costs[0], paper_channels, costs[1])

    def staged(name: str, subclusters: int) -> Strategy:
        size = instances / subclusters
        return strategy(name, subclusters, subclusters - 1, size if subclusters > 1 else 0.0, size * (subclusters - 1))

    peers = float(instances - 1) if shape.stateful else 0.0
    return (
        strategy("query-cloud", 1, shape.stateful, peers, instances * peers),
        staged("operator-cloud", max(shape.operators, 1)),
        staged("operator-set", shape.subqueries),
    )


def _check(instances: int, rate: float, alpha: float, beta: float) -> None:
    if instances < 1:
        raise UserError(f"cost: a query needs at least one instance; got {instances}")
    if rate < 0:
        raise UserError(f"cost: rate is tuples per second, from 0; got {rate}")
    for name, weight in (("alpha", alpha), ("beta", beta)):
        if not 0 <= weight <= 1:
            raise UserError(f"cost: {name} is a weight from 0 to 1; got {weight}")
