"""The guide to the engine of one operator shows code that does what it says, and the engine stays small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "micro.md").read_text(encoding="utf-8")


def test_what_is_shown_to_be_printed_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1
    for block in blocks:
        exec(block, {})
        assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)


def test_the_engine_is_under_2000_lines() -> None:
    files = (ROOT / "src" / "tidegate" / "micro").glob("*.py")
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) < 2000
