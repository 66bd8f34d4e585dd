"""What is checked of a session before a query is built in it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tidegate.errors import EnvironmentFault
from tidegate.runtime.spark.session import check_workers_python


def interpreter(folder: Path, code: int) -> str:
    """A program in place of an interpreter, which says whether it has tidegate."""
    script = folder / "python3"
    script.write_text(f"#!/bin/sh\nexit {code}\n")
    script.chmod(0o755)
    return str(script)


def test_workers_without_tidegate_are_refused_with_both_interpreters_and_what_to_do(tmp_path: Path) -> None:
    other = interpreter(tmp_path, 7)
    with pytest.raises(EnvironmentFault, match="has no tidegate") as raised:
        check_workers_python(other)
    assert other in str(raised.value)
    assert sys.executable in str(raised.value)
    assert "PYSPARK_PYTHON" in str(raised.value)


def test_another_interpreter_that_has_tidegate_is_fine(tmp_path: Path) -> None:
    check_workers_python(interpreter(tmp_path, 0))


def test_an_interpreter_without_it_is_recognised() -> None:
    """The interpreter below an environment has none of the environment's packages."""
    base = Path(sys.base_prefix) / "bin" / "python3"
    if sys.prefix == sys.base_prefix or not base.exists() or shutil.which(str(base)) is None:
        pytest.skip(reason="this interpreter is in no environment of its own")
    with pytest.raises(EnvironmentFault):
        check_workers_python(str(base))


def test_this_interpreter_and_one_that_is_not_found_are_left_to_spark() -> None:
    check_workers_python(sys.executable)
    check_workers_python("no-such-python")
