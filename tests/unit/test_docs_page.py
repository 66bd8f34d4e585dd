"""The guide to the page: its snippet runs, its links and pictures are there, and the pictures are small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.page_jobs import swinging_ledger

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "page.md").read_text(encoding="utf-8")
MOST_BYTES = 150_000


def test_a_ledger_is_replayed_as_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    swinging_ledger(tmp_path / "run.ledger")
    (block,) = re.findall(r"^```python\n(from tidegate.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    names: dict[str, list[object]] = {}
    exec(block, names)
    assert len(names["replayed"]) == 6
    assert names["wanted"] == [], "ds2 holds where the demand is not known"


def test_links_lead_somewhere_and_pictures_are_small() -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", GUIDE)
    assert {"images/page.png", "images/decision.png", "control.md"} <= set(targets)
    for target in targets:
        assert (DOCS / target).exists(), target
    for picture in (DOCS / "images").iterdir():
        assert picture.stat().st_size < MOST_BYTES, picture
