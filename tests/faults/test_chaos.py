"""Some of what ``python -m tests.chaos`` does: the rest takes longer."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import main
from tests.kit.effort import LONG

# In the process of the tests on Spark, so that no other Spark runs beside it.
pytestmark = [pytest.mark.generated, pytest.mark.spark]
MINUTES = "3" if LONG else "1"
SHOWN_LINES = 60


@pytest.mark.timeout(1_800)
def test_queries_that_are_killed_and_starved_give_every_row_once(capsys: pytest.CaptureFixture[str]) -> None:
    failed = main(["--minutes", MINUTES, "--seed", "1"])
    assert not failed, "\n".join(capsys.readouterr().out.splitlines()[-SHOWN_LINES:])
