"""One Spark session for all tests that need one, as it takes seconds to start; and no thread left behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings

from tests.kit.s3 import s3_server

# Generated cases are the same at every run, and no slow moment of a machine, such as compiling a loop, fails them.
settings.register_profile("tidegate", derandomize=True, deadline=None)
settings.load_profile("tidegate")


SPARK_SAMPLE = 8
"""One in so many."""
ENDS_WITHIN_SECONDS = 5.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes the Spark session, so that `tests.run` can give it a process of its own, and what is generated.

    Of the cases that real Spark shares with other runtimes, or with the driver of `tests.property`, which runs the same
    stages, `make test` has a sample, chosen by their names; `make test-long` has the rest.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") and "[" in item.name and crc32(item.name.encode()) % SPARK_SAMPLE:
            item.add_marker(pytest.mark.long)
        if "tests/property/" in item.nodeid:
            item.add_marker(pytest.mark.generated)


@pytest.fixture(autouse=True, scope="module")
def what_is_there_stays() -> None:
    """Objects from before a file of tests are none that a collection looks at again: there are millions, a second's work."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Fails a test that leaves a thread of ours running; Spark's own live as long as its session."""
    yield
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("tidegate")]
    for thread in ours:
        thread.join(ENDS_WITHIN_SECONDS)  # one that was told to end a moment ago does
    left = [thread.name for thread in ours if thread.is_alive()]
    assert not left, f"threads left running: {left}"


@pytest.fixture(scope="session")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an S3 server with the bucket 'bucket'."""
    with s3_server(tmp_path_factory.mktemp("moto") / "log") as port:
        yield port


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session with two cores; queries of tidegate need no setting of it but the time zone, for times without one."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from tidegate.runtime.spark.session import LOCAL_CHECKPOINTS

    session = (
        SparkSession.builder.master("local[2]")
        .appName("tidegate tests")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=LOCAL_CHECKPOINTS)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
