"""The tuples of one side in sorted runs, so that those in a range are found by bisection (as in an LSM tree)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.operators.joins.adjacent import merge_candidates
from tidegate.operators.joins.columns import Columns, concatenated

MOST_ROWS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class SortedRun:
    """Tuples sorted by their ``order``; ``number`` is the latest segment they come from, and times lie in low … high."""

    number: int
    columns: Columns
    low: int
    high: int

    @staticmethod
    def of(number: int, columns: Columns) -> SortedRun:
        return SortedRun(number, columns, int(columns.times.min()), int(columns.times.max()))


def merged(runs: list[SortedRun], least_time: int) -> SortedRun | None:
    """One run of several, without tuples before ``least_time``; None if nothing is left."""
    joined = concatenated([run.columns for run in runs])
    if joined.times.min() < least_time:
        joined = joined.take(joined.times >= least_time)
    if len(joined) == 0:
        return None
    assert joined.order is not None
    return SortedRun.of(max(run.number for run in runs), joined.take(np.argsort(joined.order, kind="stable")))


def mergeable(runs: list[SortedRun], settled: int, span: int) -> list[SortedRun]:
    """Neighbours worth merging, of segments up to ``settled``, that together take no more than ``span`` of time.

    The span bounds what is held in vain: a run is dropped as a whole, when its last tuple is not needed any more.
    """
    ready = [run for run in runs if run.number <= settled]
    chosen = merge_candidates([len(run.columns) for run in ready], MOST_ROWS)
    if chosen is None:
        return []
    found = [ready[place] for place in chosen]
    return found if max(run.high for run in found) - min(run.low for run in found) <= span else []
