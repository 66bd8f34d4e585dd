"""The tuples of one side of a join that instances share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidegate.operators.joins.column_log import ColumnLog
from tidegate.operators.joins.columns import Columns
from tidegate.operators.joins.read_side import Arrived, ReadSide, dtype_of
from tidegate.operators.joins.row_store import RowStore
from tidegate.operators.joins.sorted_runs import SortedRun, mergeable, merged

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class JoinSide:
    """Rows, and their arrays: in a log in the order of arrival, or in sorted runs. Changed under the join's lock.

    Tuples are numbered as they arrive. ``head`` is the number of the first that is still needed.
    """

    reader: ReadSide
    sorted: bool
    head: int = 0
    tail: int = 0
    rows: RowStore = field(init=False)
    log: ColumnLog = field(init=False)
    runs: list[SortedRun] = field(default_factory=list)
    _latest: deque[tuple[int, int]] = field(default_factory=deque)
    _in_order_from: int = 0

    def __post_init__(self) -> None:
        schema = self.reader.node.inputs[self.reader.side].schema
        self.rows = RowStore(schema)
        kinds = tuple(dtype_of(column) for column in self.reader.columns)
        self.log = ColumnLog(0, kinds)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + (
            sum(run.columns.nbytes for run in tuple(self.runs)) if self.sorted else self.log.nbytes
        )

    def add(self, number: int, arrived: Arrived) -> None:
        """Number the tuples of a segment and let them be seen."""
        size = len(arrived.columns)
        if size == 0:
            return
        columns = arrived.columns.arrived_from(self.tail)
        if self._latest and columns.times.min() < self._latest[-1][1]:
            self._in_order_from = self.tail
        self.rows.add(arrived.rows)
        if self.sorted:
            self.runs = [*self.runs, SortedRun.of(number, columns)]
        else:
            self.log.add(columns)
        self.tail += size
        self._latest.append((self.tail, int(columns.times.max())))

    @property
    def in_order(self) -> bool:
        """Whether the tuples in the log are in the order of time."""
        return self.head >= self._in_order_from

    def forget(self, least_time: int) -> None:
        """Drop tuples before a time, as far as they arrived before all others."""
        while self._latest and self._latest[0][1] < least_time:
            self.head = self._latest.popleft()[0]
        self.rows.forget(self.head)
        self.log.forget(self.head)
        if any(run.high < least_time for run in self.runs):
            self.runs = [run for run in self.runs if run.high >= least_time]

    def codes_held(self) -> Iterable[Array]:
        """All numbers that may be codes of texts."""
        held = [run.columns for run in self.runs] if self.sorted else [self.log.view(self.head, self.tail)]
        for columns in held:
            yield from columns.keys
            read = zip(columns.values, self.reader.columns, strict=True)
            yield from (values for values, column in read if column.kind == "text")

    def mergeable_runs(self, settled: int, span: int) -> list[SortedRun]:
        """Runs worth merging; none if there are no runs."""
        return mergeable(self.runs, settled, span) if self.sorted else []

    def replace_runs(self, gone: list[SortedRun], made: SortedRun | None) -> None:
        """Put a merged run in the place of its parts, if all are still held."""
        places = {id(run): place for place, run in enumerate(self.runs)}
        if all(id(run) in places for run in gone):
            first = places[id(gone[0])]
            kept = [] if made is None else [made]
            self.runs = [*self.runs[:first], *kept, *self.runs[first + len(gone) :]]


def merge_runs(runs: list[SortedRun], least_time: int) -> SortedRun | None:
    """One run of several; touches no shared state."""
    return merged(runs, least_time)


def new_tuples(arrived: Arrived, first: int) -> Columns:
    """The tuples of a segment with the numbers they got."""
    return arrived.columns.arrived_from(first)
