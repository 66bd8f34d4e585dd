"""Shards that move between cells by what cells report: what is observed of a step, what is sent, what a move cost."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import tidegate as tg
from tests.kit.observed import present
from tidegate.compile.compiler import compile_query
from tidegate.control.controller import ChangeOutcome, Limits
from tidegate.control.controllers.fixed import Fixed
from tidegate.control.events import Poll
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule
from tidegate.errors import UnsupportedError
from tidegate.runtime.spark.batch_reports import Batch, CellReport
from tidegate.runtime.spark.control import SetMapping, SteeredStep, Steering, parse
from tidegate.runtime.spark.observed import OBSERVED
from tidegate.runtime.spark.stages import steered_steps
from tidegate.runtime.spark.step_balance import BALANCER_HERE, PLANNER_HERE, StepBalance, planner_of
from tidegate.state.epochs import SHARDS_OF_A_STEP

STEP = "1:counts"


def report(cell: int, loads: dict[int, int], busy: float, **more: Any) -> CellReport:
    shards = SHARDS_OF_A_STEP // 2
    return CellReport(1, busy, STEP, cell, shards, sum(loads.values()), 512 * 10, loads, **more)


def batch(number: int, *cells: CellReport, seconds: float = 1.0) -> Batch:
    return Batch(number, float(number), seconds, 100, 0.0, None, cells)


@dataclass
class Observed:
    """A query whose periods of two seconds are told beforehand."""

    periods: list[tuple[Batch, ...]]
    period_batches: tuple[Batch, ...] = ()
    now: float = 0.0
    period_seconds: float = 2.0
    name: str = "query"

    def clock(self) -> float:
        return self.now

    def poll(self) -> Poll:
        self.period_batches = self.periods.pop(0)
        self.now = self.period_batches[-1].ended_at
        return Poll((Observation("query", self.now, 2.0, 1, processed=50.0),))


@dataclass
class Sizing:
    calls: list[tuple[str, int]] = field(default_factory=list)

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        self.calls.append((subquery, instances))
        return ChangeOutcome(True)


def sent(folder: Path) -> list[SetMapping]:
    told = [json.loads(path.read_text())["message"] for path in sorted(folder.glob("[!._]*"))]
    return [message for text in told if isinstance(message := parse(text), SetMapping)]


SKEWED = (report(0, {0: 60, 1: 50, 2: 10}, 0.9), report(1, {700: 20}, 0.2))


def test_a_step_is_observed_by_its_cells(tmp_path: Path) -> None:
    observer = Observed([(batch(1, *SKEWED), batch(2, *SKEWED))])
    (seen,) = StepBalance(observer, Steering(tmp_path)).poll().observations  # type: ignore[arg-type]
    assert (seen.subquery, seen.instances, seen.processed) == (STEP, 2, 140.0)
    assert seen.busy == (pytest.approx(0.9), pytest.approx(0.2))
    assert seen.shard_loads is not None
    assert seen.mapping is not None
    assert (seen.shard_loads[0], seen.shard_loads[2], seen.shard_loads[700]) == (60.0, 10.0, 20.0)
    assert (seen.mapping[0], seen.mapping[700]) == (0, 1)
    assert seen.shard_state_bytes is not None
    assert present(seen) <= set(OBSERVED)
    assert seen.shard_state_bytes[0] == 10, "the bytes of a cell are those of its shards alike"


def test_a_step_of_one_cell_is_left_alone_and_the_size_of_the_query_goes_on(tmp_path: Path) -> None:
    one = CellReport(1, 0.9, STEP, 0, SHARDS_OF_A_STEP, 100, 0, {})
    observer, sizing = Observed([(batch(1, one),)]), Sizing()
    balance = StepBalance(observer, Steering(tmp_path), sizing)  # type: ignore[arg-type]
    assert [each.subquery for each in balance.poll().observations] == ["query"]
    assert balance.reconfigure("query", 3, None).accepted
    assert sizing.calls == [("query", 3)]


def test_a_loop_moves_shards_and_what_that_cost_is_told_when_it_is_in_force(tmp_path: Path) -> None:
    """Cell 0 has 0.9 of work, cell 1 0.2: shard 1, 0.375 of it, is nearest to half of what lies between."""
    adopting = report(1, {1: 50, 700: 20}, 0.55, adopted={"shards": 1, "chunks": 1, "bytes": 10, "read_bytes": 640})
    quiet = report(0, {0: 60, 2: 10}, 0.55)
    skewed = [tuple(batch(number, *SKEWED) for number in numbers) for numbers in ((1, 2), (3, 4))]
    observer = Observed([*skewed, (batch(5, quiet, adopting, seconds=1.5), batch(7, quiet))])
    balance = StepBalance(observer, Steering(tmp_path))  # type: ignore[arg-type]
    rule = Rule(Fixed(), Limits(1, 8), balancer=BALANCER_HERE)
    loop = ControlLoop(rule, balance, planner=PLANNER_HERE)
    for _ in range(2):
        for seen in balance.poll().observations:
            decision = loop.step(seen)
    (message,) = sent(tmp_path)
    assert decision.mapping is not None
    assert message.step == STEP
    assert set(message.moves.values()) == {1}
    assert all(decision.mapping[shard] == 1 for shard in message.moves)
    assert set(message.moves) <= {0, 1, 2}
    (told,) = balance.poll().measured
    assert told[0] == STEP
    assert (told[1].bytes_read, told[1].delay_seconds) == (640, pytest.approx(0.5))
    assert told[1].in_force_seconds == pytest.approx(1.5), "asked for at 5 s, in force in the batch that ends at 6.5 s"
    loop.measured(told[1], 5.0)


def test_cells_that_the_query_does_not_have_are_refused(tmp_path: Path) -> None:
    Steering(tmp_path).describe([SteeredStep(STEP, "counts", 2, ("adopt",))])
    observer = Observed([(batch(1, *SKEWED),)])
    balance = StepBalance(observer, Steering(tmp_path))  # type: ignore[arg-type]
    balance.poll()
    outcome = balance.reconfigure(STEP, 2, (5, *([0] * (SHARDS_OF_A_STEP - 1))))
    assert not outcome.accepted
    assert "was built for cells 0 to 1" in outcome.note
    assert not balance.reconfigure("other", 2, None).accepted


def test_shards_cannot_be_moved_without_the_control_folder() -> None:
    with pytest.raises(UnsupportedError, match="balance=True: give control="):
        tg.autoscale(object(), balance=True)


def test_with_nothing_to_size_only_steps_are_observed(tmp_path: Path) -> None:
    observer = Observed([(batch(1, *SKEWED),)])
    observer.period_batches = observer.periods[0]
    balance = StepBalance(observer, Steering(tmp_path))  # type: ignore[arg-type]
    assert balance.poll().observations == (), "the same batches tell nothing new"


def test_windows_that_are_recreated_are_measured_when_the_last_old_one_is_closed(tmp_path: Path) -> None:
    """Of 70 rows ten went to two cells, in each of two batches; what was asked for at 3 s is in force at 7 s."""
    steps = [SteeredStep(STEP, "counts", 2, ("adopt", "window recreation"), 20.0, 20.0)]
    Steering(tmp_path).describe(steps)
    both = replace(report(0, {0: 40}, 0.5), hands_over=True), replace(report(1, {1: 20}, 0.5), rows=30, hands_over=True)
    done = report(0, {0: 60}, 0.5), report(1, {1: 50}, 0.5)
    observer = Observed(
        [(batch(1, *SKEWED), batch(2, *SKEWED)), (batch(4, *both), batch(5, *both)), (batch(6, *done),)]
    )
    balance = StepBalance(observer, Steering(tmp_path))  # type: ignore[arg-type]
    balance.poll()
    mapping = np.zeros(SHARDS_OF_A_STEP, np.int64)
    mapping[512:] = 1
    mapping[1] = 1
    assert balance.move(STEP, tuple(mapping.tolist()), "window recreation").accepted
    (message,) = sent(tmp_path)
    assert (message.protocol, message.moves) == ("window recreation", {1: 1})
    assert balance.poll().measured == ()
    ((step, cost),) = balance.poll().measured
    assert (step, cost.in_force_seconds, cost.bytes_read, cost.tuples_doubled) == (STEP, pytest.approx(4.0), 0, 20)
    (place,) = planner_of(Steering(tmp_path).steps()).places
    assert (place[0], place[1].window_seconds, place[1].shared_files) == (STEP, 20.0, True)


def test_a_step_says_how_long_its_windows_are() -> None:
    stream = tg.stream({"ts": pa.timestamp("us"), "k": pa.int64()}, time="ts")
    keyed = stream.key_by("k").window("1 minute", every="20 seconds", lateness="5 seconds").aggregate(n=tg.count())
    pairs = stream.join(stream, on="k", within="3 seconds")
    once = stream.dedup("k", within="1 second")
    told = [steered_steps(compile_query(query.node, cells=2))[0] for query in (keyed, pairs, once)]
    assert [(step.window_seconds, step.advance_seconds) for step in told] == [
        (65.0, 20.0),
        (pytest.approx(3.0, abs=1e-5), pytest.approx(0.0, abs=1e-5)),
        (None, None),
    ]
