"""Some of what ``python -m tests.chaos`` does: the rest takes longer."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import main
from tests.effort import LONG


@pytest.mark.generated
@pytest.mark.timeout(1_800)
def test_queries_that_are_killed_and_starved_give_every_row_once(capsys: pytest.CaptureFixture[str]) -> None:
    failed = main(["--minutes", "10" if LONG else "1", "--seed", "1"])
    assert not failed, capsys.readouterr().out
