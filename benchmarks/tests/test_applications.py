"""The papers' applications are all there, and one instance and two are measured on the same results."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import applications
from benchmarks.options import APPLICATIONS, Options


def test_every_name_has_its_case() -> None:
    assert tuple(applications.CASES) == APPLICATIONS


@pytest.mark.parametrize("name", ["calls_aggregate", "bargain_index"])
def test_a_case_is_measured_with_one_instance_and_two(name: str, tmp_path: Path) -> None:
    assert applications.run(Options(of=(name,), tuples=800, runs=1, out=tmp_path)) == 0
    one, two = json.loads((tmp_path / "applications.json").read_text())["rows"]
    assert (one["instances"], two["instances"]) == (1, 2)
    assert one["speedup"] == 1.0
    assert one["output_rows"] == two["output_rows"] > 0
    assert one["tuples"] == two["tuples"] >= 800


def test_another_result_with_two_instances_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(case: object, tables: object, instances: int) -> tuple[float, float, dict[str, pa.Table]]:
        return 1.0, 1.0, {"result": pa.table({"n": [instances]})}

    monkeypatch.setattr(applications, "_once", counted)
    assert applications.run(Options(of=("calls_map",), tuples=100, runs=1, out=tmp_path)) == 1
    assert json.loads((tmp_path / "applications.json").read_text())["failures"]
