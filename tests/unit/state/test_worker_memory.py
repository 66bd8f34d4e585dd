from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.state import worker_memory
from tidegate.state.worker_memory import LEAST_BYTES, PART, cache_bytes

GIB = 1024**3


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine with 64 GiB and 4 cores, without limits."""
    sizes = {"SC_PHYS_PAGES": 64 * GIB // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.setattr(worker_memory, "CONTAINER_LIMIT", tmp_path / "memory.max")
    cache_bytes.cache_clear()
    yield
    cache_bytes.cache_clear()


def test_a_cache_takes_a_part_of_what_a_core_has() -> None:
    assert cache_bytes() == 16 * GIB // PART


@pytest.mark.parametrize(("said", "share"), [("34359738368\n", 8 * GIB), ("max\n", 16 * GIB), ("1073741824", 0)])
def test_a_container_is_a_smaller_machine(said: str, share: int) -> None:
    worker_memory.CONTAINER_LIMIT.write_text(said)
    assert cache_bytes() == max(share // PART, LEAST_BYTES)


def test_a_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6 * GIB, 6 * GIB))
    assert cache_bytes() == 6 * GIB // PART
