"""The harness's end of an engine's process: starts it, has it run and collect, measures its memory, ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import psutil

from benchmarks.engines import ENGINES, Timing
from benchmarks.inputs import Input
from benchmarks.memory import PeakMemory
from benchmarks.options import DRIVER_MEMORY_VARIABLE, PROJECT, python_path

STOP_SECONDS = 30
LOG_LINES_SHOWN = 15


class EngineFailed(RuntimeError):
    """An engine's process reported an error or ended early; the message ends with the tail of its log."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run of an engine."""

    timing: Timing
    peak_mb: float


class EngineProcess:
    """One engine on one workload in a fresh process (and JVM); `scratch` holds its log, checkpoints and results."""

    def __init__(
        self,
        engine: str,
        workload: str,
        scratch: Path,
        driver_memory_gb: int,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.engine = engine
        self._scratch = scratch
        self._steps = 0
        scratch.mkdir(parents=True)
        self._log_path = scratch / "log.txt"
        variables = {
            **os.environ,
            "PYTHONPATH": python_path(),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(scratch / "spark-local"),
            DRIVER_MEMORY_VARIABLE: f"{driver_memory_gb}g",
            **environment,
        }
        with self._log_path.open("w") as log:
            self._process = subprocess.Popen(
                [ENGINES[engine].python, "-m", "benchmarks.worker", engine, workload],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=PROJECT,
                env=variables,
            )
        try:
            self._receive()
        except EngineFailed:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, data: Input) -> Run:
        """Run the workload over `data` in a folder of its own, sampling the memory of the process tree meanwhile."""
        command = {
            "do": "run",
            "files": [str(file) for file in data.files],
            "tuples": data.tuples,
            "scratch": str(self._next_folder("run")),
        }
        with PeakMemory(self._process.pid) as memory:
            answer = self._ask(command)
        return Run(Timing(**{**answer, "batch_ms": tuple(answer["batch_ms"])}), memory.peak_mb)

    def collect(self) -> Path:
        """The folder of parquet files with the results of the last run."""
        target = self._next_folder("results")
        self._ask({"do": "collect", "target": str(target)})
        return target

    def first_result(self, data: Input) -> None:
        """Return when the engine has its first result over `data`; the process is good for nothing else afterwards."""
        files = [str(file) for file in data.files]
        scratch = self._next_folder("first")
        self._ask({"do": "first_result", "files": files, "tuples": data.tuples, "scratch": str(scratch)})

    def call(self, method: str, **arguments: Any) -> Any:
        """What a method of the engine's adapter returns; arguments and value are what JSON knows."""
        return self._ask({"do": "call", "method": method, "arguments": arguments})["value"]

    def stop(self) -> None:
        """End the process by closing its input; kill it and its descendants if it has not ended after a while."""
        self._close(self._process.stdin)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close(self._process.stdout)

    def kill(self) -> None:
        """End the process and its descendants at once."""
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            for process in (*root.children(recursive=True), root):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.wait()
        self._close(self._process.stdin)
        self._close(self._process.stdout)

    @staticmethod
    def _close(pipe: IO[str] | None) -> None:
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()

    def _next_folder(self, purpose: str) -> Path:
        self._steps += 1
        return self._scratch / f"{self._steps:03d}-{purpose}"

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the missing answer says so
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process ended without an answer"}
        if "error" in answer:
            tail = self._log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
            raise EngineFailed(f"{self.engine}: {answer['error']}\n" + "\n".join(f"    | {line}" for line in tail))
        return answer
