"""Peak memory: the sum over a process and its descendants."""

from __future__ import annotations

import subprocess
import sys

import psutil

from benchmarks.memory import PeakMemory

HOLD_100_MB = "held = b'x' * 100_000_000; print(flush=True); input()"
START_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD_100_MB!r}])"


def test_memory_of_a_grandchild_counts() -> None:
    command = [sys.executable, "-c", START_A_CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        own_mb = psutil.Process(child.pid).memory_info().rss / 1e6
        with PeakMemory(child.pid) as memory:
            pass
        child.communicate("\n")
    assert own_mb + 100 < memory.peak_mb < own_mb + 200
