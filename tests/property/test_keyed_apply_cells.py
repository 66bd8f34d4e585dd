"""Generated O+ queries driven as Spark drives them: batches, failed attempts and cells cannot show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.check_keyed_apply_cells import any_driver, check_on_driver
from tests.kit.effort import examples
from tests.kit.keyed_apply_cases import keyed_apply_cases
from tests.kit.store_cases import store_cases
from tidegate.operators import keyed_apply_cell


@pytest.mark.parametrize("kind", [keyed_apply_cases, store_cases])
@pytest.mark.parametrize("most_chunks", [keyed_apply_cell.MOST_CHUNKS, 1])
def test_the_output_is_the_laws_whatever_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_chunks: int, kind: Any
) -> None:
    monkeypatch.setattr(keyed_apply_cell, "MOST_CHUNKS", most_chunks)

    @settings(max_examples=examples(8), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(kind())
        check_on_driver(case, *data.draw(any_driver(case, tmp_path)))

    check()
