"""The splits of all sources that one process reads: positions, watermarks, and the order that rows must keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import itemgetter, sub
from typing import NamedTuple

from tidegate.errors import DataError
from tidegate.micro.graph import ReplayableSource, Row
from tidegate.query.event_time import AFTER_LATEST_US, EARLIEST_US, format_duration, show_moment
from tidegate.watermark import END, START, Watermark


class SplitPosition(NamedTuple):
    """How far a split has been read: rows, and the newest time among them."""

    rows: int = 0
    newest: Watermark = START


class SplitReader:
    """Reads one split in batches, from a position on, and refuses rows that are out of order."""

    def __init__(self, source: ReplayableSource, number: int, position: SplitPosition) -> None:
        self._source, self._number = source, number
        self._batches: Iterator[list[Row]] | None = None
        self.position = position
        self.ended = False

    @property
    def watermark(self) -> Watermark:
        """No row before it is still to come from this split."""
        if self.ended:
            return END
        newest = self.position.newest
        return newest if newest == START else newest - self._source.disorder_us

    def next(self) -> list[Row]:
        """The next rows; none at the end."""
        if self._batches is None:
            self._batches = iter(self._source.read(self._source.splits[self._number], self.position.rows))
        rows = next(self._batches, None)
        if rows is None:
            self.ended = True
            return []
        if rows:
            newest = self._checked(rows)
            self.position = SplitPosition(self.position.rows + len(rows), newest)
        return rows

    def _checked(self, rows: list[Row]) -> Watermark:
        """The newest time after these rows."""
        try:
            times = list(map(itemgetter(0), rows))
            newest: Watermark = max(times)
            if min(times) < EARLIEST_US or newest >= AFTER_LATEST_US:
                raise self._wrong_time(next(t for t in times if not EARLIEST_US <= t < AFTER_LATEST_US))
            before, disorder = self.position.newest, self._source.disorder_us
            if max(map(sub, accumulate(times, max, initial=before), times)) > disorder:
                raise self._out_of_order(times)
        except (TypeError, IndexError, KeyError) as error:
            raise DataError(
                f"source '{self._source.name}': a row is a tuple whose first value is its event time, a whole number of "
                f"microseconds; got one like {rows[0]!r}"
            ) from error
        return max(newest, before)

    def _wrong_time(self, time: object) -> DataError:
        return DataError(
            f"source '{self._source.name}': a row has the event time {time}, in microseconds since 1970; event times lie "
            "from 0001-01-01 to 8999-12-31. Is it in another unit?"
        )

    def _out_of_order(self, times: list[int]) -> DataError:
        newest, disorder = self.position.newest, self._source.disorder_us
        offset = 0
        while newest - times[offset] <= disorder:
            newest = max(newest, times[offset])
            offset += 1
        allowed = f"may be {format_duration(disorder)} behind" if disorder else "must not go back in time"
        return DataError(
            f"source '{self._source.name}', split {self._number}: row {self.position.rows + offset} has the time "
            f"{show_moment(times[offset])}, after a row of {show_moment(newest)}; rows {allowed}. Sort them, or "
            "declare the disorder with disorder_us="
        )


class SourceReaders:
    """The splits that fall to one process: every ``workers``-th, starting with the one of its number."""

    def __init__(
        self,
        sources: Mapping[int, ReplayableSource],
        worker: int,
        workers: int,
        positions: Mapping[tuple[str, int], SplitPosition],
    ) -> None:
        self._sources = sources
        self._readers = {
            (node, number): SplitReader(each, number, positions.get((each.name, number), SplitPosition()))
            for node, each in sources.items()
            for number in range(worker, len(each.splits), workers)
        }

    def next(self) -> tuple[int, list[Row]] | None:
        """Rows of the split that is furthest behind in time, and their source; None when all have ended."""
        behind = min(self._readers, key=lambda at: self._readers[at].watermark, default=None)
        if behind is None or self._readers[behind].ended:
            return None
        return behind[0], self._readers[behind].next()

    def watermark(self, node: int) -> Watermark:
        """The least of the watermarks of a source's splits."""
        return min((reader.watermark for at, reader in self._readers.items() if at[0] == node), default=END)

    def positions(self) -> dict[tuple[str, int], SplitPosition]:
        """How far every split has been read, by source and number."""
        return {(self._sources[node].name, at): reader.position for (node, at), reader in self._readers.items()}
