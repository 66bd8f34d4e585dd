"""Random lives of a query in which shards move: whatever happens, and when, the answer is the reference's."""

from __future__ import annotations

import logging

import pytest

from tests.kit.effort import examples
from tests.kit.moving import QUERIES, Life
from tidegate.runtime.spark import cell_batch

LIVES = 125
SEEDS = 16


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_answer_is_the_laws_however_shards_move(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_batch, "SWEEP_EVERY", 2)
    # Mappings to cells that are not there are logged for each cell and batch.
    monkeypatch.setattr(logging.getLogger("tidegate.spark"), "disabled", True)
    kinds = sorted(QUERIES)
    epochs = 0
    for number in range(examples(LIVES)):
        life = seed * 1_000_000 + number
        epochs += Life(kinds[life % len(kinds)], life).check(monkeypatch)
    assert epochs > LIVES, "hardly anything moved"
