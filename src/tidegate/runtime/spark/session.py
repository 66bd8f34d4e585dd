"""The Spark session of a run: the caller's, or one that is started for it and stopped after it.

A Java process that tidegate starts puts its log and what is temporary into a private folder, which goes with this Python
process. Java holds the folder too, so that after the death of the Python process no other one removes it under its feet.
What a killed process leaves is removed by the next run of the same user.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from tidegate.errors import EnvironmentFault, QueryError, UserError
from tidegate.query.nodes import Node, sources
from tidegate.state.own_folder import hold, own_folder, sweep

LOG = logging.getLogger("tidegate.spark")
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_FILES = "spark.hadoop.fs.file.impl"
# What readers of the results expect. All of it can be set in a running session.
STREAMING: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # With a limit in bytes Spark measures an Arrow batch after every row, which takes longer than building it.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
# Without Hadoop's native library, Spark's usual manager of checkpoints on a local disk starts a process for every chmod and
# stat: 80 ms of each batch. This one renames by the file system's own rules, and the file system that Spark's Hive brings
# for local disks renames no file onto another: what a killed batch wrote would stay when the batch is run again.
LOCAL_CHECKPOINTS = {
    FILE_MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    LOCAL_FILES: "org.apache.hadoop.fs.LocalFileSystem",
}
LOCAL = "local[*]"
MOST_CELLS = 8
MOST_LOG_BYTES = 10_000_000
MOST_CHARACTERS = 500
PATIENCE_SECONDS = 5.0
_LOG_FILE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


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
        """Settings that keep in the folder what Spark would leave in the machine's temporary folder if killed."""
        settings = {"spark.local.dir": str(self.path)}
        if not any(map(str.isspace, str(self.path))):
            settings["spark.driver.defaultJavaOptions"] = f"-Djava.io.tmpdir={self.path}"
        return settings

    def open_log(self) -> BinaryIO:
        """Opens the log to append to it."""
        return os.fdopen(os.open(self.log, _LOG_FILE | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    def empty_log(self, most_bytes: int = 0) -> None:
        """Empties the log if it is larger; Spark writes to it with every batch."""
        with suppress(OSError), os.fdopen(os.open(self.log, _LOG_FILE), "ab") as file:
            if os.fstat(file.fileno()).st_size > most_bytes:
                file.truncate(0)

    def last_line(self) -> str:
        """The last line of the log; empty if there is none."""
        with suppress(OSError, IndexError):
            return self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1][:MOST_CHARACTERS]
        return ""


@cache
def _new_java_folder() -> JavaFolder:
    place = own_folder()
    sweep(place)
    path = place / f"spark-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder = JavaFolder(path, hold(path))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return folder


def session_of_frames(query: Node) -> SparkSession | None:
    """The session of the DataFrames a query reads, None if it reads none."""
    frames = [source.origin for source in sources(query) if isinstance(source.origin, DataFrame)]
    found = {id(df.sparkSession): df.sparkSession for df in frames}
    if len(found) > 1:
        raise QueryError("the query reads DataFrames of different Spark sessions; make them in one session")
    return next(iter(found.values()), None)


def choose_session(query: Node, spark: SparkSession | str | None) -> SparkSession | str:
    """The session that a query will run in or beside, or the master URL of the one that will be started for it."""
    frames = session_of_frames(query)
    if frames is not None:
        return frames
    if spark is None and SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return spark or LOCAL


def check_workers_python(executable: str) -> None:
    """Refuse an interpreter for Python workers on this machine that has no tidegate, before a worker's traceback says so.

    A session starts `python3` of the PATH unless it was told otherwise, which in an environment that is not activated is
    another one than this.
    """
    found = shutil.which(executable)
    if found is None or Path(found).parent == Path(sys.executable).parent:
        return
    looked = subprocess.run(
        [found, "-c", "import sys, importlib.util as u; sys.exit(7 if u.find_spec('tidegate') is None else 0)"],
        check=False,
        capture_output=True,
    )
    if looked.returncode == 7:
        raise EnvironmentFault(
            f"Spark's Python workers run {found}, which has no tidegate; this is {sys.executable}. Activate its "
            "environment, or say so before the session is started: os.environ['PYSPARK_PYTHON'] = sys.executable"
        )


def default_cells(chosen: SparkSession | str) -> int:
    """How many cells a stateful step gets: one where Spark runs in one process, whose cores a cell can use by itself.

    >>> default_cells("local[4]"), default_cells("local-cluster[2,2,1024]"), default_cells("spark://host:7077")
    (1, 4, 8)
    """
    master = chosen if isinstance(chosen, str) else str(chosen.conf.get("spark.master", LOCAL))
    if re.fullmatch(r"local(\[.*\])?", master):
        return 1
    parts = re.fullmatch(r"local-cluster\[(\d+),(\d+),\d+\]", master)
    return min(MOST_CELLS, int(parts[1]) * int(parts[2])) if parts else MOST_CELLS


@contextmanager
def open_session(
    query: Node, chosen: SparkSession | str, held: tuple[int, ...]
) -> Iterator[tuple[SparkSession, JavaFolder | None]]:
    """Opens the session to run a query in; gives the folder of the Java process too, if it was started here.

    A query over DataFrames runs in their session, as it is. Otherwise the session is a sibling of the one chosen, so that
    settings made here do not leak, or a new one at the master URL. A Java process started here keeps the descriptors
    ``held`` open.
    """
    if session_of_frames(query) is not None:
        assert isinstance(chosen, SparkSession)
        yield chosen, None
    elif isinstance(chosen, SparkSession):
        yield _sibling(chosen), None
    elif SparkContext._active_spark_context is not None:
        raise QueryError(f"spark={chosen!r} asks for a new Spark, and this process runs one already; leave it out")
    else:
        # A Java process that something else has started in this process keeps its own places.
        other = SparkContext._gateway is not None and not _new_java_folder.cache_info().currsize
        folder = None if other else _new_java_folder()
        spark = _start(chosen, folder, held)
        try:
            yield spark, folder
        except Exception as error:
            last = folder.last_line() if folder is not None else ""
            if _java_died():
                _forget_java()
                raise EnvironmentFault(
                    "Spark's Java process has ended: it was killed, or ran out of memory. Run the same again: it goes on "
                    f"after the last batch that was committed.{f' The last line of its log: {last}' if last else ''}"
                ) from error
            if last and not isinstance(error, UserError | EnvironmentFault):
                error.add_note(f"Spark's log ends with: {last}; with TIDEGATE_DEBUG=1 you see all of it")
            raise
        finally:
            if SparkContext._gateway is not None:
                spark.stop()
            if folder is not None:
                folder.empty_log()


def _sibling(spark: SparkSession) -> SparkSession:
    sibling = spark.newSession()
    for name, value in STREAMING.items():
        sibling.conf.set(name, value)
    return sibling


def _start(master: str, folder: JavaFolder | None, held: tuple[int, ...]) -> SparkSession:
    # Workers must be the interpreter that has tidegate, or an environment that is not activated fails.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.master": master,
        "spark.app.name": "tidegate",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.locality.wait": "0",
        **STREAMING,
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1", **LOCAL_CHECKPOINTS}
        if folder is not None:
            settings |= folder.settings()
    conf = SparkConf().setAll(list(settings.items()))
    LOG.info("starting Spark at %s", master)
    try:
        context = SparkContext(conf=conf, gateway=_gateway(conf, folder, held))
    except PySparkRuntimeError as error:
        last = folder.last_line() if folder is not None else ""
        raise EnvironmentFault(f"Spark's Java process did not start: {last or error}") from error
    context.setLogLevel("ERROR")
    return SparkSession.builder.getOrCreate()


def _gateway(conf: SparkConf, folder: JavaFolder | None, held: tuple[int, ...]) -> object:
    """Starts a Java process, unless this Python process has one already: then None.

    Spark writes several lines to its standard error for every batch, so that goes to a file.
    """
    if SparkContext._gateway is not None or folder is None:
        return None
    with folder.open_log() as file:
        output = {} if os.environ.get("TIDEGATE_DEBUG") else {"stdout": file, "stderr": file}
        options = {"pass_fds": (*held, folder.held), **output}
        return launch_gateway(conf, options)  # type: ignore[no-untyped-call] # pyspark has no types for it


def _java_died() -> bool:
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


def _forget_java() -> None:
    """Lets this Python process start another Java process after the death of its own."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    shutil.rmtree(_new_java_folder().path, ignore_errors=True)
    _new_java_folder.cache_clear()
