"""The guide to queries made of Aggregates shows code that does what it says."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "lowering.md").read_text(encoding="utf-8")


def test_the_code_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", GUIDE):
        assert (DOCS / target).exists(), target
