"""What is noticed beside a running query, and what the thread that scales it survives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kit.ledger_loops import Failing, Swinging
from tidegate.control.controller import ChangeOutcome, Controller, Decision, Limits, resize
from tidegate.control.controllers.steady import Steady
from tidegate.control.events import Event, Notice, Noticed, Poll
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule, Rules
from tidegate.elastic.options import Elastic
from tidegate.elastic.scaling import FaultDetector, Scaling
from tidegate.errors import EnvironmentFault, UserError
from tidegate.telemetry.read import notices

SOON = 10.0


def seen(seconds: float, instances: int) -> Observation:
    return Observation("q", seconds, 1.0, instances, processed=1.0, busy=(0.5,) * instances)


def poll(detector: FaultDetector, observation: Observation) -> list[tuple[Notice, str]]:
    return detector.observed(observation, observation.time_seconds)


def kinds(told: Iterable[tuple[Notice, str]]) -> list[Notice]:
    return [notice for notice, _ in told]


def up(instances: int) -> Decision:
    return resize(Observation("q", 0.0, 1.0, 1), instances, "a test")


def test_a_request_that_is_not_fulfilled_is_told_once_and_so_is_its_end() -> None:
    detector = FaultDetector(SOON)
    poll(detector, seen(1, 1))
    detector.requested(up(2), 1.0)
    assert kinds(poll(detector, seen(5, 1))) == []
    late = poll(detector, seen(11, 1))
    assert kinds(late) == [Notice.REQUEST_OVERDUE]
    assert "2 were requested 10 s ago and there are 1" in late[0][1]
    assert kinds(poll(detector, seen(12, 1))) == []
    assert kinds(poll(detector, seen(13, 2))) == [Notice.REQUEST_FULFILLED]
    assert kinds(poll(detector, seen(14, 2))) == []


def test_a_request_that_is_fulfilled_in_time_is_not_worth_telling() -> None:
    detector = FaultDetector(SOON)
    poll(detector, seen(1, 1))
    detector.requested(up(3), 1.0)
    assert [kinds(poll(detector, seen(2 + step, n))) for step, n in enumerate((1, 2, 3, 3))] == [[], [], [], []]


def test_instances_that_go_or_come_by_themselves_are_told() -> None:
    detector = FaultDetector(SOON)
    assert [kinds(poll(detector, seen(step + 1, n))) for step, n in enumerate((2, 1, 2))] == [
        [],
        [Notice.INSTANCES_LOST],
        [Notice.INSTANCES_CAME],
    ]


def test_one_that_dies_while_more_are_asked_for_is_told() -> None:
    detector = FaultDetector(SOON)
    poll(detector, seen(1, 2))
    detector.requested(up(3), 1.0)
    assert kinds(poll(detector, seen(2, 1))) == [Notice.INSTANCES_LOST]


def test_silence_is_told_once_with_its_reason_and_so_is_its_end() -> None:
    detector = FaultDetector(SOON)
    poll(detector, seen(1, 1))
    assert detector.unobserved(10, "refused") == []
    told = detector.unobserved(11, "connection refused")
    assert kinds(told) == [Notice.SILENT]
    assert "10 s: connection refused" in told[0][1]
    assert detector.unobserved(30, "connection refused") == []
    assert kinds(poll(detector, seen(40, 1))) == [Notice.HEARD]


@dataclass
class Script:
    """An observer that gives what it is told to, then the end; and an actuator that obeys."""

    looks: list[Poll | Exception]
    instances: int = 1
    asked: list[int] = field(default_factory=list)
    answer: Callable[[int], ChangeOutcome] = lambda _: ChangeOutcome(True)

    def poll(self) -> Poll:
        if not self.looks:
            return Poll(ended="the script is over")
        following = self.looks.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        self.asked.append(instances)
        return self.answer(instances)


def scaled(script: Script, controller: Controller, record: Callable[[Event], None] = lambda _: None) -> Scaling:
    """Scaling that has run through a script."""
    made = Scaling(
        script,
        script,
        Rules(Rule(controller, Limits(1, 8))),
        period_seconds=0.001,
        patience_seconds=SOON,
        record=record,
    )
    made.start()
    deadline = threading.Event()
    for _ in range(2000):
        if not made.active:
            break
        deadline.wait(0.005)
    made.stop()
    return made


def told(scaling: Scaling) -> list[Notice]:
    return [event.notice for event in scaling.notices]


def test_a_controller_that_raises_leaves_the_query_as_it_is() -> None:
    script = Script([Poll((seen(1, 3),)), Poll((seen(2, 3),))])
    made = scaled(script, Failing())
    assert script.asked == []
    assert told(made) == [Notice.CONTROLLER_FAILED]
    assert "ZeroDivisionError: no rate; 'q' keeps the 3 it has" in made.notices[0].text
    assert isinstance(made.failure, ZeroDivisionError)


def test_looks_that_fail_are_survived() -> None:
    script = Script([ConnectionError("gone"), Poll((seen(1, 1),)), ConnectionError("gone"), Poll((seen(2, 2),))])
    made = scaled(script, Swinging())
    assert script.asked == [2, 1]
    assert told(made) == [Notice.QUERY_ENDED]


def test_an_actuator_that_fails_is_survived() -> None:
    def fail(instances: int) -> ChangeOutcome:
        raise ConnectionError("the master is gone")

    script = Script([Poll((seen(1, 1),)), Poll((seen(2, 1),))], answer=fail)
    made = scaled(script, Swinging())
    assert script.asked == [2, 2]
    assert made.changes == ()
    assert made.failure is None


def test_a_query_that_fails_is_told() -> None:
    made = scaled(Script([Poll((seen(1, 1),)), Poll(ended="out of memory", failed=True)]), Swinging())
    assert told(made) == [Notice.QUERY_FAILED]


def test_a_ledger_that_cannot_be_written_is_done_without() -> None:
    def full(event: Event) -> None:
        raise EnvironmentFault("disk full")

    script = Script([Poll((seen(1, 1),)), Poll((seen(2, 2),))])
    made = scaled(script, Swinging(), full)
    assert script.asked == [2, 1]
    assert str(made.ledger_failure) == "disk full"


def test_notices_are_in_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    script = Script([Poll((seen(1, 2),)), Poll((seen(2, 1),)), Poll((seen(3, 3),))])
    rules = Rules(Rule(Steady(), Limits(1, 8), dry_run=True))
    made = Scaling(script, script, rules, 0.001, Elastic(ledger=path), "a query")
    made.start()
    made._thread.join(10)
    assert [(each["kind"], each["subquery"], each["time_seconds"]) for each in notices(path)][:2] == [
        ("instances lost", "q", 2.0),
        ("instances came", "q", 3.0),
    ]
    assert notices(path)[-1]["kind"] == "query ended"


def test_stopping_before_the_start_closes_what_was_opened(tmp_path: Path) -> None:
    script = Script([])
    made = Scaling(script, script, Rules(Rule(Steady())), 1.0, Elastic(ledger=tmp_path / "l"))
    made.stop()
    assert not made.active


def test_what_may_be_given_for_elastic(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[default]\ncontroller = "saso"\nmost = 5\n')
    assert Elastic.of(None) is None
    assert Elastic.of(False) is None
    of = [Elastic.of(given) for given in (True, "saso", Steady(), str(tmp_path / "rules.toml"))]
    rules = [each.resolved(7, Steady(target_seconds=0.5)).default for each in of if each is not None]
    assert [(rule.controller.name, rule.limits.most) for rule in rules] == [
        ("steady", 7),
        ("saso", 7),
        ("steady", 7),
        ("saso", 5),
    ]
    assert rules[0].controller == Steady(target_seconds=0.5)
    assert Elastic("steady").resolved(7, Steady(target_seconds=0.5)).default.controller == Steady(target_seconds=0.5)
    assert rules[2].controller == Steady(), "what is given as a value is taken as it is"
    dry = Elastic("saso", dry_run=True, shadows=("ds2",)).resolved(4, Steady()).default
    assert dry.dry_run
    assert [shadow.name for shadow in dry.shadows] == ["ds2"]


def test_what_may_not_be_given_for_elastic() -> None:
    with pytest.raises(UserError, match=r"no controller and no rules file 'sasso'; choose one of .*'saso'"):
        Elastic("sasso").resolved(4, Steady())
    with pytest.raises(UserError, match="is no controller"):
        Elastic(7).resolved(4, Steady())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="period_seconds"):
        Elastic(period_seconds=0.0)
    with pytest.raises(UserError, match="least"):
        Elastic(least=3, most=2)


def test_a_notice_is_an_event_of_its_own() -> None:
    noted: list[Event] = []
    scaled(Script([Poll((seen(1, 2),)), Poll((seen(2, 1),))]), Steady(), noted.append)
    assert [event.step for event in noted if isinstance(event, Noticed)] == [0, 1]


def test_decisions_and_notices_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tidegate"):
        scaled(Script([Poll((seen(1, 1),)), Poll(ended="out of memory", failed=True)]), Swinging())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "'query': scaling started"),
        ("INFO", "'q': to 2 instances, because busy 50%"),
        ("WARNING", "'q': query failed: out of memory"),
        ("INFO", "'query': scaling ended"),
    ]
