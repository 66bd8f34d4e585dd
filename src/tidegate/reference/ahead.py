"""The law of tuples from the future: one that lies too far ahead enters nothing and moves no watermark."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.query.event_time import ahead_bound, ahead_error, show_moment
from tidegate.query.nodes import Source
from tidegate.reference.aggregates import Tuple


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
            limit = ahead_bound(self.source, clock, self.newest)
            if time is None:  # what reads it says so
                kept.append(offset)
                continue
            if limit is not None and time > limit:
                if self.source.ahead_of == "stream" and self.newest is not None:
                    what = f"a tuple has {show_moment(time)} in '{self.source.time}'"
                    raise ahead_error(self.source, what, self.newest)
                # No calendar may have its time, so that stays a number.
                numbers = table.slice(offset, 1).column(self.source.time).cast(pa.int64())
                place = table.schema.get_field_index(self.source.time)
                self.set_aside += table.slice(offset, 1).set_column(place, self.source.time, numbers).to_pylist()
                continue
            kept.append(offset)
            self.newest = time if self.newest is None else max(self.newest, time)
        return table if len(kept) == table.num_rows else table.take(kept)
