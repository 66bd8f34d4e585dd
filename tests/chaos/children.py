"""Processes that may be killed at any moment, and must not hang."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

SILENT_SECONDS = 240.0
"""A child that says nothing for so long hangs."""


class Hang(AssertionError):
    """A child neither went on nor ended; the text says where its threads were."""


class Child:
    """A Python module in a process of its own, which prints a line whenever it has come further.

    What it writes to standard error goes to ``log``. Its threads are dumped there if it hangs.
    """

    def __init__(self, module: str, words: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        self.lines: list[str] = []
        self._new: queue.Queue[str | None] = queue.Queue()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", module, *words],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="chaos reader", daemon=True)
        self._reader.start()

    def family(self) -> list[psutil.Process]:
        """The process and all that it started, the process itself first."""
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs, negative if a signal ended it."""
        return self._process.poll()

    def next_line(self, until: Callable[[], bool] = lambda: False) -> str | None:
        """The next line it prints; None when it has ended, or ``until`` has become true."""
        deadline = time.monotonic() + SILENT_SECONDS
        while not until():
            try:
                line = self._new.get(timeout=0.002)
            except queue.Empty:
                if time.monotonic() > deadline:
                    raise Hang(self._where()) from None
                continue
            if line is None:
                self._new.put(None)  # for whoever asks again
                self._process.wait()
                return None
            self.lines.append(line)
            return line
        return None

    def wait(self) -> int:
        """Wait for its end, however long it takes as long as it goes on; gives the exit code."""
        while self.next_line() is not None:
            pass
        return self._process.wait()

    def kill(self) -> None:
        """Kill it and all that it started, at once."""
        for process in reversed(self.family()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._reader.join()

    def errors(self) -> str:
        """The last of what it wrote to standard error."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-3_000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._new.put(line.rstrip("\n"))
        self._new.put(None)

    def _where(self) -> str:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGABRT)  # faulthandler writes down where every thread is
        time.sleep(1.0)
        said = self.lines[-3:]
        self.kill()
        return f"nothing happened for {SILENT_SECONDS:.0f} s; it had said {said}\n{self.errors()}"
