"""Generated cases write thousands of small files of state; none of them has to outlive the machine."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_file_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
