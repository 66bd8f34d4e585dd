"""A tidegate query on Spark that grows in its cells first and by executors then, as one observer and one actuator.

To the controller the query has as many instances as cores it can keep busy; `rungs.py` says which numbers there are and what
each of them is. What a cell is told comes with the control stream and is in force from the batch that reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.control.controller import ChangeOutcome, Limits
from tidegate.control.events import Poll
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule, Rules
from tidegate.errors import UserError
from tidegate.runtime.spark.control import send_instances
from tidegate.runtime.spark.executors import Executors
from tidegate.runtime.spark.observe import SparkObserver
from tidegate.runtime.spark.rungs import Rung, cores_used, fair_instances


@dataclass(slots=True, eq=False)
class CellScaling:
    """Looks at a query in cores, and gives it rungs; never more instances in a cell than its executor has cores for.

    So when executors come, cells are told of more instances only once they are there, and when one is lost, of fewer.
    """

    observer: SparkObserver
    executors: Executors
    control: Path
    cells: int
    cores: int
    rungs: tuple[Rung, ...]
    send: Callable[[Path, int], None] = send_instances
    _rung: Rung | None = None
    _instances: int = 1
    _told: int | None = None

    def poll(self) -> Poll:
        """What the observer sees, in cores."""
        poll = self.observer.poll()
        told = self.observer.cells_told()
        if told:
            self._instances = max(each.instances for each in told)
        self._tell_cells(len(self.executors.seen()))
        return replace(poll, observations=tuple(self._in_cores(each) for each in poll.observations))

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        """Have the rung that uses so many cores: fewer instances at once, more when the executors for them are there."""
        rung = next((each for each in self.rungs if each.cores == instances), None)
        if rung is None:
            return ChangeOutcome(
                False, f"no size uses {instances} cores; there are {', '.join(map(_words, self.rungs))}"
            )
        now = len(self.executors.seen())
        # What cells are told is in force with their next batch; a period ends with one.
        outcome = ChangeOutcome(True, seconds=self.observer.period_seconds)
        if rung.executors != now:
            outcome = self.executors.reconfigure(subquery, rung.executors, None)
        if outcome.accepted:
            self._rung = rung
            self._tell_cells(min(now, rung.executors))
            outcome = replace(outcome, note="; ".join(filter(None, (_words(rung), outcome.note))))
        return outcome

    def rules(self, rule: Rule) -> Rules:
        """A rule over executors as one over the cores of rungs."""
        sizes = tuple(each.cores for each in self.rungs)
        return Rules(replace(rule, limits=Limits(sizes[0], sizes[-1], sizes)))

    def _tell_cells(self, executors: int) -> None:
        """Tell cells how many instances to run, if that is another number than they know of."""
        if self._rung is None or executors < 1:
            return
        wanted = min(self._rung.instances, fair_instances(self.cells, executors, self.cores))
        if wanted != (self._instances if self._told is None else self._told):
            self.send(self.control, wanted)
        self._told = wanted

    def _in_cores(self, seen: Observation) -> Observation:
        used = max(cores_used(self.cells, seen.instances, self._instances, self.cores), 1)
        busy = None
        if seen.busy is not None:
            # A share of an executor is of all its cores.
            busy = (min(sum(seen.busy) * self.cores / used, 1.0),) * used
        return replace(seen, instances=used, busy=busy)


def checked_control(control: str | Path) -> Path:
    """The folder of a control stream; refused where there is none, as nobody would read what is put there."""
    folder = Path(control)
    if not folder.is_dir():
        raise UserError(
            f"autoscale: control={str(control)!r} is no folder; give the one that to_spark(control=...) was given"
        )
    return folder


def _words(rung: Rung) -> str:
    executors = "executor" if rung.executors == 1 else "executors"
    return f"{rung.executors} {executors}, {rung.instances} in each cell"
