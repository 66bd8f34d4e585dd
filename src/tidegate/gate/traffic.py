"""How much has come through a gate: counts that only ever grow, for observers to take differences of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """Rows that a gate has taken in, put into its log, and seen passed.

    Where every reader is woken for every segment, each may have a share of it, so it is passed when the last reader has.
    Where one is woken for it, that one does the work and others may sleep before it: it is passed when the first has.
    """

    admitted_rows: int
    ready_rows: int
    passed_rows: int

    @property
    def waiting_rows(self) -> int:
        """Rows that are ready and not passed."""
        return self.ready_rows - self.passed_rows
