"""The runtimes that every query in this folder must agree on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.runtimes import Lowered, OnDriver, OnLocal, OnMicro, OnReference, OnSpark, Runtime

RUNTIMES = [
    pytest.param("reference"),
    pytest.param("driver, 1 cell"),
    pytest.param("driver, 3 cells with 3 instances"),
    pytest.param("local, 1 instance"),
    pytest.param("local, 2 instances"),
    pytest.param("local, 7 instances"),
    pytest.param("reference, multi"),
    pytest.param("reference, single"),
    pytest.param("driver, 1 cell, multi"),
    pytest.param("driver, 3 cells with 3 instances, multi"),
    pytest.param("local, 1 instance, multi"),
    pytest.param("local, 7 instances, multi"),
    pytest.param("micro, multi"),
    pytest.param("local, 1 instance, single"),
    pytest.param("local, 7 instances, single"),
    pytest.param("spark, 1 cell with 2 instances", marks=pytest.mark.spark),
    pytest.param("spark, 2 cells with 2 instances", marks=pytest.mark.spark),
    pytest.param("spark, 2 cells with 2 instances, multi", marks=pytest.mark.spark),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out queries made of Aggregates where that is refused, or means something else for late tuples."""
    items[:] = [item for item in items if not (item.get_closest_marker("dedicated") and _is_lowered(item))]


def _is_lowered(item: pytest.Item) -> bool:
    drawn = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(str(value).endswith((", multi", ", single")) for value in drawn)


LOOPING = [param for param in RUNTIMES if not param.values[0].startswith("micro")]
WITHOUT_SPARK = [param for param in RUNTIMES if not param.marks]


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Runtime:
    """One runtime after the other."""
    return _made(request, request.param, tmp_path)


@pytest.fixture(params=WITHOUT_SPARK)
def quick_runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Runtime:
    """One after the other, but for real Spark, which takes seconds and runs the code that the driver runs."""
    return _made(request, request.param, tmp_path)


@pytest.fixture(params=LOOPING)
def loop_runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Runtime:
    """Those that have loops of the user's, one after the other."""
    return _made(request, request.param, tmp_path)


@pytest.fixture(params=[param for param in LOOPING if not param.marks])
def quick_loop_runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Runtime:
    """Those of them that are not real Spark."""
    return _made(request, request.param, tmp_path)


def _made(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Runtime:
    where, _, how = kind.rpartition(", ")
    if how == "multi" or how == "single":
        return Lowered(_made(request, where, tmp_path), how)
    match kind:
        case "reference":
            return OnReference()
        case "driver, 1 cell":
            return OnDriver(1)
        case "driver, 3 cells with 3 instances":
            return OnDriver(3, instances=3)
        case "micro":
            return OnMicro()
        case "local, 1 instance":
            return OnLocal(1)
        case "local, 2 instances":
            return OnLocal(2)
        case "local, 7 instances":
            return OnLocal(7)
        case "spark, 1 cell with 2 instances":
            return OnSpark(request.getfixturevalue("spark"), tmp_path, 2)
        case _:
            return OnSpark(request.getfixturevalue("spark"), tmp_path, 2, cells=2)
