"""The Spark session of a run: the caller's, or one made for it and stopped after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from tidegate.errors import EnvironmentFault, QueryError, UserError
from tidegate.query.nodes import Node, sources
from tidegate.runtime.spark.dataframe import (
    ATTEMPTS_APART,
    FILE_MANAGER,
    LOCAL_FILES,
    PROVIDER,
    ROCKSDB,
    shuffle_partitions,
)
from tidegate.runtime.spark.java_folder import JavaFolder, forget_java, java_died, java_folder

# What a stateful step needs, and what readers of the results expect. All of it can be set in a running session.
STREAMING: Mapping[str, str] = {
    PROVIDER: ROCKSDB,
    ATTEMPTS_APART: "2",
    # In that format Spark adds a file of checksums to each; a chunk brings its own.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # With a limit in bytes Spark measures an Arrow batch after every row, which takes longer than making it.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
# Without Hadoop's native library, Spark's usual way to write a checkpoint to a local disk starts a process for every chmod
# and stat: 80 ms of each batch. The other way renames by the file system's own rules, and the one that Spark's Hive brings
# for local disks renames no file onto another: what a killed batch wrote would stay when the batch is run again.
LOCAL_CHECKPOINTS = {
    FILE_MANAGER: ("org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"),
    LOCAL_FILES: "org.apache.hadoop.fs.LocalFileSystem",
}
LOCAL = "local[*]"
PARTITIONS = "spark.sql.shuffle.partitions"
# A stateful Python partition costs about 0.1 s per batch whatever it does, so a few fat ones are better than many.
MOST_CELLS = 8
_SPARK_DEFAULT_PARTITIONS = 200
MOST_LOG_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Session:
    """A session for one run; ``folder`` is where its Java process writes, if tidegate started that."""

    spark: SparkSession
    folder: JavaFolder | None = None

    def trim_log(self) -> None:
        """Forget an old log: Spark writes to it with every batch."""
        if self.folder is not None:
            self.folder.empty_log(MOST_LOG_BYTES)

    @property
    def cells(self) -> int:
        """How many cells a stateful step gets in this Spark session."""
        return shuffle_partitions(self.spark)


def session_of_frames(query: Node) -> SparkSession | None:
    """The session of the DataFrames a query reads, None if it reads none."""
    found = {id(df.sparkSession): df.sparkSession for df in _frames(query)}
    if len(found) > 1:
        raise QueryError("the query reads DataFrames of different Spark sessions; make them in one session")
    return next(iter(found.values()), None)


def needs_java(query: Node, spark: SparkSession | str | None) -> bool:
    """Whether a run of the query has to start Spark itself."""
    given = isinstance(spark, SparkSession) or session_of_frames(query) is not None
    return not given and SparkContext._active_spark_context is None


def ground_of(query: Node, spark: SparkSession | str | None) -> SparkSession | str:
    """The session that a query will run in or beside, or the master of the one that will be started for it."""
    frames = session_of_frames(query)
    if frames is not None:
        return frames
    if spark is None and SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return spark or LOCAL


@contextmanager
def open_session(
    query: Node, spark: SparkSession | str | None, cells: int | None, held: tuple[int, ...]
) -> Iterator[Session]:
    """The session to run a query in.

    A query over DataFrames runs in their session, as it is. Otherwise the session is a sibling of the one given or
    running, so that settings made here do not leak, or a new one: local, or at the master URL in ``spark``. ``cells``
    is the number of cells if that is settled. A Java process started here keeps the descriptors ``held`` open.
    """
    frames = session_of_frames(query)
    if frames is not None:
        yield Session(frames)
    elif isinstance(spark, SparkSession):
        yield Session(_sibling(spark, cells))
    elif SparkContext._active_spark_context is not None:
        if isinstance(spark, str):
            raise QueryError(f"spark={spark!r} asks for a new Spark, and this process runs one already; leave it out")
        yield Session(_sibling(SparkSession.builder.getOrCreate(), cells))
    else:
        folder = java_folder()
        made = _start(spark or LOCAL, folder, held)
        made.conf.set(PARTITIONS, cells or _default_cells(made))
        try:
            yield Session(made, folder)
        except Exception as error:
            said = folder.last_words() if folder is not None else ""
            if java_died():
                forget_java()
                raise EnvironmentFault(
                    "Spark's Java process has ended: it was killed, or ran out of memory. Run the same again: it goes on "
                    f"after the last batch that was committed.{f' The last line of its log: {said}' if said else ''}"
                ) from error
            if said and not isinstance(error, UserError | EnvironmentFault):
                error.add_note(f"Spark's log ends with: {said}; with TIDEGATE_DEBUG=1 you see all of it")
            raise
        finally:
            if SparkContext._gateway is not None:
                made.stop()
            if folder is not None:
                folder.empty_log()


def _sibling(spark: SparkSession, cells: int | None) -> SparkSession:
    made = spark.newSession()
    for name, value in STREAMING.items():
        made.conf.set(name, value)
    asked = shuffle_partitions(spark)
    chosen = _default_cells(spark) if asked == _SPARK_DEFAULT_PARTITIONS else asked
    made.conf.set(PARTITIONS, cells or chosen)
    return made


def _default_cells(spark: SparkSession) -> int:
    return max(1, min(spark.sparkContext.defaultParallelism, MOST_CELLS))


def _start(master: str, folder: JavaFolder | None, held: tuple[int, ...]) -> SparkSession:
    # Workers must be the interpreter that has tidegate, or an environment that is not activated fails.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf()
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
    for name, value in settings.items():
        conf.set(name, value)
    try:
        context = SparkContext(conf=conf, gateway=_gateway(conf, folder, held))
    except PySparkRuntimeError as error:
        said = folder.last_words() if folder is not None else ""
        raise EnvironmentFault(f"Spark's Java process did not start: {said or error}") from error
    context.setLogLevel("ERROR")
    return SparkSession.builder.getOrCreate()


def _gateway(conf: SparkConf, folder: JavaFolder | None, held: tuple[int, ...]) -> object:
    """A new Java process, None if this Python process has one already.

    Spark writes several lines to its standard error for every batch, so that goes to a file.
    """
    if SparkContext._gateway is not None or folder is None:
        return None
    held = (*held, folder.held)
    if os.environ.get("TIDEGATE_DEBUG"):
        return launch_gateway(conf, {"pass_fds": held})  # type: ignore[no-untyped-call] # pyspark has no types for it
    with folder.open_log() as file:
        options = {"pass_fds": held, "stdout": file, "stderr": file}
        return launch_gateway(conf, options)  # type: ignore[no-untyped-call] # as above


def _frames(query: Node) -> list[DataFrame]:
    return [source.origin for source in sources(query) if isinstance(source.origin, DataFrame)]
