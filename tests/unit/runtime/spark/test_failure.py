"""Spark's errors as tidegate's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tidegate.errors import CheckpointError, DataError, EnvironmentFault
from tidegate.runtime.spark.failure import full_disks_named, summary, translated

HEAD = (
    "[STREAM_FAILED] Query [id = 2022, runId = 7205] terminated with exception: [PYTHON_EXCEPTION] An exception was "
    "thrown from the Python worker: Traceback (most recent call last):\n"
    '  File "/v/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 4327, in main\n'
    "    process()\n"
)
TAIL = "\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 2022]\n"


def test_our_own_errors_come_back_as_they_were() -> None:
    frame = '  File "/src/tidegate/operators/sums.py", line 52, in finish\n    raise DataError(\n'
    ours = translated(f"{HEAD}{frame}tidegate.errors.DataError: a sum of 'v' does not fit int64{TAIL}")
    assert isinstance(ours, DataError)
    assert str(ours) == "a sum of 'v' does not fit int64"


def test_of_a_chain_the_last_error_counts_and_may_have_lines() -> None:
    chain = (
        "tidegate.errors.DataError: the first\n\nThe above exception was the direct cause of the following exception:"
        '\n\nTraceback (most recent call last):\n  File "/src/tidegate/x.py", line 1, in f\n'
        "tidegate.errors.CheckpointError: the second\nhas two lines"
    )
    ours = translated(f"{HEAD}{chain}{TAIL}")
    assert isinstance(ours, CheckpointError)
    assert str(ours) == "the second\nhas two lines"


def test_a_failing_function_is_named_with_its_place() -> None:
    frame = '  File "/home/me/query.py", line 12, in touchy\n    raise ValueError("no")\n'
    ours = translated(f"{HEAD}{frame}ValueError: no{TAIL}")
    assert isinstance(ours, DataError)
    assert str(ours) == "a function of the query failed on the data: ValueError: no (/home/me/query.py, line 12)"


def test_what_fails_inside_pyarrow_is_the_users_only_if_a_function_called_it() -> None:
    ours = '  File "/src/tidegate/state/chunks.py", line 31, in decode\n    pa.ipc.open_stream(data)\n'
    arrow = '  File "pyarrow/ipc.pxi", line 977, in pyarrow.lib._RecordBatchStreamReader._open\n'
    arrow += '  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status\n'
    said = "pyarrow.lib.ArrowInvalid: Expected to read 224 metadata bytes, but only read 60"
    assert translated(f"{HEAD}{ours}{arrow}{said}{TAIL}") is None
    users = '  File "/home/me/query.py", line 12, in touchy\n    pc.divide(1, 0)\n'
    assert str(translated(f"{HEAD}{users}{arrow}{said}{TAIL}")).endswith("(/home/me/query.py, line 12)")


def test_an_unreadable_file_is_named_by_its_own_path(tmp_path: Path) -> None:
    link = tmp_path / "inputs" / "0" / f"{'ab' * 12}.parquet"
    link.parent.mkdir(parents=True)
    link.symlink_to("/data/calls 1.parquet")
    ours = translated(f"[STREAM_FAILED] Query [id = 1] terminated with exception: [FAILED_READ_FILE] file:{link} bad\n")
    assert isinstance(ours, DataError)
    assert str(ours) == "the input cannot be read: [FAILED_READ_FILE] /data/calls 1.parquet bad"


def test_a_full_disk_is_named_where_spark_says_so_or_the_log_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {tmp_path: 10**9, tmp_path / "full": 56_000}
    (tmp_path / "full").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**10, 0, left[path]))
    said = rf"a disk is full, .*: {tmp_path}/full has 0\.1 MB left\. Make room there, and run the same again"
    folders = [tmp_path, tmp_path / "full"]
    for error in (OSError(28, "No space left on device"), RuntimeError("java.io.IOException: No space left on device")):
        with pytest.raises(EnvironmentFault, match=said), full_disks_named(folders):
            raise error
    log = tmp_path / "log"
    log.write_text("org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n")
    with pytest.raises(EnvironmentFault, match=said), full_disks_named(folders, log):
        raise RuntimeError("EOFError")
    log.write_text("another fault\n")
    with pytest.raises(RuntimeError, match="EOFError"), full_disks_named(folders, log):
        raise RuntimeError("EOFError")
    with pytest.raises(DataError, match="No space left in this sentence"), full_disks_named(folders):
        raise DataError("No space left in this sentence")


def test_what_is_sparks_own_is_only_made_short() -> None:
    message = f"[STREAM_FAILED] Query [id = 1] terminated with exception: No space left\n\tat org.apache.X{TAIL}"
    assert translated(message) is None
    assert summary(message) == "No space left"
