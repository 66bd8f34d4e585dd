"""Spark's standalone cluster manager with some workers, as processes of this machine, on 127.0.0.1 alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from tidegate.errors import EnvironmentFault
from tidegate.java import require_java

LOOPBACK = "127.0.0.1"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
DAEMON_MEMORY = "256m"
START_SECONDS, STOP_SECONDS = 60.0, 10.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster: where applications connect, where its state can be read as JSON, and its processes."""

    master: str
    status: str
    processes: Sequence[subprocess.Popen[bytes]]

    def workers(self) -> int:
        """The workers that have registered."""
        return sum(worker["state"] == "ALIVE" for worker in self._workers())

    def cores_in_use(self) -> int:
        """The cores that workers have given to executors."""
        return sum(int(worker["coresused"]) for worker in self._workers())

    def _workers(self) -> list[dict[str, Any]]:
        with suppress(OSError, ValueError), urllib.request.urlopen(self.status, timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["workers"]
            return found
        return []


@contextmanager
def standalone(folder: Path, *, workers: int, cores: int, memory_mb: int) -> Iterator[Cluster]:
    """A master and so many workers, each with its cores and memory, for as long as the block lasts.

    They write their logs and what is temporary into the folder. However the block ends, they are told to end, which also
    ends the executors that workers have started, and killed if they do not.
    """
    require_java()
    folder.mkdir(parents=True, exist_ok=True)
    port, page, *pages = _free_ports(2 + workers)
    master = f"spark://{LOOPBACK}:{port}"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        at = ("--host", LOOPBACK, "--port", str(port), "--webui-port", str(page))
        processes.append(_started(folder, "master", MASTER, *at))
        cluster = Cluster(master, f"http://{LOOPBACK}:{page}/json/", processes)
        for number, own_page in enumerate(pages, 1):
            size = ("--cores", str(cores), "--memory", f"{memory_mb}m", "--work-dir", str(folder / f"worker-{number}"))
            at = ("--host", LOOPBACK, "--webui-port", str(own_page))
            processes.append(_started(folder, f"worker-{number}", WORKER, *at, *size, master))
        _wait_for_workers(cluster, workers, folder)
        yield cluster
    finally:
        _end(processes)


def _started(folder: Path, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_LOCAL_DIRS": str(folder / "temporary"),
        "SPARK_WORKER_OPTS": f"-Djava.io.tmpdir={folder}",
        "SPARK_MASTER_OPTS": f"-Djava.io.tmpdir={folder}",
    }
    with (folder / f"{name}.log").open("wb") as log:
        # A session of their own, so that Ctrl-C reaches this process alone, which ends them in order.
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), main, *arguments],
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def _wait_for_workers(cluster: Cluster, workers: int, folder: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while (there := cluster.workers()) < workers:
        ended = [process.returncode for process in cluster.processes if process.poll() is not None]
        if ended or time.monotonic() > until:
            why = f"a process ended with exit code {ended[0]}" if ended else f"not within {START_SECONDS:.0f} s"
            raise EnvironmentFault(
                f"a standalone Spark with {workers} workers did not start, {there} are there: {why}; their logs are in "
                f"{folder}"
            )
        time.sleep(0.25)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, the last first; a worker takes its executors along."""
    for sent, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        left = [process for process in reversed(processes) if process.poll() is None]
        for process in left:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, sent)
        until = time.monotonic() + seconds
        for process in left:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.1))


def _free_ports(number: int) -> list[int]:
    """Ports that nothing listens on now; all are held until the last is known, so they differ."""
    held = [socket.create_server((LOOPBACK, 0)) for _ in range(number)]
    try:
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
