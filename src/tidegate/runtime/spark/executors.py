"""The executors of a Spark application: which there are, how long their tasks ran, and how their number is changed.

This is the one file that reaches into Spark's Java process. Everything it calls there is either a developer API of
`SparkContext` (`requestTotalExecutors`, `killExecutors`) or read only. Tried on local-cluster and standalone masters; on
YARN and Kubernetes the same calls exist and are untested.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.control.controller import ChangeOutcome
from tidegate.errors import UnsupportedError, UserError

DRIVER = "driver"
LOCALITY = (
    "spark.locality.wait",
    "spark.locality.wait.process",
    "spark.locality.wait.node",
    "spark.locality.wait.rack",
)
CHANGE_SECONDS = 5.0
"""How long a change takes before one was measured: about what a local-cluster master needs."""
RECENT_SECONDS = 30.0
"""Over how long it is measured which executor has least to do."""


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor: its cores, and how long its tasks have run in all."""

    name: str
    cores: int
    task_seconds: float


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """How a query is triggered: its interval, None if it has none; and whether each batch takes all there is."""

    interval_seconds: float | None
    takes_all: bool


def refusal(master: str, conf: Mapping[str, str], most: int, partitions: int | None) -> str | None:
    """Says why executors cannot be scaled with use, and what to do instead; None if they can.

    ``partitions`` is the number of partitions of the query's state, or of shuffles where that is not known yet.
    """
    if master.startswith("local") and not master.startswith("local-cluster"):
        return (
            f"the master is '{master}', where the driver is the only executor. Use a cluster, or the master "
            "'local-cluster[2,1,1024]' to try it on one machine; in one process, tg.start(query, elastic=...) scales "
            "threads; dry_run=True only advises"
        )
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        return (
            "spark.dynamicAllocation.enabled is true, so Spark would undo what is decided here; set it to false, or do "
            "without autoscale"
        )
    for name in LOCALITY:
        wait = conf.get(name, "3s" if name == LOCALITY[0] else conf.get(LOCALITY[0], "3s"))
        if wait.strip().rstrip("smh") not in ("0", "0m", "0.0"):
            return (
                f"{name} is {wait}, so Spark would keep stateful tasks where their state is and leave a new executor "
                f"without work; start the session with .config('{LOCALITY[0]}', '0')"
            )
    if partitions is not None and most > partitions:
        return (
            f"up to {most} executors are allowed and the query has {partitions} partitions, so {most - partitions} of them "
            f"would never get a stateful task; allow at most {partitions}, or start the query on a new checkpoint with "
            "more: cells= of to_spark and tg.run, spark.sql.shuffle.partitions for Spark's own stateful steps"
        )
    return None


def refuse_connect(given: object) -> None:
    """Refuses a query or a session of Spark Connect: its driver is another process."""
    if type(given).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedError(
            "autoscale: this query runs over Spark Connect, which cannot see or size executors; call tg.autoscale in the "
            "process of the driver, on the query that was started there"
        )


def context_of(query: object) -> SparkContext:
    """The Spark context that runs a query; refused for queries that run elsewhere."""
    refuse_connect(query)
    if not isinstance(query, StreamingQuery):
        raise UserError(
            f"autoscale takes a running StreamingQuery, such as df.writeStream.….start() gives; got {type(query).__name__}"
        )
    found: SparkContext | None = SparkContext._active_spark_context
    if found is None:
        raise UserError("autoscale: the Spark session of this query was stopped")
    return found


def shuffles_of(query: StreamingQuery) -> int:
    """The partitions that a shuffle of a query has, by the settings of the session that runs it."""
    return int(query._jsq.sparkSession().sessionState().conf().numShufflePartitions())


def trigger_of(query: StreamingQuery) -> TriggerSettings:
    """Reads how a query is triggered. Needs its sources, which are there once the first batch has begun."""
    execution: Any = query._jsq.streamingQuery()
    trigger = execution.trigger()
    interval_ms = trigger.intervalMs() if "ProcessingTime" in trigger.getClass().getSimpleName() else 0
    limits = execution.uniqueSources().values().iterator()
    kinds = []
    while limits.hasNext():
        kinds.append(limits.next().getClass().getSimpleName())
    takes_all = bool(kinds) and all(kind == "ReadAllAvailable" for kind in kinds)
    return TriggerSettings(interval_ms / 1000 if interval_ms else None, takes_all)


@dataclass(slots=True)
class Executors:
    """The executors of an application, as an actuator: more are requested by their total, fewer released one by one.

    Where `spark.decommission.enabled` is true a released executor finishes its tasks first; otherwise it is killed, and
    Spark runs its tasks again elsewhere. Those go first whose tasks ran least of late (`release_order`): state is in files
    that all can read, so what is lost with an executor is what its workers keep in memory.
    """

    context: SparkContext
    clock: Callable[[], float] = time.monotonic
    _leaving: set[str] = field(default_factory=set)
    _present: set[str] = field(default_factory=set)
    _samples: deque[tuple[float, dict[str, float]]] = field(default_factory=deque)
    _lost: list[str] = field(default_factory=list)
    _requested: tuple[int, bool, float] | None = None  # the total, whether that is more, and since when
    _seconds: dict[bool, float] = field(default_factory=lambda: {True: CHANGE_SECONDS, False: CHANGE_SECONDS})

    def seen(self) -> tuple[Executor, ...]:
        """The executors that take tasks now; those that are being released are not among them."""
        listed: Any = self._scala.statusStore().executorList(True)
        registered = {listed.apply(index).id(): listed.apply(index) for index in range(listed.size())}
        alone = list(registered) == [DRIVER] and registered[DRIVER].totalCores() > 0
        alive = {DRIVER} if alone else set(self._alive())
        self._lost += sorted(self._present - alive - self._leaving, key=_age)
        self._leaving &= alive
        found = tuple(
            # The driver of a local master counts its own tasks nowhere: what it lists is its age.
            Executor(name, each.totalCores(), each.totalDuration() / 1000)
            for name, each in registered.items()
            if name in alive and name not in self._leaving
        )
        self._present = {each.name for each in found}
        self._sample({each.name: each.task_seconds for each in found})
        if self._requested is not None and self._requested[0] == len(found):
            _, more, since = self._requested
            self._seconds[more], self._requested = self.clock() - since, None
        return found

    def cores(self) -> int:
        """The cores of the largest executor."""
        return max((each.cores for each in self.seen()), default=1) or 1

    def lost(self) -> list[str]:
        """The executors that have gone without being released since the last call."""
        lost, self._lost = self._lost, []
        return lost

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        """Requests so many executors; returns at once, and estimates from earlier changes when they will be there."""
        now = [each.name for each in self.seen()]
        if instances < 1:
            return ChangeOutcome(False, f"there cannot be {instances} executors")
        leaving = release_order(*(seconds for _, seconds in (self._samples[0], self._samples[-1])))
        note = self._release(leaving[: len(now) - instances]) if instances < len(now) else ""
        if not self._request(instances):
            return ChangeOutcome(False, "Spark's cluster manager did not take the request")
        more = instances > len(now)
        self._requested = instances, more, self.clock()
        return ChangeOutcome(True, note, self._seconds[more])

    def _sample(self, task_seconds: dict[str, float]) -> None:
        """Remembers how long tasks have run by now; what is older than `RECENT_SECONDS` goes, but for the latest of it."""
        now = self.clock()
        self._samples.append((now, task_seconds))
        while len(self._samples) > 2 and self._samples[1][0] <= now - RECENT_SECONDS:
            self._samples.popleft()

    @property
    def _scala(self) -> Any:
        return self.context._jsc.sc()

    def _alive(self) -> list[str]:
        ids: Any = self._scala.getExecutorIds()
        return [ids.apply(index) for index in range(ids.size())]

    def _request(self, total: int) -> bool:
        # Exact, unlike requestExecutors, which counts from a target of its own that a kill resets.
        jvm: Any = self.context._jvm
        return bool(self._scala.requestTotalExecutors(total, 0, jvm.PythonUtils.toScalaMap({})))

    def _release(self, names: list[str]) -> str:
        self._leaving |= set(names)
        jvm: Any = self.context._jvm
        if self.context.getConf().get("spark.decommission.enabled", "false") == "true":
            # First the target, or the cluster manager would put another in the place of each that leaves.
            self._request(len(self._alive()) - len(names))
            why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("tidegate", jvm.scala.Option.apply(None))
            backend = self._scala.schedulerBackend()
            for name in names:
                backend.decommissionExecutor(name, why, False, False)
            return f"decommissioned {', '.join(names)}"
        self._scala.killExecutors(jvm.PythonUtils.toSeq(names))
        return f"killed {', '.join(names)}"


def release_order(before: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Executors by how long their tasks have run between two samples, the emptiest first; of equals the youngest.

    One that is not in the first sample came later, and all that it did counts.

    >>> release_order({"0": 5.0, "1": 9.0, "2": 3.0}, {"0": 6.0, "1": 14.0, "2": 4.0, "3": 8.0})
    ['2', '0', '1', '3']
    """
    return sorted(now, key=lambda name: (now[name] - before.get(name, 0.0), -_age(name)))


def _age(name: str) -> int:
    """Executors are numbered in the order in which they came."""
    return int(name) if name.isdigit() else 0
