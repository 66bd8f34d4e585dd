"""The state of an as-of join whose instances share memory: the right tuple that came last of each key, by its number.

What settles is matched at once, in the order of the log, with a step in a table for each tuple. What takes time is to take
the rows of results, which needs nothing but what was there at that moment: instances do it side by side.

Rows are those of `AsOfRows`, in parts that are only added to, from old to new. Of several rows of a key the newest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.operators.as_of_rows import ALIVE, SIDES, TIME, AsOfRows
from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.joins.join_side import MOST_ROWS, RowBatches, merge_candidates
from tidegate.operators.keyed_rows import entries_with_keys
from tidegate.operators.keyed_slots import KeyedSlots
from tidegate.operators.keys import shards_of
from tidegate.operators.numbering import KeyNumbering
from tidegate.operators.settling import Settled
from tidegate.query.nodes import AsOf
from tidegate.query.predicates.tree import LEFT
from tidegate.query.schema import contiguous
from tidegate.watermark import END, START, Watermark, has_ended

LEAST_ROWS = 512
"""Up to so many rows that do not count any more are kept, beside as many as those that do."""
ANY_DISTANCE = END


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class HeldRows:
    """Rows, of which the first has the number ``first``. Never changed. None of them counts from ``until`` on."""

    first: int
    batch: pa.RecordBatch
    until: Watermark

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return int(self.batch.num_rows)

    @property
    def table(self) -> pa.Table:
        """The rows as a table."""
        return pa.Table.from_batches([self.batch])


class Matched(NamedTuple):
    """Which settled left tuples have a key, and the numbers of the right ones they match in ``rows``, −1 for none."""

    lefts: Array
    numbers: Array
    rows: RowBatches


@dataclass(slots=True, eq=False)
class LatestRows:
    """By the number of a key: the number of its last right tuple, its time, and whether it is alive. For one thread."""

    numbering: KeyNumbering
    latest: Array = field(default_factory=lambda: np.empty(0, np.int64))
    times: Array = field(default_factory=lambda: np.empty(0, np.int64))
    alive: Array = field(default_factory=lambda: np.empty(0, np.bool_))

    @property
    def nbytes(self) -> int:
        """How much memory they take."""
        return self.numbering.nbytes + self.latest.nbytes + self.times.nbytes + self.alive.nbytes

    def numbered(self, keys: Sequence[pa.Array]) -> Array:
        """The number of each key, with room for all of them."""
        codes = self.numbering.add(keys)
        more = self.numbering.size - len(self.latest)
        if more > 0:
            more = max(more, len(self.latest))
            self.latest = np.concatenate([self.latest, np.full(more, -1)])
            self.times = np.concatenate([self.times, np.full(more, START)])
            self.alive = np.concatenate([self.alive, np.zeros(more, np.bool_)])
        return codes


@dataclass(frozen=True)
class AsOfSlots(KeyedSlots):
    """The state of one as-of join; ``runs`` are from old to new. `prepare` is called in the order of settling."""

    node: AsOf
    logic: AsOfRows
    runs: list[HeldRows] = field(default_factory=list)
    found: list[LatestRows] = field(default_factory=list)
    limits: list[int] = field(default_factory=lambda: [LEAST_ROWS])

    @property
    def rows(self) -> int:
        return self.waiting.rows + sum(run.rows for run in tuple(self.runs))

    @property
    def bytes(self) -> int:
        held = sum(int(run.batch.nbytes) for run in tuple(self.runs))
        return self.waiting.bytes + held + sum(each.nbytes for each in tuple(self.found))

    def shard_bytes(self) -> Array:
        sizes = np.zeros(SHARDS)
        for run in tuple(self.runs):
            shards = shards_of(self.logic.hashes(run.table), SHARDS)
            sizes += np.bincount(shards, minlength=SHARDS) * (run.batch.nbytes / run.rows)
        return sizes

    def prepare(self, settled: Settled) -> Matched:
        """Match what is settled, and keep the last right tuple of each key."""
        from tidegate.operators.as_of_loops import match_last

        logic, latest = self.logic, self._latest()
        lefts, rights = (entries_with_keys(self.node, settled, side) for side in SIDES)
        arrived = logic.arrived(settled, rights)
        codes = latest.numbered([contiguous(arrived.column(name)) for name in logic.key_names])
        left = settled.entries[LEFT]
        whole = len(lefts) == len(left.rows)
        left_codes = latest.numbering.find(
            [column if whole else column.take(pa.array(lefts)) for column in left.columns]
        )
        first = self._stop
        numbers, kept = match_last(
            settled.times[LEFT][left.rows[lefts]],
            left_codes,
            as_numpy(arrived.column(TIME)).copy(),
            codes,
            _marks(arrived.column(ALIVE)),
            first,
            latest.latest,
            latest.times,
            latest.alive,
            ANY_DISTANCE if self.node.tolerance_us is None else self.node.tolerance_us,
        )
        seen = self._held
        if len(rights):
            seen = seen.with_rows(first, _batch(arrived))
            stays = arrived if len(kept) == len(rights) else arrived.take(pa.array(kept))
            latest.latest[codes[kept]] = first + np.arange(len(kept))
            self.runs.append(HeldRows(first, _batch(stays), logic.until(stays)))
        self._tidy(latest, settled.watermark)
        return Matched(lefts, numbers, seen)

    def process(self, settled: Settled, prepared: Matched, owned: Array | None) -> Iterator[pa.Table]:
        lefts, numbers, rows = prepared
        entries = settled.entries[LEFT]
        if owned is not None:
            mine = owned[entries.shards[lefts]]
            lefts, numbers = lefts[mine], numbers[mine]
        places, partners = lefts[numbers >= 0], numbers[numbers >= 0]
        matches = rows.take(partners, names=self.logic.kept_names)
        if self.node.keeps_unmatched:
            every = np.arange(len(entries.rows)) if owned is None else np.flatnonzero(owned[entries.shards])
            if len(places) < len(every):
                at = np.full(len(entries.rows), -1, np.int64)
                at[places] = np.arange(len(places))
                places, of = every, at[every]
                matches = matches.take(pa.array(of, mask=of < 0))
        if len(places):
            yield self.logic.results(settled, places, matches)

    def restore_run(self, rows: pa.Table) -> HeldRows:
        """Take rows in, at least one, behind those that are held; what they are held as."""
        from tidegate.operators.as_of_loops import match_last

        none, latest = np.empty(0, np.int64), self._latest()
        codes = latest.numbered([contiguous(rows.column(name)) for name in self.logic.key_names])
        arrived = as_numpy(rows.column(TIME)).copy(), codes, _marks(rows.column(ALIVE)), self._stop
        match_last(none, none, *arrived, latest.latest, latest.times, latest.alive, 0)
        self.runs.append(HeldRows(self._stop, _batch(rows), self.logic.until(rows)))
        return self.runs[-1]

    @property
    def _stop(self) -> int:
        """The number that the next row gets."""
        return self.runs[-1].first + self.runs[-1].rows if self.runs else 0

    @property
    def _held(self) -> RowBatches:
        return RowBatches(
            self.logic.schema, tuple(run.batch for run in self.runs), tuple(run.first for run in self.runs)
        )

    def _latest(self) -> LatestRows:
        if not self.found:
            self.found.append(LatestRows(KeyNumbering.of(self.node.key_schema.types)))
        return self.found[0]

    def _tidy(self, latest: LatestRows, watermark: Watermark) -> None:
        """Merge small runs; where many rows do not count any more, begin anew with the others. Nothing counts at the end."""
        if has_ended(watermark):
            self.runs.clear()
            self.found.clear()
        while (chosen := merge_candidates([run.rows for run in self.runs], MOST_ROWS)) is not None:
            merged = [self.runs[place] for place in chosen]
            self.runs[chosen.start : chosen.stop] = [self._merged(merged)]
        if sum(run.rows for run in self.runs) <= self.limits[0]:
            return
        counts = latest.alive.copy()
        if self.node.tolerance_us is not None:
            counts &= latest.times >= watermark - self.node.tolerance_us
        numbers = np.sort(latest.latest[counts])
        self.limits[0] = LEAST_ROWS + 2 * len(numbers)
        if sum(run.rows for run in self.runs) <= self.limits[0]:
            return
        rows = self._held.take(numbers)
        self.runs.clear()
        self.found.clear()
        if rows.num_rows:
            self.restore_run(rows)

    def _merged(self, runs: Sequence[HeldRows]) -> HeldRows:
        """Neighbours as one, numbered as they are."""
        batch = pa.concat_batches([run.batch for run in runs])
        return HeldRows(runs[0].first, batch, max(run.until for run in runs))


def _batch(rows: pa.Table) -> pa.RecordBatch:
    """Rows, at least one, as one batch."""
    return rows.combine_chunks().to_batches()[0]


def _marks(column: pa.ChunkedArray) -> Array:
    # Copied, since loops are compiled anew for arrays that cannot be written, as those of Arrow.
    return np.array(column.to_numpy(), np.bool_)
