"""Instances in cells before executors: which sizes there are, what is told to whom, and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tidegate.control.controller import ChangeOutcome, Limits
from tidegate.control.controllers.steady import Steady
from tidegate.control.events import Poll
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule
from tidegate.errors import UserError
from tidegate.runtime.spark.batch_reports import Batch, CellReport
from tidegate.runtime.spark.control import SetInstances, SteeredStep, Steering, parse
from tidegate.runtime.spark.executors import Executor
from tidegate.runtime.spark.observe import ExecutorSample, beside_tasks, busy
from tidegate.runtime.spark.scaling import CellScaling, Cluster, cluster_sizes, fair_instances


@pytest.mark.parametrize(
    ("cells", "executors", "cores", "instances"),
    [
        (1, 1, 4, 4),
        (2, 1, 4, 2),
        (3, 1, 4, 1),  # two each would be six on four cores
        (3, 2, 4, 2),  # the executor with two cells sets it
        (4, 4, 1, 1),
        (8, 2, 2, 1),  # cells run in turns: never less than one
        (1, 3, 2, 2),  # a cell runs in one place, whatever else there is
    ],
)
def test_cells_share_the_cores_of_their_executor(cells: int, executors: int, cores: int, instances: int) -> None:
    assert fair_instances(cells, executors, cores) == instances


def test_sizes_grow_in_cells_first_and_by_executors_then() -> None:
    made = [(each.executors, each.instances) for each in cluster_sizes(cells=2, cores=4, least=1, most=2)]
    assert made == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert [each.cores for each in cluster_sizes(cells=2, cores=4, least=1, most=2)] == [2, 4, 6, 8]


def test_executors_that_bring_no_more_cores_to_cells_are_no_size() -> None:
    assert [
        (each.executors, each.instances, each.cores) for each in cluster_sizes(cells=4, cores=2, least=1, most=4)
    ] == [
        (1, 1, 2),
        (2, 1, 4),
        (4, 2, 8),
    ]


def test_limits_may_name_the_sizes_there_are() -> None:
    with pytest.raises(UserError, match="must rise from least"):
        Limits(1, 8, (1, 4, 2, 8))
    with pytest.raises(UserError, match="must rise from least"):
        Limits(1, 8, (2, 4, 8))


class Taker:
    """An actuator that does what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        self.asked.append(instances)
        return ChangeOutcome(True)


@pytest.mark.parametrize(("demand", "goes_to"), [(100.0, []), (250.0, [4]), (390.0, [4]), (450.0, [8])])
def test_a_controller_is_held_to_the_sizes_there_are(demand: float, goes_to: list[int]) -> None:
    taker = Taker()
    loop = ControlLoop(Rule(Steady(target_seconds=5.0), Limits(2, 8, (2, 4, 8))), taker)
    for step in (1, 2, 3):
        # An instance completes 100 a second; two are there until others were asked for.
        now = taker.asked[-1] if taker.asked else 2
        done = min(demand, 100.0 * now)
        loop.step(
            Observation(
                "q", 5.0 * step, 5.0, now, offered=demand, demand=demand, processed=done, busy=(done / 100 / now,) * now
            )
        )
    assert taker.asked == goes_to


class OnFourCores:
    """So many executors of four cores, as observer and as executors."""

    period_seconds = 2.0

    def __init__(self, executors: int) -> None:
        self.executors, self.requested = executors, list[int]()
        self.cell_reports: tuple[CellReport, ...] = (CellReport(1, 0.5), CellReport(1, 0.5))
        self.period_batches: tuple[Batch, ...] = ()
        self.next_batches: tuple[Batch, ...] = ()
        self.busy = (0.25,)

    def seen(self) -> tuple[Executor, ...]:
        return tuple(Executor(str(each), 4, 0.0) for each in range(self.executors))

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        self.requested.append(instances)
        return ChangeOutcome(True, "requested", 5.0)

    def poll(self) -> Poll:
        self.period_batches = self.next_batches
        return Poll((Observation("q", 1.0, 1.0, self.executors, busy=self.busy * self.executors),))


def scaling(cluster: Any) -> tuple[CellScaling, list[int]]:
    sent: list[int] = []
    made = CellScaling(
        cluster,
        cluster,
        Path("control"),
        2,
        4,
        cluster_sizes(2, 4, 1, 2),
        send=lambda folder, number: sent.append(number),
    )
    return made, sent


def test_more_instances_are_told_to_cells_at_once_where_there_are_cores_for_them() -> None:
    cluster = OnFourCores(1)
    made, sent = scaling(cluster)
    made.poll()
    outcome = made.reconfigure("q", 4, None)
    assert (outcome.accepted, outcome.note, outcome.seconds) == (True, "1 executor, 2 in each cell", 2.0)
    assert (sent, cluster.requested) == ([2], []), "up before out"
    made.poll()
    assert sent == [2], "once"


def test_where_executors_are_to_come_cells_are_told_when_they_are_there() -> None:
    cluster = OnFourCores(1)
    made, sent = scaling(cluster)
    made.poll()
    made.reconfigure("q", 8, None)
    assert (cluster.requested, sent) == ([2], [2]), "as many as the cores of one executor bear"
    made.poll()
    assert sent == [2]
    cluster.executors = 2
    made.poll()
    assert sent == [2, 4]
    cluster.executors = 1
    made.poll()
    assert sent == [2, 4, 2], "an executor is lost, and its cells share the cores of the other"


def test_where_executors_go_cells_are_told_before() -> None:
    cluster = OnFourCores(2)
    cluster.cell_reports = (CellReport(4, 0.5), CellReport(4, 0.5))
    made, sent = scaling(cluster)
    made.poll()
    outcome = made.reconfigure("q", 2, None)
    assert (cluster.requested, sent) == ([1], [1])
    assert outcome.note == "1 executor, 1 in each cell; requested"
    assert outcome.seconds == 5.0


def test_a_number_of_cores_that_is_no_size_is_refused() -> None:
    made, sent = scaling(OnFourCores(1))
    outcome = made.reconfigure("q", 5, None)
    assert not outcome.accepted
    assert "no size uses 5 cores" in outcome.note
    assert not sent


def test_what_is_observed_is_told_in_cores() -> None:
    cluster = OnFourCores(1)
    made, _ = scaling(cluster)
    (seen,) = made.poll().observations
    assert (seen.instances, seen.busy) == (2, (0.5, 0.5)), "a quarter of four cores is half of the two in use"
    cluster.cell_reports = (CellReport(2, 0.5), CellReport(2, 0.5))
    (seen,) = made.poll().observations
    assert (seen.instances, seen.busy) == (4, (0.25,) * 4)
    assert made.rules(Rule(Steady(), Limits(1, 2))).default.limits == Limits(2, 8, (2, 4, 6, 8))


def test_instances_in_cells_work_beside_their_task() -> None:
    told = Batch(1, 0.0, 1.0, 10, 0.0, None, (CellReport(4, 2.0), CellReport(1, 0.5)))
    assert beside_tasks([told]) == 1.5, "two seconds of four took half a second of the task"
    start, end = ExecutorSample(0.0, (Executor("0", 4, 0.0),)), ExecutorSample(1.0, (Executor("0", 4, 1.0),))
    assert busy(start, end, None, beside_tasks([told])) == (0.625,)


def test_a_control_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    observer: Any = None
    with pytest.raises(UserError, match="is no folder"):
        Cluster("local").cells(Rule(Steady(), Limits(1, 2)), observer, tmp_path / "nowhere")


def test_the_instances_of_a_step_are_shared_out_to_its_cells(tmp_path: Path) -> None:
    """Cell 0 has four times the work of cell 1."""
    Steering(tmp_path).describe([SteeredStep("1:pairs", "pairs", 2, ("adopt",))])
    cluster = OnFourCores(1)
    made, _ = scaling(cluster)
    made.control = tmp_path
    rules = made.rules(Rule(Steady(), Limits(1, 2)))
    loop = ControlLoop(rules.of("1:pairs, instances"), made)
    assert rules.of("1:pairs, instances").controller.name == "share instances"
    worked = tuple(CellReport(2, busy, "1:pairs", cell, 512, 100) for cell, busy in enumerate((1.6, 0.4)))
    cluster.cell_reports = worked
    made.reconfigure("q", 4, None)
    cluster.next_batches = (Batch(1, 0.0, 1.0, 200, 0.0, None, worked),)
    whole, step = made.poll().observations
    assert (whole.subquery, step.subquery, step.instances, step.cores) == ("q", "1:pairs, instances", 2, 4)
    assert loop.step(step).mapping == (0, 0, 0, 1)
    (message,) = [parse(json.loads(path.read_text())["message"]) for path in tmp_path.glob("[!._]*")]
    assert isinstance(message, SetInstances)
    assert (message.step, message.instances) == ("1:pairs", {0: 3, 1: 1})


def test_shares_fit_wherever_spark_puts_the_cells(tmp_path: Path) -> None:
    """Four cells on two executors of four cores: those of the busiest executor have four at most, if the others have one."""
    cluster = OnFourCores(2)
    made = CellScaling(cluster, cluster, tmp_path, 4, 4, cluster_sizes(4, 4, 1, 2))  # type: ignore[arg-type]
    made._instances = 2
    assert (made._cores_of_a_step(2), made._cores_of_a_step(1)) == (6, 4)


def test_what_was_shared_out_is_taken_back_when_an_executor_is_lost(tmp_path: Path) -> None:
    cluster = OnFourCores(2)
    made, uniform = scaling(cluster)
    made.control = tmp_path
    made.reconfigure("q", 4, None)
    cluster.cell_reports = (CellReport(2, 0.5), CellReport(2, 0.5))
    made.poll()
    before = list(uniform)
    assert made.reconfigure("1:pairs, instances", 2, (0, 0, 0, 1)).accepted
    made.poll()
    assert uniform == before
    cluster.executors = 1
    made.poll()
    assert uniform == [*before, 2]
