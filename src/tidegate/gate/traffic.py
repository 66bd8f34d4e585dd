"""How much has come through a gate: counts that only ever grow, for observers to take differences of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """Rows that a gate has taken in, put into its log, and seen passed by its first reader.

    The first, as readers share the work on a segment: one that finds nothing to do for it may sleep before it.
    """

    admitted_rows: int
    ready_rows: int
    passed_rows: int

    @property
    def waiting_rows(self) -> int:
        """Rows that are ready and that no reader has passed."""
        return self.ready_rows - self.passed_rows
