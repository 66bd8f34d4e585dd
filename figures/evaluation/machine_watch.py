"""What a machine did while a command ran: its load average, and the processor time that others took."""

from __future__ import annotations

import os
import resource
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import psutil

LOOK_SECONDS = 0.5
MOST_OTHERS = 0.1
"""The share of all cores that other processes may take before a figure counts as taken on a busy machine."""


@dataclass(frozen=True, slots=True)
class Business:
    """The cores, the load average before a command and at its end, and the share of all cores that others took meanwhile.

    The share decides: the load before may be that of the entry before.
    """

    cores: int
    load_before: float
    load_after: float
    others_share: float

    @property
    def shared(self) -> bool:
        """Whether other work was running."""
        return self.others_share > MOST_OTHERS

    def __str__(self) -> str:
        load = f"load average {self.load_before:.1f} before, {self.load_after:.1f} after, {self.cores} cores"
        if not self.shared:
            return f"other processes took {self.others_share:.0%} of the cores ({load})"
        return f"**other work was running** and took {self.others_share:.0%} of the cores ({load})"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class MachineWatch:
    """Samples a process, all that it starts, and the whole machine, from `start` to `stop`.

    What processes did between the last look and their end is known of those that were waited for.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._spent: dict[int, float] = {}
        self._load_before = os.getloadavg()[0]
        self._busy_before, self._all_before = _machine_seconds()
        self._waited_for_before = _waited_for_seconds()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="machine-watch", daemon=True)

    def start(self) -> MachineWatch:
        self._thread.start()
        return self

    def stop(self) -> Business:
        """End it; what it saw."""
        self._ended.set()
        self._thread.join()
        busy, total = _machine_seconds()
        ours = max(sum(self._spent.values()), _waited_for_seconds() - self._waited_for_before)
        others = busy - self._busy_before - ours
        share = others / max(total - self._all_before, 1e-9)
        return Business(os.cpu_count() or 1, self._load_before, os.getloadavg()[0], min(max(share, 0.0), 1.0))

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for process in session_processes(self._pid):
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    self._spent[process.pid] = times.user + times.system


def session_processes(pid: int) -> list[psutil.Process]:
    """The processes of a session: all that its first process has started, also where their parents have gone."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == pid:
                found.append(process)
    return found


def _waited_for_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _machine_seconds() -> tuple[float, float]:
    """The seconds that all cores were busy since the machine was started, and those that there were."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0), sum(times)
