"""Where the Java process that tidegate starts puts its log and what is temporary; it goes with this Python process.

Java holds the folder too, so that after the death of the Python process no other one removes it under its feet. What a
process leaves that is killed is removed by the next run of the same user.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tidegate.state.own_folder import hold, own_folder, sweep

PATIENCE_SECONDS = 5.0
MOST_CHARACTERS = 500
_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class JavaFolder:
    """A private folder, and the descriptor by which it is held."""

    path: Path
    held: int

    @property
    def log(self) -> Path:
        """The file to which Java writes."""
        return self.path / "log"

    def settings(self) -> dict[str, str]:
        """Keeps in the folder what Spark would put into the temporary folder of the machine, and leave there if killed."""
        made = {"spark.local.dir": str(self.path)}
        if not any(map(str.isspace, str(self.path))):
            made["spark.driver.defaultJavaOptions"] = f"-Djava.io.tmpdir={self.path}"
        return made

    def open_log(self) -> BinaryIO:
        """The log, to append to."""
        return os.fdopen(os.open(self.log, _LOG, 0o600), "ab")

    def empty_log(self, most_bytes: int = 0) -> None:
        """Forget what is in the log, if it is more than so much."""
        with suppress(OSError), os.fdopen(os.open(self.log, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "ab") as file:
            if os.fstat(file.fileno()).st_size > most_bytes:
                file.truncate(0)

    def last_words(self) -> str:
        """The last line of the log; nothing if there is none."""
        with suppress(OSError, IndexError):
            return self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1][:MOST_CHARACTERS]
        return ""


def java_folder() -> JavaFolder | None:
    """The folder of the Java process of this Python process; None if that was started by someone else."""
    return None if SparkContext._gateway is not None and not _made.cache_info().currsize else _made()


def java_died() -> bool:
    """Whether the Java process that this Python process had is gone; one that is going is given a moment."""
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return False
    try:
        gateway.jvm.System.nanoTime()
    except (Py4JError, OSError):
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)
    return process.poll() is not None


def forget_java() -> None:
    """Let this Python process start another Java process after the death of its own."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    shutil.rmtree(_made().path, ignore_errors=True)
    _made.cache_clear()


@cache
def _made() -> JavaFolder:
    place = own_folder()
    sweep(place)
    path = place / f"spark-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    made = JavaFolder(path, hold(path))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return made
