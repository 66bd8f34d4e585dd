"""What snapshots cost and how long a recovery takes, at a size at which only the measuring can be wrong."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import snapshots
from benchmarks.options import Options
from benchmarks.snapshots import recovery


def test_cost_and_recovery_are_measured(tmp_path: Path) -> None:
    options = Options(tuples=60_000, runs=1, of=("windows",), rate=60_000, tuples_per_second=10, out=tmp_path)
    assert snapshots.run(options) == 0
    found = json.loads((tmp_path / "snapshots.json").read_text())
    assert found["full speed"]["cpu_us_per_tuple"][1] > 0
    loaded = found["under load"]
    assert loaded["snapshots"][0] >= 1 and loaded["p99_ms"][0] >= loaded["p50_ms"][0] > 0
    assert found["recoveries"][0]["runs_s"][0] > 0


def test_a_recovery_finds_all_that_was_in_state(tmp_path: Path) -> None:
    for name in ("join", "apply"):
        found = recovery(name, Options(tuples=3_000, runs=1), tmp_path / name)
        assert found["state_rows"] >= 3_000 and found["checkpoint_bytes"] > 0
