"""Late tuples of a run in this process, gathered from all instances until they are worth a file."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.compile.plan import Plan
from tidegate.late_tuples import LateFolder
from tidegate.query.late import late_schema
from tidegate.query.nodes import Source

ROWS_PER_FILE = 65_536


@dataclass(slots=True, eq=False)
class LateBuffer:
    """Holds late tuples and writes them into a folder: every `ROWS_PER_FILE`, and when it is asked to.

    Methods may be called from any thread. Each feed of a step has files of its own, numbered from 0.
    """

    folder: LateFolder
    _held: dict[tuple[str, int], list[pa.Table]] = field(default_factory=dict)
    _files: Counter[tuple[str, int]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    @staticmethod
    def of(plan: Plan, folder: LateFolder) -> LateBuffer:
        """The buffer of a run; refuses a plan whose tuples have a column of the name that is added."""
        for subquery in plan.subqueries:
            for feed in subquery.feeds:
                if subquery.operator is not None and isinstance(feed.origin, Source):
                    late_schema(feed.schema, feed.time)
        return LateBuffer(folder)

    def add(self, step: str, position: int, tuples: pa.Table) -> None:
        """Take late tuples, with the watermark they missed, that came by a feed of a step."""
        with self._lock:
            held = self._held.setdefault((step, position), [])
            held.append(tuples)
            if self._closed or sum(part.num_rows for part in held) >= ROWS_PER_FILE:
                self._write(step, position)

    def flush(self) -> None:
        """Write all that is held."""
        with self._lock:
            for feed in tuple(self._held):
                self._write(*feed)

    def close(self) -> None:
        """Write all that is held, and from now on whatever comes: an instance may be at work after a run has failed."""
        self._closed = True
        self.flush()

    def _write(self, step: str, position: int) -> None:
        feed = step, position
        self.folder.write(step, position, f"{self._files[feed]:05}", pa.concat_tables(self._held[feed]))
        self._files[feed] += 1
        # Only now: what cannot be written is tried once more when the run ends.
        del self._held[feed]
