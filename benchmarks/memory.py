"""Peak memory of an engine: the resident set of its process and all descendants, sampled while it runs."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

import psutil

INTERVAL_SECONDS = 0.05
SAMPLES_PER_SCAN = 10  # looking for new processes costs a hundred times what reading a known one does
MEASURE = "rss"  # proportional shares would take 30 ms for each sample of a 3 GB JVM, on the cores that are measured


class PeakMemory:
    """A context in which a thread samples the process tree of `pid`; `peak_mb` is the largest sum seen.

    Pages that forked workers share are counted once for each, so the sum is an upper bound.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True)
        self._peak_bytes = 0

    @property
    def peak_mb(self) -> float:
        return self._peak_bytes / 1e6

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample_until_stopped(self) -> None:
        processes: list[psutil.Process] = []
        samples = 0
        while True:
            if samples % SAMPLES_PER_SCAN == 0:
                processes = _tree(self._root)
            samples += 1
            self._peak_bytes = max(self._peak_bytes, sum(_resident_bytes(process) for process in processes))
            if self._stop.wait(INTERVAL_SECONDS):
                return


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *(process for process in root.children(recursive=True) if not _is_java_spawning(process))]
    except psutil.NoSuchProcess:
        return []


def _is_java_spawning(process: psutil.Process) -> bool:
    """Whether this is a command that a JVM is about to start and that still is, and shares all memory of, the JVM.

    Spark's checkpoints start such commands often enough to be caught in the act, which would count the heap twice.
    """
    try:
        parent = process.parent()
        executable = Path(process.exe())
        return executable.name == "java" and parent is not None and Path(parent.exe()) == executable
    except psutil.Error:
        return False


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
