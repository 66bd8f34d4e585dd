"""The guide to runs in one process shows code that does what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.kafka import make, mock_cluster, write

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "local.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"^print\(.*\)  # (.*)$", re.MULTILINE)


@pytest.fixture
def servers() -> Iterator[str]:
    with mock_cluster() as address:
        yield address


def test_what_is_shown_to_be_printed_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str
) -> None:
    monkeypatch.chdir(tmp_path)
    calls = [{"value": json.dumps({"ts": "2024-01-01T08:00:00", "src": src})} for src in ("a", "b", "a")]
    write(servers, "calls", calls)
    make(servers, "busy")
    names: dict[str, object] = {"tg": tg, "pa": pa}
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    shown = [block for block in blocks if SHOWN.search(block)]
    assert len(shown) == 7
    for block in shown:
        exec(block.replace("localhost:9092", servers), names)
        assert capsys.readouterr().out.splitlines() == SHOWN.findall(block)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", GUIDE):
        assert (DOCS / target).exists(), target
