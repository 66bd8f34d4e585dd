"""An autoscaler for any Structured Streaming query, in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.elastic.options import Elastic, most_of
from tidegate.errors import EnvironmentFault, UnsupportedError

if TYPE_CHECKING:
    from tidegate.control.controller import Controller
    from tidegate.control.rules import Rule, Rules
    from tidegate.elastic.scaling import Scaling
    from tidegate.runtime.spark.scaling import Cluster


def autoscale(
    query: object,
    controller: Controller | Rule | Rules | str | Path | None = None,
    *,
    least: int = 1,
    most: int | None = None,
    period_seconds: float | None = None,
    ledger: str | Path | None = None,
    dry_run: bool = False,
    shadows: tuple[Controller | str, ...] = (),
    metrics_port: int | None = None,
    backlog: Callable[[], float | None] | None = None,
    control: str | Path | None = None,
) -> Scaling:
    """Let the executors of a running Structured Streaming query follow its load, until it ends or ``stop`` is called.

    ``query`` is what ``df.writeStream.….start()`` gives, whether or not tidegate has a part in it. ``controller``
    is one, or its name, or a rule, rules or a rules file (docs/elasticity.md); without it, the recommended one.
    There are ``least`` to ``most`` executors; by default as many as the query's partitions can keep busy.
    ``dry_run`` decides and changes nothing, ``shadows`` are asked what they would do, ``ledger`` is a file that
    keeps all of it. ``backlog`` says how many rows wait, for sources that do not report that and have a limit per
    batch. ``metrics_port`` serves Prometheus on the loopback address. ``control`` is for a query made by
    ``to_spark(control=...)``, the same folder: where executors have more cores than cells, instances in cells come first.

    The query need not know of it, and goes on as it is if this ends, for whatever reason::

        with tg.autoscale(query, most=4, ledger="run.ledger"):
            query.awaitTermination()
    """
    elastic = Elastic(controller, least, most, period_seconds, ledger, dry_run, shadows, metrics_port)
    return prepare_autoscale(query, elastic, backlog, control).start()


def prepare_autoscale(
    query: object,
    elastic: Elastic,
    backlog: Callable[[], float | None] | None = None,
    control: str | Path | None = None,
) -> Scaling:
    """The autoscaler of a query, yet to be started; refused where it could be of no use."""
    from tidegate.elastic.scaling import Scaling

    try:
        from tidegate.runtime.spark.observe import PERIOD_SECONDS, POLL_SECONDS, SparkObserver
        from tidegate.runtime.spark.scaling import RECOMMENDED_HERE, Cluster
    except ModuleNotFoundError as error:
        raise EnvironmentFault(
            f"the package '{error.name}' is missing; install Spark's part of tidegate: pip install 'tidegate[spark]'"
        ) from error

    _refuse_moves(elastic)
    cluster = Cluster.of(query)
    rules = elastic.resolved(cluster.most_useful, RECOMMENDED_HERE)
    _refuse_useless(rules, cluster)
    assert cluster.query is not None and cluster.executors is not None
    period_seconds = elastic.period_seconds or PERIOD_SECONDS
    observer = SparkObserver(cluster.query, cluster.executors, cluster.name, period_seconds, backlog)
    rule = rules.of(cluster.name)
    cells = None if control is None else cluster.cells(rule, observer, control)
    if cells is None:
        return Scaling(observer, cluster.executors, rules, POLL_SECONDS, elastic, cluster.name)
    return Scaling(cells, cells, cells.rules(rule), POLL_SECONDS, elastic, cluster.name)


def check_autoscale(session: object, elastic: Elastic, *, cells: int, stateful: bool) -> None:
    """Refuse, before a query is started, what `prepare_autoscale` would refuse of it.

    ``session`` is the Spark session it will run in, or a master URL where none is there yet.
    """
    from tidegate.runtime.spark.scaling import RECOMMENDED_HERE, Cluster

    _refuse_moves(elastic)
    cluster = Cluster.planned(session, cells, stateful)
    _refuse_useless(elastic.resolved(cluster.most_useful, RECOMMENDED_HERE), cluster)


def _refuse_moves(elastic: Elastic) -> None:
    for name in ("balance", "protocol", "deadline_seconds"):
        if value := getattr(elastic, name):
            raise UnsupportedError(f"{name}={value!r}: shards are not moved on Spark, so leave it out")


def _refuse_useless(rules: Rules, cluster: Cluster) -> None:
    rules.check([cluster.name])
    refused = None if rules.of(cluster.name).dry_run else cluster.refusal(most_of(rules))
    if refused is not None:
        raise UnsupportedError(f"autoscale: {refused}")
