"""Scales a query on Spark: the cluster as the autoscaler sees it, and instances in cells before executors.

A cell runs in one task, so with more cores than cells the rest of an executor is idle. Instances in cells use it at once
and without moving state; another executor takes seconds. So the sizes of a query are ordered by the cores that they use,
and of two that use as many the one with fewer executors is kept. The number of instances reaches cells through the control
stream and is in force from the batch that reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.control.cells import ShareInstances
from tidegate.control.controller import ChangeOutcome, Limits
from tidegate.control.controllers.steady import Steady
from tidegate.control.events import Poll
from tidegate.control.observation import Observation, Station
from tidegate.control.rules import Rule, Rules
from tidegate.errors import UserError
from tidegate.operators.cells import MOST_CELLS
from tidegate.runtime.spark.batch_reports import CellReport, by_step
from tidegate.runtime.spark.codec import reported
from tidegate.runtime.spark.control import Steering, send_instances
from tidegate.runtime.spark.executors import Executors, context_of, refusal, refuse_connect, shuffles_of
from tidegate.runtime.spark.observe import SparkObserver

RECOMMENDED_HERE = Steady(target_seconds=5.0, drain_seconds=30.0, heeds_limits=False)
"""The default controller of executors. Batches make a tuple wait for seconds whatever there is to run them, and the time in
tasks of a small batch is mostly its overhead: a target as short would be met by no number. Executors that are idle while
rows wait are no sign of a limit elsewhere: between stages of a batch they always are."""

UNNAMED = "query"
"""The name of a query without a name of its own, in rules and in the ledger."""
SHARES = ", instances"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that a query runs on, or is going to run on.

    ``executors`` and ``query`` are None where there is none yet. ``partitions`` are the cells of the query, or those of its
    state; before a batch has reported any, those of a shuffle.
    """

    master: str
    executors: Executors | None = None
    partitions: int = 1
    stateful: bool = False
    query: StreamingQuery | None = None

    @classmethod
    def planned(cls, session: object, cells: int, stateful: bool) -> Cluster:
        """Describes the cluster of a session, or of the master URL that one is going to be started at."""
        refuse_connect(session)
        if not isinstance(session, SparkSession):
            return cls(str(session))
        context = session.sparkContext
        return cls(context.master or "", Executors(context), cells, stateful)

    @classmethod
    def of(cls, query: object) -> Cluster:
        """Describes the cluster of a running query; anything else, and a query of another process, is refused."""
        context = context_of(query)
        assert isinstance(query, StreamingQuery)
        report = query.lastProgress
        steps = [] if report is None else [step.numShufflePartitions for step in report.stateOperators]
        steps += (
            [] if report is None else [each["cells"] for each in reported(report.observedMetrics) if "cells" in each]
        )
        partitions = min(steps) if steps else shuffles_of(query)
        return cls(context.master or "", Executors(context), partitions, report is None or bool(steps), query)

    @property
    def name(self) -> str:
        """The name of the query in rules and in the ledger."""
        return (self.query.name if self.query is not None else None) or UNNAMED

    @property
    def most_useful(self) -> int:
        """As many executors as have a core for each partition; 1 before there are any."""
        return 1 if self.executors is None else max(1, -(-self.partitions // self.executors.cores()))

    def refusal(self, most: int) -> str | None:
        """Says why so many executors would be impossible or useless; None if they are neither."""
        conf = {"spark.locality.wait": "0"}  # as a session is started with
        if self.executors is not None:
            conf = dict(self.executors.context.getConf().getAll())
        return refusal(self.master, conf, most, self.partitions if self.stateful else None)

    def cells(self, rule: Rule, observer: SparkObserver, control: str | Path) -> CellScaling | None:
        """Builds what scales instances in cells before executors, under a rule; None where cells leave no core idle."""
        folder = Path(control)
        if not folder.is_dir():
            raise UserError(
                f"autoscale: control={str(control)!r} is no folder; give the one that to_spark(control=...) was given"
            )
        cores = observer.executors.cores()
        sizes = cluster_sizes(self.partitions, cores, rule.limits.least, rule.limits.most)
        if not self.stateful or all(size.instances == 1 for size in sizes):
            return None
        return CellScaling(observer, observer.executors, folder, self.partitions, cores, sizes)


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """A number of executors and of instances in each cell, and how many cores they keep busy at most."""

    cores: int
    executors: int
    instances: int

    def __str__(self) -> str:
        return f"{self.executors} executor{'' if self.executors == 1 else 's'}, {self.instances} in each cell"


def fair_instances(cells: int, executors: int, cores: int) -> int:
    """The instances that each cell may have so that no executor has more of them than cores; at least one.

    Spark spreads the tasks of a batch evenly, so the executor with most cells decides.

    >>> fair_instances(cells=2, executors=1, cores=4), fair_instances(cells=3, executors=2, cores=4)
    (2, 2)
    """
    return max(1, cores // -(-cells // executors))


def cores_used(cells: int, executors: int, instances: int, cores: int) -> int:
    """The cores that cells keep busy at most."""
    return min(cells * instances, executors * cores)


def cluster_sizes(cells: int, cores: int, least: int, most: int) -> tuple[ClusterSize, ...]:
    """The sizes with ``least`` to ``most`` executors of so many cores, each larger than the one before.

    >>> [(size.cores, size.executors, size.instances) for size in cluster_sizes(cells=2, cores=4, least=1, most=2)]
    [(2, 1, 1), (4, 1, 2), (6, 2, 3), (8, 2, 4)]
    """
    sizes: list[ClusterSize] = []
    for executors in range(least, most + 1):
        for instances in range(1, fair_instances(cells, executors, cores) + 1):
            used = cores_used(cells, executors, instances, cores)
            if not sizes or used > sizes[-1].cores:
                sizes.append(ClusterSize(used, executors, instances))
    return tuple(sizes)


@dataclass(slots=True, eq=False)
class CellScaling:
    """Observes a query in cores and sets its size, as one observer and one actuator.

    A cell never has more instances than its executor has cores for: when executors come, cells get more instances only
    once they are there, and when one is lost, fewer. A size gives all cells the same number; each step is then observed by
    its cells, as a subquery of its own, and its instances are shared out to them by what they have to do.
    """

    observer: SparkObserver
    executors: Executors
    control: Path
    cells: int
    cores: int
    sizes: tuple[ClusterSize, ...]
    send: Callable[[Path, int], None] = send_instances
    _size: ClusterSize | None = None
    _instances: int = 1
    _sent: int | None = None
    _shared_on: int | None = None
    _steps: frozenset[str] = frozenset()

    def poll(self) -> Poll:
        """Polls the observer, and converts what it saw to cores."""
        seen = self.observer.period_batches
        poll = self.observer.poll()
        if reports := self.observer.cell_reports:
            self._instances = max(_instances_a_cell(each) for each in by_step(reports).values())
        executors = len(self.executors.seen())
        self._send_instances(executors)
        steps: list[Observation | None] = []
        if poll.observations and self.observer.period_batches is not seen:
            (whole,), cores = poll.observations, self._cores_of_a_step(executors)
            told = by_step(report for batch in self.observer.period_batches for report in batch.cells)
            steps = [
                observed_instances(step, reports, whole, cores) for step, reports in told.items() if step in self._steps
            ]
        sized = tuple(self._in_cores(each) for each in poll.observations)
        return replace(poll, observations=(*sized, *(each for each in steps if each is not None)))

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        """Sets the size that uses so many cores: fewer instances at once, more when the executors for them are there.

        Of a step, the cells that its instances are in.
        """
        if subquery.endswith(SHARES) and mapping is not None:
            return self._share(subquery.removesuffix(SHARES), mapping)
        size = next((each for each in self.sizes if each.cores == instances), None)
        if size is None:
            return ChangeOutcome(False, f"no size uses {instances} cores; there are {', '.join(map(str, self.sizes))}")
        now = len(self.executors.seen())
        # Cells read the number with their next batch; a period ends with one.
        outcome = ChangeOutcome(True, seconds=self.observer.period_seconds)
        if size.executors != now:
            outcome = self.executors.reconfigure(subquery, size.executors, None)
        if outcome.accepted:
            self._size = size
            self._send_instances(min(now, size.executors))
            outcome = replace(outcome, note="; ".join(filter(None, (str(size), outcome.note))))
        return outcome

    def rules(self, rule: Rule) -> Rules:
        """Converts a rule over executors to one over the cores of sizes."""
        cores = tuple(size.cores for size in self.sizes)
        shares = Rule(ShareInstances(), Limits(1, MOST_CELLS), self.observer.period_seconds, dry_run=rule.dry_run)
        self._steps = frozenset(step.label for step in Steering(self.control).steps())
        steps = tuple((shares_of(step), shares) for step in sorted(self._steps))
        return Rules(replace(rule, limits=Limits(cores[0], cores[-1], cores)), steps)

    def _cores_of_a_step(self, executors: int) -> int:
        """How many instances the cells of a step may have in all, so that they fit wherever Spark puts them.

        As many as the size gives them; and where the busiest executor has the cells with most of them, no more than its
        cores, if the others have one each.
        """
        each = -(-self.cells // max(executors, 1))
        return min(self.cells * self._instances, self.cores + self.cells - each)

    def _share(self, step: str, mapping: tuple[int, ...]) -> ChangeOutcome:
        counts = dict(sorted(Counter(mapping).items()))
        try:
            Steering(self.control).set_instances(counts, step)
        except UserError as error:
            return ChangeOutcome(False, str(error))
        self._shared_on = len(self.executors.seen())
        return ChangeOutcome(True, "", self.observer.period_seconds)

    def _send_instances(self, executors: int) -> None:
        """Sends cells the number of instances to run, if that is another one than they know."""
        if self._size is None or executors < 1:
            return
        wanted = min(self._size.instances, fair_instances(self.cells, executors, self.cores))
        # What was shared out for more executors may be too much for one of those that are left.
        fewer = self._shared_on is not None and executors < self._shared_on
        if fewer or wanted != (self._instances if self._sent is None else self._sent):
            self.send(self.control, wanted)
            self._shared_on = None
        self._sent = wanted

    def _in_cores(self, seen: Observation) -> Observation:
        used = max(cores_used(self.cells, seen.instances, self._instances, self.cores), 1)
        busy = None
        if seen.busy is not None:
            # A share of an executor is of all its cores.
            busy = (min(sum(seen.busy) * self.cores / used, 1.0),) * used
        return replace(seen, instances=used, busy=busy)


def shares_of(step: str) -> str:
    """The name that the instances of a step have in rules and in the ledger."""
    return f"{step}{SHARES}"


def observed_instances(step: str, reports: Sequence[CellReport], whole: Observation, cores: int) -> Observation | None:
    """The cells of a step as queues, over a period; None where fewer than two have shards or none has worked.

    Rows come to all cells at once and a batch is done when the slowest is: rates are those of the time that took.
    """
    last = {report.cell: report for report in reports if report.shards}
    busy, rows = dict.fromkeys(last, 0.0), dict.fromkeys(last, 0)
    for report in reports:
        if report.cell in last:
            busy[report.cell] += report.busy_seconds
            rows[report.cell] += report.rows
    slowest = max((busy[cell] / last[cell].instances for cell in last), default=0.0)
    if len(last) < 2 or slowest <= 0:
        return None
    stations = tuple(
        Station(str(cell), last[cell].instances, rows[cell] / slowest, rows[cell] / busy[cell])
        if rows[cell] and busy[cell] > 0
        else Station(str(cell), last[cell].instances, 0.0, 1.0)
        for cell in sorted(last)
    )
    return Observation(
        shares_of(step),
        whole.time_seconds,
        whole.period_seconds,
        len(last),
        processed=sum(rows.values()) / whole.period_seconds,
        busy=tuple(min(busy[cell] / last[cell].instances / whole.period_seconds, 1.0) for cell in sorted(last)),
        network=stations,
        network_arrival_rate=sum(each.arrival_rate for each in stations),
        cores=cores,
    )


def _instances_a_cell(reports: Sequence[CellReport]) -> int:
    """How many instances the cells of a step have, on average, rounded up."""
    return -(-sum(report.instances for report in reports) // len(reports))
