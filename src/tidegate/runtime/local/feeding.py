"""From a source into the gates that it feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from tidegate.errors import DataError
from tidegate.gate.row_width import RowWidth
from tidegate.gate.source import Source as Way
from tidegate.query.nodes import Source
from tidegate.runtime.local.origins import Heartbeat, Reading, arrivals_of
from tidegate.runtime.local.origins.broken_promises import Reached, broken_promise, reached_by
from tidegate.runtime.local.shared_core import SharedCore

SEGMENT_BYTES = 2 << 20


def read_into(
    source: Source,
    reading: Reading,
    ways: Sequence[Way],
    note: Callable[[pa.RecordBatch, float | None], None],
    stopping: Callable[[], bool],
    core: SharedCore,
) -> None:
    """Read a source to its end, or until the run is ``stopping``, into all gates; ``note`` is told of each batch."""
    reached: Reached | None = None
    width = RowWidth()
    with closing(arrivals_of(source, reading)) as arrivals:
        for arrival in arrivals:
            if stopping():
                break
            if isinstance(arrival.what, Heartbeat):
                for way in ways:
                    way.advance(arrival.what.time)
            elif arrival.what.num_rows:
                note(arrival.what, arrival.due)
                try:
                    for part in _parts(arrival.what, width):
                        # All before any: what one gate waits for may have to come through another.
                        full = [way for way in ways if way.offer(part)]
                        for way in full:
                            way.wait_for_room()
                except DataError as error:
                    raise broken_promise(source, arrival, reached) or error from error
                core.move()
            else:
                continue
            now = reached_by(source, arrival.what)
            if reached is None or now.time >= reached.time:
                reached = now
    for way in ways:
        way.end()


def _parts(batch: pa.RecordBatch, width: RowWidth) -> Iterator[pa.RecordBatch]:
    """A batch in parts of about `SEGMENT_BYTES`, so that wide rows are spread over instances too."""
    parts = int(-(-batch.num_rows * width.of(batch) // SEGMENT_BYTES)) or 1
    rows = -(-batch.num_rows // parts)
    return (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))
