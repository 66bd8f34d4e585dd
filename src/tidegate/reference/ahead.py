"""The law of tuples from the future: one that lies too far ahead enters nothing and moves no watermark."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.query import ahead
from tidegate.query.nodes import Source
from tidegate.reference.aggregates import Tuple
from tidegate.reference.rows import python_row


@dataclass
class AheadLaw:
    """One source: what was set aside of it, and the newest time of what was not."""

    source: Source
    set_aside: list[Tuple] = field(default_factory=list)
    newest: int | None = None

    def timely(self, table: pa.Table, clock: int | None) -> pa.Table:
        """The tuples that may enter, of those that are read at a time of the clock, one after the other."""
        kept = []
        for offset, time in enumerate(table.column(self.source.time).cast(pa.int64()).to_pylist()):
            limit = ahead.bound(self.source, clock, self.newest)
            if time is None:  # what reads it says so
                kept.append(offset)
                continue
            if limit is not None and time > limit:
                if self.source.ahead_of == "stream" and self.newest is not None:
                    what = f"a tuple has {ahead.show_moment(time)} in '{self.source.time}'"
                    raise ahead.leap(self.source, what, self.newest)
                self.set_aside.append(python_row(table.slice(offset, 1), self.source))
                continue
            kept.append(offset)
            self.newest = time if self.newest is None else max(self.newest, time)
        return table if len(kept) == table.num_rows else table.take(kept)
