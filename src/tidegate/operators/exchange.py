"""What reaches the cells of a stateful step: panes, combined where tuples come in, or whole tuples, routed by their keys.

An *intake* takes the tuples of one feed of a step, runs the steps before it, leaves out and counts what is late, and gives
deltas for cells. Whether they cross an exchange or stay in one process is the runtime's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError, InternalError
from tidegate.operators.columns import Array, as_numpy, expand_ranges, in_time_order
from tidegate.operators.joins.near import near_of
from tidegate.operators.keys import key_hashes, key_sets, step_shards
from tidegate.operators.session_tables import SessionTables
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.event_time import check_times
from tidegate.query.keys import Columns, KeyParts, Keys, OneForAll
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Join,
    KeyedApply,
    Running,
    SessionAggregate,
    Stateful,
    WindowAggregate,
)
from tidegate.query.predicates.tree import Side
from tidegate.query.schema import conform, contiguous
from tidegate.state import chunks
from tidegate.state.chunks import Piece
from tidegate.state.epochs import SHARDS_OF_A_STEP, SIDE, CellEpoch
from tidegate.state.pair_grid import PairGrid
from tidegate.watermark import START, Watermark

ROWS_AT_ONCE = 65_536
THREADS = 2
LEAST_WITH_MANY_KEYS = 8_192
MOST_PANES = 4_000_000
MOST_BYTES = 64 * 1024**2
_WRAP = 1 << 64


@dataclass(frozen=True, slots=True)
class Delta:
    """What an intake has for a cell: panes in the order of their slices, or tuples of the input ``side`` in that of time."""

    rows: pa.Table
    side: int = 0


@dataclass(frozen=True, slots=True)
class Routing:
    """Entry ``i``: tuple ``rows[i]`` goes to the cell ``cells[i]``. A tuple goes to a cell once, or nowhere.

    ``loads`` are how many tuples each shard gets; one with several keys counts for each.
    """

    rows: Array
    cells: Array
    loads: Array


class Router(Protocol):
    """Routes the tuples of one input to cells."""

    def __call__(self, tuples: pa.Table) -> Routing: ...


@dataclass(frozen=True, slots=True)
class RouteByKeys:
    """A tuple goes to every cell that has a shard of one of its keys; its event time says which where one is handed over."""

    keys: Keys
    epoch: CellEpoch
    time: str = ""

    def __call__(self, tuples: pa.Table) -> Routing:
        found = key_sets(self.keys, tuples)
        shards = step_shards(key_hashes(found.columns)) if len(found) else np.empty(0, np.int64)
        loads = count_shards(shards)
        if found.rows is None:
            if self.epoch.handover is None:
                return Routing(np.arange(len(shards)), self.epoch.array[shards], loads)
            return Routing(*route(self.epoch, shards, times_of(tuples, self.time)), loads)
        assert self.epoch.handover is None, "tuples with many keys are never handed over"
        cells = self.epoch.array[shards]
        _, first = np.unique(found.rows * (int(cells.max(initial=0)) + 1) + cells, return_index=True)
        kept = np.sort(first)
        return Routing(found.rows[kept], cells[kept], loads)


def route(epoch: CellEpoch, shards: Array, times: Array) -> tuple[Array, Array]:
    """Which rows go to which cells, by the shard and the time of each; those that two cells need go to both."""
    cells, before = epoch.array[shards], epoch.previous[shards]
    handover, rows = epoch.handover, np.arange(len(shards))
    if handover is None:
        return rows, cells
    new = rows[(cells == before) | (times >= handover.switch)]
    old = rows[(cells != before) & (times < handover.last)]
    return np.concatenate([new, old]), np.concatenate([cells[new], before[old]])


@dataclass(frozen=True, slots=True)
class RouteOnGrid:
    """A tuple goes to every cell that has a shard in its line of the grid.

    So the tuples of each pair meet, and each cell tries its share of all pairs. The line is told by what a tuple holds, so
    that a task that is run again routes it alike.
    """

    side: Side
    epoch: CellEpoch
    grid: PairGrid

    def __call__(self, tuples: pa.Table) -> Routing:
        shards, of_shards = tuple_shards(tuples), self.grid.line_of_shards(self.side)
        lines = shards % self.grid.lines(self.side)
        width = max(self.epoch.cells) + 1
        found = np.unique(of_shards * width + self.epoch.array)
        cells_of = np.bincount(found // width)
        counts, starts = cells_of[lines], (np.cumsum(cells_of) - cells_of)[lines]
        _, places = expand_ranges(starts, counts)
        rows = np.repeat(np.arange(len(lines)), counts)
        return Routing(rows, (found % width)[places], self._loads(shards, lines, of_shards))

    def _loads(self, shards: Array, lines: Array, of_shards: Array) -> Array:
        """How much work each shard gets: what goes to every cell alike burdens none of them in particular."""
        if self.grid.is_square:
            return np.bincount(lines, minlength=SIDE)[of_shards]
        return count_shards(shards if self.side in self.grid.judged else shards[:0])


def count_shards(shards: Array) -> Array:
    """How often each shard of a step occurs."""
    return np.bincount(shards, minlength=SHARDS_OF_A_STEP)


def tuple_shards(tuples: pa.Table) -> Array:
    """The shard of each tuple of a join on a grid, by what it holds; its line is that, modulo their number."""
    # Lists and structs are left out; the event time is always there.
    columns = [contiguous(column) for column in tuples.columns if not pa.types.is_nested(column.type)]
    return step_shards(key_hashes(columns))


def tuple_piece(tuples: pa.Table, time: str) -> Piece:
    """Encode tuples, at least one, in the order of their time."""
    tuples, times = in_time_order(tuples.combine_chunks(), times_of(tuples, time))
    return Piece(int(times[0]), int(times[-1]), len(times), chunks.encode(tuples))


def times_of(tuples: pa.Table, time: str) -> Array:
    """The event times of tuples in microseconds."""
    return as_numpy(tuples.column(time))


def known_times_of(tuples: pa.Table, time: str, step: str) -> Array:
    """The event times of tuples that reach a stateful step; refused unless all have one."""
    column = contiguous(tuples.column(time))
    if column.null_count:
        raise DataError(
            f"step '{step}': {column.null_count} tuples have no event time in '{time}'; filter them out before"
        )
    return as_numpy(column)


def split_late(tuples: pa.Table, times: Array, least: int) -> tuple[pa.Table, pa.Table | None]:
    """Tuples from a time on, and those before it; None if there are none."""
    if len(times) == 0 or int(times.min()) >= least:
        return tuples, None
    late = times < least
    return tuples.filter(pa.array(~late)), tuples.filter(pa.array(late))


def first_in_time(operator: Stateful, watermark: Watermark) -> int:
    """The earliest event time at which a tuple from a source is not late for an operator."""
    match operator:
        case WindowAggregate(window=window) | BagAggregate(window=window):
            return window.least_arriving(watermark)
        case Join():
            return near_of(operator).least_arriving(watermark)
        case SessionAggregate(session=session):
            return session.least_arriving(watermark)
        case KeyedApply() | Running() | Dedup() | CountAggregate() | AsOf() | CountJoin():
            return watermark
        case _:
            raise InternalError(f"no lateness is known for {type(operator).__name__}")


@dataclass(slots=True)
class Arrived:
    """How many tuples came on a feed, how many were late, sums over their times that tell inputs apart, and the latest.

    They do not depend on the order of tuples, so attempts of one batch have the same.
    """

    tuples: int = 0
    late: int = 0
    times: int = 0
    squares: int = 0
    latest: Watermark = START

    @classmethod
    def of(cls, times: Array, late: int) -> Arrived:
        """What some tuples add."""
        latest = int(times.max()) if len(times) else START
        with np.errstate(over="ignore"):
            return cls(len(times), late, int(times.sum()) % _WRAP, int(np.dot(times, times)) % _WRAP, latest)

    def __add__(self, other: Arrived) -> Arrived:
        return Arrived(
            self.tuples + other.tuples,
            self.late + other.late,
            (self.times + other.times) % _WRAP,
            (self.squares + other.squares) % _WRAP,
            max(self.latest, other.latest),
        )


_Parts: TypeAlias = tuple[dict[int, pa.Table], Array | None]
"""What each cell gets of some tuples, and how many go to each shard, where that is known."""
_Worked: TypeAlias = tuple[_Parts, Arrived, pa.Table | None]
"""What became of some tuples: what cells get, what arrived, and what is late."""


@dataclass(slots=True, eq=False)
class Intake(ABC):
    """Takes the tuples of one feed in one task and gives deltas for cells.

    ``epoch`` maps shards to cells; None where there is one cell. ``prepare`` applies the steps before the operator,
    ``least`` is the first event time that is not late; None where tuples come from another stateful step, of which none is.
    With ``keep_late`` late tuples are kept in ``late_tuples``. ``loads`` are how many panes or tuples each shard got.
    Work runs on `THREADS` threads: most of it releases the GIL, and a task often has a second core to itself. No more
    tables wait than there are threads.
    """

    operator: Stateful
    side: int
    epoch: CellEpoch | None
    schema: pa.Schema
    time: str
    prepare: Callable[[pa.Table], pa.Table]
    least: int | None
    keep_late: bool = False
    arrived: Arrived = field(default_factory=Arrived)
    late_tuples: list[pa.Table] = field(default_factory=list)
    loads: Array = field(default_factory=lambda: np.zeros(SHARDS_OF_A_STEP, np.int64))
    _pool: ThreadPoolExecutor | None = None
    _held: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _working: deque[Future[_Worked]] = field(default_factory=deque)
    _waiting: dict[int, list[pa.Table]] = field(default_factory=dict)

    def add(self, tuples: pa.Table) -> None:
        """Take some tuples."""
        if tuples.num_rows:
            self._held.append(tuples)
            self._rows += tuples.num_rows
            if self._rows >= ROWS_AT_ONCE:
                self._submit()

    def finish(self) -> Iterator[tuple[int, Delta]]:
        """The deltas of all tuples that were taken and not given yet, each with its cell."""
        try:
            if self._held and self._pool is None and not self._is_much(self._rows):
                # So little that no other thread is needed.
                self._keep(self._work(self._gathered()))
            elif self._held:
                self._submit(THREADS if self._pool is None else 1)
            while self._working:
                self._keep(self._working.popleft().result())
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
                self._pool = None
        yield from self.give()

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether what is held takes so much memory that it should be given now."""

    @abstractmethod
    def give(self) -> Iterator[tuple[int, Delta]]:
        """The deltas of what was worked on so far."""

    @abstractmethod
    def _parts(self, tuples: pa.Table) -> _Parts:
        """What becomes of some tuples, on any thread."""

    def _gathered(self) -> pa.Table:
        table, self._held, self._rows = pa.concat_tables(self._held).combine_chunks(), [], 0
        return table

    def _submit(self, shares: int = 1) -> None:
        """Work on what is held, in some shares, on other threads."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "tidegate-intake")
        table = self._gathered()
        edges = [table.num_rows * share // shares for share in range(shares + 1)]
        for start, stop in pairwise(edges):
            if len(self._working) == THREADS:
                self._keep(self._working.popleft().result())
            self._working.append(self._pool.submit(self._work, table.slice(start, stop - start)))

    def _is_much(self, tuples: int) -> bool:
        """Whether so few tuples that one thread would do are still worth sharing out."""
        return False

    def _keep(self, worked: _Worked) -> None:
        (parts, loads), arrived, late = worked
        self.arrived += arrived
        if loads is not None:
            self.loads += loads
        if late is not None:
            self.late_tuples.append(late)
        for cell, part in parts.items():
            if part.num_rows:
                self._waiting.setdefault(cell, []).append(part)

    def _work(self, table: pa.Table) -> _Worked:
        tuples = conform(self.prepare(table), self.schema)
        times = known_times_of(tuples, self.time, self.operator.name)
        if self.least is None:
            return self._parts(tuples), Arrived.of(times, 0), None
        check_times(times, f"step '{self.operator.name}'", self.time)
        timely, late = split_late(tuples, times, self.least)
        arrived = Arrived.of(times, 0 if late is None else late.num_rows)
        return self._parts(timely), arrived, late if self.keep_late else None


class PaneIntake(Intake):
    """Combines tuples into panes, or stretches of sessions: past `MOST_PANES` they are to be given."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        assert isinstance(self.operator, WindowAggregate | SessionAggregate)
        self._panes: Panes | SessionTables = (
            Panes(self.operator) if isinstance(self.operator, WindowAggregate) else SessionTables(self.operator)
        )

    @property
    def is_full(self) -> bool:
        return bool(sum(panes.num_rows for panes in self._waiting.get(0, ())) > MOST_PANES)

    def give(self) -> Iterator[tuple[int, Delta]]:
        if not self._waiting:
            return
        parts = self._waiting.pop(0)
        if self.epoch is None and len(parts) <= THREADS:
            # The cell merges them with what it has.
            yield from ((0, Delta(part)) for part in parts)
            return
        merged = self._panes.merge(parts)
        if self.epoch is None:
            yield 0, Delta(merged)
            return
        shards = step_shards(self._panes.hashes(merged))
        self.loads += count_shards(shards)
        rows, cells = route(self.epoch, shards, self._panes.begins(merged))
        # Panes are in the order of their slices, and stay so in each cell.
        ordered, start = merged.take(pa.array(rows[np.lexsort((rows, cells))])), 0
        for cell, count in enumerate(np.bincount(cells).tolist()):
            if count:
                yield cell, Delta(self._panes.compacted(ordered.slice(start, count)))
            start += count

    def _parts(self, tuples: pa.Table) -> _Parts:
        return {0: self._panes.lift(tuples)}, None

    def _is_much(self, tuples: int) -> bool:
        """A tuple with many keys is as much work as many tuples."""
        assert isinstance(self.operator, WindowAggregate | SessionAggregate)
        return tuples >= LEAST_WITH_MANY_KEYS and not isinstance(self.operator.keys, Columns | OneForAll | KeyParts)


class TupleIntake(Intake):
    """Routes whole tuples: past `MOST_BYTES` what was routed is to be given."""

    def __init__(self, router: Router, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._router = router

    @property
    def is_full(self) -> bool:
        return bool(sum(part.nbytes for parts in self._waiting.values() for part in parts) > MOST_BYTES)

    def give(self) -> Iterator[tuple[int, Delta]]:
        waiting, self._waiting = self._waiting, {}
        made: dict[tuple[int, ...], pa.Table] = {}
        for cell in sorted(waiting):
            parts = tuple(map(id, waiting[cell]))
            if parts not in made:
                joined = pa.concat_tables(waiting[cell]).combine_chunks()
                made[parts], _ = in_time_order(joined, times_of(joined, self.time))
            yield cell, Delta(made[parts], self.side)

    def _parts(self, tuples: pa.Table) -> _Parts:
        if self.epoch is None or tuples.num_rows == 0:
            return {0: tuples}, None
        routing = self._router(tuples)
        parts = {}
        for cell in np.unique(routing.cells).tolist():
            rows = routing.rows[routing.cells == cell]
            # Cells that get all tuples get one table.
            parts[cell] = tuples if len(rows) == tuples.num_rows else tuples.take(pa.array(rows))
        return parts, routing.loads
