"""Elasticity beside a running query: a thread that observes it, has controllers decide, and carries that out."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from tidegate.control.controller import Actuator
from tidegate.control.decision import Decision
from tidegate.control.events import Acted, Event, Notice, Noticed, Observed, Stepped
from tidegate.control.look import Look, Observer
from tidegate.control.loop import ControlLoop, Record, unrecorded
from tidegate.control.observation import Observation
from tidegate.control.rules import Rules
from tidegate.elastic.faults import FaultWatch, Patience, Told
from tidegate.elastic.latest import Latest
from tidegate.errors import TidegateError

REMEMBERED = 100


class Scaling:
    """Drives the subqueries of one running query by rules, until the query ends or `stop` is called.

    Whatever happens here, the query is left as it is: a controller that raises is given up and told in the ledger, a look
    that fails is tried again after the next period, a ledger that cannot be written is done without. Nothing is ever
    undone at the end.

    Times in the ledger are seconds since it began. ``closing`` is called at the end, whatever ended it.
    """

    def __init__(
        self,
        observer: Observer,
        actuator: Actuator,
        rules: Rules,
        *,
        period_seconds: float,
        patience: Patience | None = None,
        record: Record = unrecorded,
        clock: Callable[[], float] = time.monotonic,
        name: str = "query",
    ) -> None:
        self._observer, self._actuator, self._rules = observer, actuator, rules
        self._period_seconds, self._patience = period_seconds, patience or Patience()
        self._write, self._clock, self._name = record, clock, name
        self._loops: dict[str, ControlLoop | None] = {}
        self._watches: dict[str, FaultWatch] = {}
        self._steps: dict[str, int] = {}
        self._latest: dict[str, Latest] = {}
        self._changes: deque[Decision] = deque(maxlen=REMEMBERED)
        self._notices: deque[Noticed] = deque(maxlen=REMEMBERED)
        self._stopping = threading.Event()
        self._began = clock()
        self._thread = threading.Thread(target=self._run, daemon=True, name="tidegate-elastic")
        self.metrics_port: int | None = None
        self.closing: Callable[[], None] = lambda: None
        self.failure: BaseException | None = None
        self.ledger_failure: TidegateError | None = None

    def start(self) -> Scaling:
        """Begin to look."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop looking; the query goes on as it is. May be called twice, and after the query has ended."""
        self._stopping.set()
        if self._thread.ident is None:
            self.closing()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Scaling:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def active(self) -> bool:
        """Whether it still looks."""
        return self._thread.is_alive()

    @property
    def latest(self) -> dict[str, Latest]:
        """The last observation and decision for each subquery."""
        return dict(self._latest)

    @property
    def changes(self) -> tuple[Decision, ...]:
        """The last decisions that were carried out, oldest first."""
        return tuple(self._changes)

    @property
    def notices(self) -> tuple[Noticed, ...]:
        """The last things that nobody decided, oldest first."""
        return tuple(self._notices)

    def _run(self) -> None:
        try:
            while self._turn() and not self._stopping.wait(self._period_seconds):
                pass
            if self._stopping.is_set():
                # Who stops us because the query has ended wants that to be told.
                self._tell_end()
        except BaseException as error:
            # Our own mistake. The query must not suffer from it.
            self.failure = error
            self._notice(self._name, [(Notice.CONTROLLER_FAILED, f"{type(error).__name__}: {error}")])
        finally:
            self.closing()

    def _turn(self) -> bool:
        """Look once and act on it; False when there is nothing more to look at."""
        try:
            look = self._observer.look()
        except Exception as error:
            self._unheard(f"{type(error).__name__}: {error}")
            return True
        if look.noticed:
            self._notice(self._name, list(look.noticed))
        if look.ended is not None:
            self._end(look)
            return False
        if not look.observations:
            self._unheard("")
        for observation in look.observations:
            self._step(observation)
        return not self._loops or any(loop is not None for loop in self._loops.values())

    def _tell_end(self) -> None:
        with suppress(Exception):
            look = self._observer.look()
            if look.ended is not None:
                self._end(look)

    def _end(self, look: Look) -> None:
        kind = Notice.QUERY_FAILED if look.failed else Notice.QUERY_ENDED
        if not any(noticed.notice is kind for noticed in self._notices):
            for subquery in self._loops or [self._name]:
                self._notice(subquery, [(kind, look.ended or "")])

    def _step(self, observation: Observation) -> None:
        subquery = observation.subquery
        if subquery not in self._loops:
            self._watches.setdefault(subquery, FaultWatch(self._patience))
            self._loops[subquery] = self._rules.of(subquery).loop(self._actuator, self._record)
        loop = self._loops[subquery]
        if loop is None:
            return
        told = self._watches[subquery].seen(observation, self._clock() - self._began)
        self._notice(subquery, told, observation.time_seconds)
        try:
            loop.step(observation)
        except Exception as error:
            self._loops[subquery], self.failure = None, error
            text = f"{type(error).__name__}: {error}; '{subquery}' keeps the {observation.instances} it has"
            self._notice(subquery, [(Notice.CONTROLLER_FAILED, text)], observation.time_seconds)

    def _unheard(self, why: str) -> None:
        for subquery in self._loops or [self._name]:
            watch = self._watches.setdefault(subquery, FaultWatch(self._patience))
            self._notice(subquery, watch.unheard(self._clock() - self._began, why))

    def _notice(self, subquery: str, told: Told, seconds: float | None = None) -> None:
        now = self._clock() - self._began if seconds is None else seconds
        for kind, text in told:
            event = Noticed(subquery, self._steps.get(subquery, -1), now, kind, text)
            self._notices.append(event)
            self._record(event)

    def _record(self, event: Event) -> None:
        match event:
            case Observed():
                self._steps[event.subquery] = event.step
                before = self._latest.get(event.subquery)
                self._latest[event.subquery] = Latest(event.observation, None, before.changes if before else 0)
            case Acted():
                self._changes.append(event.decision)
                self._watches[event.subquery].asked(event.decision, event.time_seconds)
                latest = self._latest[event.subquery]
                self._latest[event.subquery] = replace(latest, changes=latest.changes + 1)
            case Stepped():
                self._latest[event.subquery] = replace(self._latest[event.subquery], decision=event.decision)
        try:
            self._write(event)
        except TidegateError as error:
            self.ledger_failure = error
