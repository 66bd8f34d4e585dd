"""Made-up inputs: repeatable, in order, made once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from examples.inputs.tweets import tweets
from examples.inputs.usage import usage
from tidegate.demo.calls import calls
from tidegate.sources.files import files_of

INPUTS = [(calls, "ts"), (tweets, "ts"), (usage, "time")]


@pytest.mark.parametrize(("make", "time"), INPUTS)
def test_inputs_are_repeatable_and_in_order(make: Any, time: str, tmp_path: Path) -> None:
    one = make(tmp_path / "one", rows=500, seed=3, files=4)
    same = make(tmp_path / "same", rows=500, seed=3, files=4)
    other = make(tmp_path / "other", rows=500, seed=4, files=4)
    table = pq.read_table(one)
    assert table.num_rows == 500
    assert table.equals(pq.read_table(same))
    assert not table.equals(pq.read_table(other))
    assert table.column(time).to_pylist() == sorted(table.column(time).to_pylist())
    modified = [Path(path).stat().st_mtime for path in files_of(one).paths]
    assert len(modified) == 4
    assert all(earlier < later for earlier, later in pairwise(modified))


def test_inputs_are_made_once(tmp_path: Path) -> None:
    folder = calls(tmp_path / "calls", rows=10, files=2)
    before = pq.read_table(folder)
    assert calls(tmp_path / "calls", rows=99) == folder
    assert pq.read_table(folder).equals(before)
    assert [path.name for path in tmp_path.iterdir()] == ["calls"]
