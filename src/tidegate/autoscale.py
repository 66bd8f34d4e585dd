"""An autoscaler for any Structured Streaming query, in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.control.controller import Limits
from tidegate.control.controllers.fixed import Fixed
from tidegate.control.rules import Rule, Rules
from tidegate.elastic.options import Elastic, most_of
from tidegate.errors import EnvironmentFault, UnsupportedError
from tidegate.operators.cells import MOST_CELLS

if TYPE_CHECKING:
    from tidegate.control.balancers.balance import Balancer
    from tidegate.control.controller import Actuator, Controller
    from tidegate.control.events import Poll
    from tidegate.elastic.scaling import Scaling
    from tidegate.runtime.spark.observe import SparkObserver
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
    balance: Balancer | str | bool | None = None,
    page: int | None = None,
) -> Scaling:
    """Let the executors of a running Structured Streaming query follow its load, until it ends or ``stop`` is called.

    ``query`` is what ``df.writeStream.….start()`` gives, whether or not tidegate has a part in it. ``controller``
    is one, or its name, or a rule, rules or a rules file (docs/elasticity.md); without it, the recommended one.
    There are ``least`` to ``most`` executors; by default as many as the query's partitions can keep busy.
    ``dry_run`` decides and changes nothing, ``shadows`` are asked what they would do, ``ledger`` is a file that
    keeps all of it. ``backlog`` says how many rows wait, for sources that do not report that and have a limit per
    batch. ``metrics_port`` serves Prometheus on the loopback address. ``control`` is for a query made by
    ``to_spark(control=...)``, the same folder: where executors have more cores than cells, instances in cells come first,
    and with ``balance``, True or a balancer, shards move between the cells of each step. ``page`` is a port for a page that
    shows all of this while it happens, 0 for a free one; its address is printed, and is ``page_url`` (docs/page.md).

    The query need not know of it, and goes on as it is if this ends, for whatever reason::

        with tg.autoscale(query, most=4, ledger="run.ledger"):
            query.awaitTermination()
    """
    elastic = Elastic(
        controller, least, most, period_seconds, ledger, dry_run, shadows, metrics_port, balance, page=page
    )
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

    if elastic.balance and control is None:
        raise UnsupportedError(f"balance={elastic.balance!r}: give control=, the folder of to_spark(control=...), too")
    cluster = Cluster.of(query)
    rules = elastic.resolved(cluster.most_useful, RECOMMENDED_HERE)
    _refuse_useless(rules, cluster)
    assert cluster.query is not None and cluster.executors is not None
    period_seconds = elastic.period_seconds or PERIOD_SECONDS
    observer = SparkObserver(cluster.query, cluster.executors, cluster.name, period_seconds, backlog)
    rule = rules.of(cluster.name)
    cells = None if control is None else cluster.cells(rule, observer, control)
    sized = Rules(rule) if cells is None else cells.rules(rule)
    if elastic.balance and control is not None:
        poll = observer.poll if cells is None else cells.poll
        return _balanced(observer, elastic, Path(control), sized, cells or cluster.executors, poll)
    if cells is None:
        return Scaling(observer, cluster.executors, rules, POLL_SECONDS, elastic, cluster.name)
    return Scaling(cells, cells, sized, POLL_SECONDS, elastic, cluster.name)


def prepare_balance(query: object, elastic: Elastic, control: str | Path) -> Scaling:
    """What moves shards between the cells of a running query, yet to be started; the query keeps its size."""
    from tidegate.runtime.spark.executors import Executors, context_of
    from tidegate.runtime.spark.observe import PERIOD_SECONDS, SparkObserver

    context = context_of(query)
    name = getattr(query, "name", None) or "query"
    observer = SparkObserver(query, Executors(context), name, elastic.period_seconds or PERIOD_SECONDS)  # type: ignore[arg-type]
    return _balanced(observer, elastic, Path(control), Rules(Rule(Fixed())), None, None)


def _balanced(
    observer: SparkObserver,
    elastic: Elastic,
    control: Path,
    sized: Rules,
    beside: Actuator | None,
    poll: Callable[[], Poll] | None,
) -> Scaling:
    """A loop for each step beside the one of the query's size."""
    from tidegate.elastic.scaling import Scaling
    from tidegate.runtime.spark.control import Steering
    from tidegate.runtime.spark.observe import POLL_SECONDS
    from tidegate.runtime.spark.step_balance import BALANCER_HERE, StepBalance, planner_of

    steering = Steering(control)
    rule = Rule(Fixed(), Limits(1, MOST_CELLS), balancer=elastic.balancer(BALANCER_HERE), dry_run=elastic.dry_run)
    steps = steering.steps()
    names = [step.label for step in steps]
    rules = Rules(sized.default, (*sized.subqueries, *((name, rule) for name in names)))
    balance = StepBalance(observer, steering, beside, poll)
    planner = elastic.planned_by(planner_of(steps))
    return Scaling(balance, balance, rules, POLL_SECONDS, elastic, observer.name, planner=planner)


def check_autoscale(session: object, elastic: Elastic, *, cells: int, stateful: bool) -> None:
    """Refuse, before a query is started, what `prepare_autoscale` would refuse of it.

    ``session`` is the Spark session it will run in, or a master URL where none is there yet.
    """
    from tidegate.runtime.spark.scaling import RECOMMENDED_HERE, Cluster

    cluster = Cluster.planned(session, cells, stateful)
    _refuse_useless(elastic.resolved(cluster.most_useful, RECOMMENDED_HERE), cluster)


def _refuse_useless(rules: Rules, cluster: Cluster) -> None:
    rules.check([cluster.name])
    refused = None if rules.of(cluster.name).dry_run else cluster.refusal(most_of(rules))
    if refused is not None:
        raise UnsupportedError(f"autoscale: {refused}")
