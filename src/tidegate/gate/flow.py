"""Flow control: when a source must wait, and for whom.

Two bounds. What is in the log and not yet passed by the slowest reader is bounded for all sources together: readers can
always go on, so this wait ends. What a source holds that is not ready is bounded for each source, but never stops the
source with the least watermark, since everyone waits for that one. A batch is taken in, with its watermark, before its
source is made to wait; so a watermark is never held up, and a bound is overstepped by at most one batch per source.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors import QueryError


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Bounds on rows and bytes held: in the log, and not ready for each source. A wait ends at half the bound."""

    log_rows: int = 200_000
    log_bytes: int = 64 << 20
    unready_rows: int = 200_000
    unready_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("log_rows", "log_bytes", "unready_rows", "unready_bytes"):
            if getattr(self, name) < 1:
                raise QueryError(f"gate: {name} is {getattr(self, name)}; a bound must be at least 1")

    def log_full(self, rows: int, nbytes: int, waiting: bool) -> bool:
        """Whether the log holds too much; for who waits already, until it holds half."""
        share = 2 if waiting else 1
        return rows * share > self.log_rows or nbytes * share > self.log_bytes

    def too_far_ahead(self, rows: int, nbytes: int, waiting: bool) -> bool:
        """Whether one source holds too much that is not ready; for who waits already, until it holds half."""
        share = 2 if waiting else 1
        return rows * share > self.unready_rows or nbytes * share > self.unready_bytes
