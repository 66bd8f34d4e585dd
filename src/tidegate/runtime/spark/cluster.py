"""A running query and the cluster it runs on, as the autoscaler sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.control.controllers.steady import Steady
from tidegate.control.rules import Rule
from tidegate.runtime.spark.cell_scaling import CellScaling, checked_control
from tidegate.runtime.spark.dataframe import shuffle_partitions
from tidegate.runtime.spark.executors import Executors, context_of, refusal, refuse_connect, shuffles_of
from tidegate.runtime.spark.observe import PERIOD_SECONDS, POLL_SECONDS, SparkObserver
from tidegate.runtime.spark.rungs import rungs

RECOMMENDED_HERE = Steady(target_seconds=5.0, drain_seconds=30.0, heeds_limits=False)
"""What drives executors unless something else is asked for. Batches make a tuple wait for seconds whatever there is to run
them, and the time in tasks of a small batch is mostly its overhead: a target as short would be met by no number. Executors
that stand idle while rows wait are no sign of a limit elsewhere: between stages of a batch they always do."""

UNNAMED = "query"
"""What a query without a name of its own is called, in rules and in the ledger."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a query is going to run: what is known of its cluster before there is a query."""

    master: str
    executors: Executors | None
    partitions: int | None
    recommended: Steady = RECOMMENDED_HERE

    @classmethod
    def of(cls, given: object, stateful: bool) -> Ground:
        """The ground in a session, or at the master that one is going to be started at."""
        refuse_connect(given)
        if not isinstance(given, SparkSession):
            return cls(str(given), None, None)
        executors = Executors(given.sparkContext)
        return cls(given.sparkContext.master or "", executors, shuffle_partitions(given) if stateful else None)

    @property
    def most_useful(self) -> int:
        """As many executors as have a core for each partition; 1 where nothing is known yet."""
        return 1 if self.executors is None else most_useful(self.executors, self.partitions or 1)

    def refusal(self, most: int) -> str | None:
        """Why so many executors could not be had with use, as far as that is known."""
        conf = {"spark.locality.wait": "0"}  # as a session is started with
        if self.executors is not None:
            conf = dict(self.executors.context.getConf().getAll())
        return refusal(self.master, conf, most, self.partitions)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A query, its executors, and how many of them it could keep busy.

    ``partitions`` are those of its state; as long as no batch has told of any, those that a shuffle would have.
    """

    query: StreamingQuery
    executors: Executors
    name: str
    partitions: int
    stateless: bool = False
    recommended: Steady = RECOMMENDED_HERE
    poll_seconds: float = POLL_SECONDS

    @classmethod
    def of(cls, query: object) -> Cluster:
        """The cluster of a running query; refused for what is none, or runs elsewhere."""
        executors = Executors(context_of(query))
        assert isinstance(query, StreamingQuery)
        stateful = [
            operator.numShufflePartitions
            for update in [query.lastProgress]
            if update is not None
            for operator in update.stateOperators
        ]
        partitions = min(stateful) if stateful else shuffles_of(query)
        stateless = query.lastProgress is not None and not stateful
        return cls(query, executors, query.name or UNNAMED, partitions, stateless)

    @property
    def most_useful(self) -> int:
        """As many executors as have a core for each partition, and no more."""
        return most_useful(self.executors, self.partitions)

    def refusal(self, most: int) -> str | None:
        """Why so many executors cannot be had with use, None if they can."""
        context = self.executors.context
        return refusal(
            context.master or "", dict(context.getConf().getAll()), most, None if self.stateless else self.partitions
        )

    def cells(self, rule: Rule, observer: SparkObserver, control: str | Path) -> CellScaling | None:
        """What scales instances in cells before executors, under a rule over these; None where cells leave no core idle."""
        cores = max((each.cores for each in self.executors.seen()), default=1)
        folder = checked_control(control)
        found = rungs(self.partitions, cores, rule.limits.least, rule.limits.most)
        if self.stateless or all(each.instances == 1 for each in found):
            return None
        return CellScaling(observer, self.executors, folder, self.partitions, cores, found)

    def observer(self, period_seconds: float | None, backlog: Callable[[], float | None] | None) -> SparkObserver:
        """Who looks at the query."""
        return SparkObserver(self.query, self.executors, self.name, period_seconds or PERIOD_SECONDS, backlog)


def most_useful(executors: Executors, partitions: int) -> int:
    """As many executors as have a core for each partition, and no more."""
    cores = max((each.cores for each in executors.seen()), default=1)
    return max(1, -(-partitions // max(cores, 1)))
