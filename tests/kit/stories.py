"""What stories of queries that are scaled have to tell in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.elastic.scaling import Scaling
from tidegate.telemetry.read import decisions


def told(ledger: Path, scaling: Scaling, reason: str) -> dict[str, Any]:
    """The decisions in the ledger that changed something, with a column that gives reasons, and what else was noticed."""
    table = decisions(ledger, changes_only=True, shadows=False)
    return {
        "decisions": table.select(["instances_before", "instances", "result", reason]).to_pylist(),
        "notices": [(each.notice.value, each.text) for each in scaling.notices],
        "failure": repr(scaling.failure) if scaling.failure else None,
    }
