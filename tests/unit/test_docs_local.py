"""The guide to runs in one process shows code that does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "local.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"^print\(.*\)  # (.*)$", re.MULTILINE)


def test_what_is_shown_to_be_printed_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"tg": tg, "pa": pa}
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    shown = [block for block in blocks if SHOWN.search(block)]
    assert len(shown) == 6
    for block in shown:
        exec(block, names)
        assert capsys.readouterr().out.splitlines() == SHOWN.findall(block)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", GUIDE):
        assert (DOCS / target).exists(), target
