"""Elasticity beside a running query: a thread that polls it, asks controllers, and carries out what they decide."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tidegate.control.controller import Actuator, Decision
from tidegate.control.events import Event, Notice, Noticed, Observer, Poll, Stepped
from tidegate.control.loop import ControlLoop, Record, unrecorded
from tidegate.control.observation import Observation
from tidegate.control.protocols.planner import MovePlanner
from tidegate.control.rules import Rules
from tidegate.drawing import Drawing
from tidegate.elastic.options import Elastic
from tidegate.errors import TidegateError

REMEMBERED = 100
PAGE_SECONDS = 3_600.0
"""How far back a page without a ledger goes."""
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SubqueryStatus:
    """The last observation of a subquery, what the loop settled on, how many changes there were, and the last step."""

    observation: Observation
    decision: Decision | None = None
    changes: int = 0
    step: int = 0


class FaultDetector:
    """Detects overdue requests, lost instances and missing observations of one subquery; reports each once, and its end.

    Call `requested` for each change that was accepted and `observed` for each observation. Pure: times are passed in.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._request: tuple[int, float] | None = None
        self._overdue = self._silent = False
        self._instances: int | None = None
        self._observed_seconds: float | None = None

    def requested(self, decision: Decision, seconds: float) -> None:
        """A change was accepted at this time."""
        self._request, self._overdue = (decision.instances, seconds), False

    def observed(self, observation: Observation, at_seconds: float) -> list[tuple[Notice, str]]:
        """The faults that an observation shows: of requests, and of instances that came or went unrequested.

        ``at_seconds`` is the time of the poll, by the clock that `unobserved` goes by.
        """
        now, seconds, found = observation.instances, observation.time_seconds, list[tuple[Notice, str]]()
        if self._silent and self._observed_seconds is not None:
            found.append((Notice.HEARD, f"observed again after {at_seconds - self._observed_seconds:.0f} s"))
        self._silent, self._observed_seconds = False, at_seconds
        before, self._instances = self._instances, now
        moved = Notice.INSTANCES_LOST if before is not None and now < before else Notice.INSTANCES_CAME
        if self._request is None:
            if before is not None and now != before:
                found.append((moved, f"{before} became {now}, which was not requested"))
            return found
        wanted, since = self._request
        waited = seconds - since
        if now == wanted:
            if self._overdue:
                found.append((Notice.REQUEST_FULFILLED, f"{wanted} are there, {waited:.0f} s after the request"))
            self._request, self._overdue = None, False
        elif before is not None and (now - before) * (wanted - before) < 0:
            found.append((moved, f"{before} became {now}, while {wanted} were requested"))
        elif waited >= self._patience_seconds and not self._overdue:
            self._overdue = True
            why = f"{wanted} were requested {waited:.0f} s ago and there are {now}"
            found.append((Notice.REQUEST_OVERDUE, f"{why}; the query goes on with what there is"))
        return found

    def unobserved(self, seconds: float, why: str) -> list[tuple[Notice, str]]:
        """Nothing was observed until this time, for this reason if one is known."""
        if self._observed_seconds is None:
            self._observed_seconds = seconds
        waited = seconds - self._observed_seconds
        if self._silent or waited < self._patience_seconds:
            return []
        self._silent = True
        text = f"nothing could be observed for {waited:.0f} s{f': {why}' if why else ''}; the query is left as it is"
        return [(Notice.SILENT, text)]


@dataclass(eq=False)
class Scaling:
    """Drives the subqueries of one running query by rules, until the query ends or `stop` is called.

    Whatever happens here, the query is left as it is: a controller that raises is given up and reported in the ledger, a
    poll that fails is repeated after the next period, a ledger that cannot be written is done without. Nothing is undone
    at the end.

    ``elastic`` names the ledger and the ports for metrics and the page, which are opened now and closed when it ends.
    ``graph`` is the query as a picture, for the page.
    ``period_seconds`` is the time between polls; whether each of them is a period is the observer's business. A request
    that takes longer than ``patience_seconds`` is reported, and so is a query that goes unobserved for longer. ``planner``
    says how shards change owners. Times in the ledger are seconds since it began.
    """

    observer: Observer
    actuator: Actuator
    rules: Rules
    period_seconds: float
    elastic: Elastic = Elastic()  # noqa: RUF009 - a frozen value
    name: str = "query"
    patience_seconds: float = 60.0
    record: Record = unrecorded
    clock: Callable[[], float] = time.monotonic
    planner: MovePlanner | None = None
    graph: Drawing | None = None
    metrics_port: int | None = None
    page_url: str | None = None
    failure: BaseException | None = None
    ledger_failure: TidegateError | None = None

    def __post_init__(self) -> None:
        self._loops: dict[str, ControlLoop | None] = {}
        self._detectors: dict[str, FaultDetector] = {}
        self._latest: dict[str, SubqueryStatus] = {}
        self._changes: deque[Decision] = deque(maxlen=REMEMBERED)
        self._notices: deque[Noticed] = deque(maxlen=REMEMBERED)
        self._stopping = threading.Event()
        self._began = self.clock()
        self._thread = threading.Thread(target=self._run, daemon=True, name="tidegate-elastic")
        with ExitStack() as stack:
            self._open_ledger(stack)
            if self.elastic.metrics_port is not None:
                from tidegate.elastic.metrics import MetricsServer

                server = MetricsServer(self.elastic.metrics_port, lambda: self.latest)
                stack.callback(server.close)
                self.metrics_port = server.server_port
                LOG.info("'%s': metrics at http://127.0.0.1:%d/metrics", self.name, server.server_port)
            self._opened = stack.pop_all()

    def _open_ledger(self, stack: ExitStack) -> None:
        """Open the ledger, and the page over it; a page without a ledger has one of its own, which goes with it."""
        path, port = self.elastic.ledger, self.elastic.page
        if path is None and port is None:
            return
        from tidegate.telemetry.ledger import Ledger

        keep_seconds = None
        if path is None:
            folder = stack.enter_context(TemporaryDirectory(prefix="tidegate-page-", ignore_cleanup_errors=True))
            path, keep_seconds = Path(folder) / "page.ledger", PAGE_SECONDS
        ledger = stack.enter_context(Ledger.open(path, self.name, self.graph, keep_seconds))
        self.record = ledger
        if port is not None:
            from tidegate.page.server import PageServer

            page = PageServer(path, port, ledger.run)
            stack.callback(page.close)
            self.page_url = page.url

    def start(self) -> Scaling:
        """Begin to poll."""
        LOG.info("'%s': scaling started", self.name)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop polling; the query goes on as it is. May be called twice, and after the query has ended."""
        self._stopping.set()
        if self._thread.ident is None:
            self._opened.close()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Scaling:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def active(self) -> bool:
        """Whether it still polls."""
        return self._thread.is_alive()

    @property
    def latest(self) -> dict[str, SubqueryStatus]:
        """The last observation and decision for each subquery."""
        return dict(self._latest)

    @property
    def changes(self) -> tuple[Decision, ...]:
        """The last decisions that were carried out, oldest first."""
        return tuple(self._changes)

    @property
    def notices(self) -> tuple[Noticed, ...]:
        """The last unplanned events, oldest first."""
        return tuple(self._notices)

    def _run(self) -> None:
        try:
            while self._poll() and not self._stopping.wait(self.period_seconds):
                pass
            if self._stopping.is_set():
                # A caller that stops us because the query has ended wants that recorded.
                with suppress(Exception):
                    self._end(self.observer.poll())
        except BaseException as error:
            # A bug of ours. The query must not suffer from it.
            self.failure = error
            self._notice(self.name, [(Notice.CONTROLLER_FAILED, f"{type(error).__name__}: {error}")])
        finally:
            LOG.info("'%s': scaling ended", self.name)
            self._opened.close()

    def _poll(self) -> bool:
        """Poll once and act on it; False when there is nothing more to poll."""
        try:
            poll = self.observer.poll()
        except Exception as error:
            self._unobserved(f"{type(error).__name__}: {error}")
            return True
        self._notice(self.name, list(poll.noticed))
        if self._end(poll):
            return False
        if not poll.observations:
            self._unobserved("")
        for subquery, cost in poll.measured:
            if (loop := self._loops.get(subquery)) is not None:
                loop.measured(cost, self.clock() - self._began)
        for observation in poll.observations:
            self._step(observation)
        if poll.flow is not None:
            self._record(poll.flow)
        # A page is looked at for as long as the query runs.
        return not self._loops or any(self._loops.values()) or self.page_url is not None

    def _end(self, poll: Poll) -> bool:
        """Record the end of the query, once; False if it goes on."""
        if poll.ended is None:
            return False
        kind = Notice.QUERY_FAILED if poll.failed else Notice.QUERY_ENDED
        if not any(noticed.notice is kind for noticed in self._notices):
            for subquery in self._loops or [self.name]:
                self._notice(subquery, [(kind, poll.ended)])
        return True

    def _step(self, observation: Observation) -> None:
        subquery = observation.subquery
        if subquery not in self._loops:
            self._loops[subquery] = ControlLoop(self.rules.of(subquery), self.actuator, self._record, self.planner)
        loop = self._loops[subquery]
        if loop is None:
            return
        found = self._detector(subquery).observed(observation, self.clock() - self._began)
        self._notice(subquery, found, observation.time_seconds)
        before = self._latest.get(subquery)
        self._latest[subquery] = replace(before, observation=observation) if before else SubqueryStatus(observation)
        try:
            loop.step(observation)
        except Exception as error:
            self._loops[subquery], self.failure = None, error
            text = f"{type(error).__name__}: {error}; '{subquery}' keeps the {observation.instances} it has"
            self._notice(subquery, [(Notice.CONTROLLER_FAILED, text)], observation.time_seconds)

    def _unobserved(self, why: str) -> None:
        for subquery in self._loops or [self.name]:
            self._notice(subquery, self._detector(subquery).unobserved(self.clock() - self._began, why))

    def _detector(self, subquery: str) -> FaultDetector:
        return self._detectors.setdefault(subquery, FaultDetector(self.patience_seconds))

    def _notice(self, subquery: str, found: list[tuple[Notice, str]], seconds: float | None = None) -> None:
        now = self.clock() - self._began if seconds is None else seconds
        for kind, text in found:
            step = self._latest[subquery].step if subquery in self._latest else -1
            event = Noticed(subquery, step, now, kind, text)
            self._notices.append(event)
            self._record(event)

    def _record(self, event: Event) -> None:
        match event:
            case Stepped(subquery=subquery, decision=decision):
                changes = self._latest[subquery].changes
                if event.result == "acted":
                    self._changes.append(decision)
                    self._detector(subquery).requested(decision, event.time_seconds)
                    changes += 1
                    LOG.info("'%s': to %d instances, because %s", subquery, decision.instances, decision.why)
                self._latest[subquery] = SubqueryStatus(event.observation, decision, changes, event.step)
            case Noticed(notice=notice):
                level = logging.INFO if notice is Notice.QUERY_ENDED else logging.WARNING
                LOG.log(level, "'%s': %s: %s", event.subquery, notice.value, event.text)
        try:
            self.record(event)
        except TidegateError as error:
            if self.ledger_failure is None:
                LOG.warning("%s; scaling goes on without it", error)
            self.ledger_failure = error
