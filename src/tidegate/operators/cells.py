"""What a runtime that owns cells needs: their instances, and the interface of the operators that work in them.

A cell's operator gives work to its instances in two forms: items that any instance may take (`spread`), and one task per
instance over the shards mapped to it (`run`). The caller stays on its own thread and is the only one to touch what must not
be shared. Which instance computes a shard cannot change a result.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from tidegate.errors import QueryError
from tidegate.operators.columns import Array
from tidegate.state.epochs import SHARDS_OF_A_STEP
from tidegate.watermark import Watermark

if TYPE_CHECKING:
    from tidegate.operators.exchange import Delta
    from tidegate.query.nodes import Stateful
    from tidegate.state.chunks import ChunkStore

SHARDS = 256  # of a cell, or of a subquery in process
MOST_INSTANCES = SHARDS
MOST_CELLS = SHARDS_OF_A_STEP
LEAST_SHARED = 32_768
"""So many panes are merged and emitted in about the time that it takes to wake another thread and wait for it."""
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class Instances:
    """So many instances; threads live inside the ``with`` block, and one instance is the caller's own thread.

    ``busy_seconds`` is how long instances have worked, added up.

    >>> with Instances(2) as instances:
    ...     print(instances.spread(abs, [-1, 2]), list(instances.run([iter("ac"), iter("b")])))
    [1, 2] ['a', 'b', 'c']
    """

    number: int
    busy_seconds: float = 0.0
    _pool: ThreadPoolExecutor | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __enter__(self) -> Instances:
        if self.number > 1:
            # Threads are started when there is work for them, and not before.
            self._pool = ThreadPoolExecutor(self.number, "tidegate-instance")
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def shares(self, work: int = LEAST_SHARED) -> list[Array | None]:
        """The shards of each instance, in turn; None for all of them, where ``work`` is too little to be shared."""
        if self.number == 1 or work < LEAST_SHARED:
            return [None]
        return [np.arange(SHARDS) % self.number == instance for instance in range(self.number)]

    def spread(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results of some work on each item, in the order of the items; an instance takes the next when it is free."""
        if self._pool is None or len(items) == 1:
            return [self._timed(work, item) for item in items]
        return list(self._pool.map(partial(self._timed, work), items))

    def run(self, tasks: Sequence[Iterator[Result]]) -> Iterator[Result]:
        """The results of the tasks, in turn, as long as they last; task ``i`` is that of instance ``i``.

        A task is one step ahead: it computes its next result while its last one is being consumed. So no more waits in
        memory than one result of each, and the order is the same at every run.
        """
        if self._pool is None or len(tasks) == 1:
            for task in tasks:
                while (result := self._timed(next, task, _END)) is not _END:
                    yield result
            return
        step: Callable[..., Future[Result]] = partial(self._pool.submit, self._timed, next)
        ahead = [(task, step(task, _END)) for task in tasks]
        while ahead:
            going = []
            for task, future in ahead:
                if (result := future.result()) is not _END:
                    going.append((task, step(task, _END)))
                    yield result
            ahead = going

    def _timed(self, work: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return work(*arguments)
        finally:
            with self._lock:
                self.busy_seconds += time.perf_counter() - began


_END: Any = object()


def checked_number(instances: Any) -> int:
    """A number of instances of a cell; refused unless every one of them can have a shard."""
    if not isinstance(instances, int) or isinstance(instances, bool) or not 1 <= instances <= MOST_INSTANCES:
        raise QueryError(
            f"the instances of a cell are a number from 1 to {MOST_INSTANCES}, its shards; got {instances!r}"
        )
    return instances


def checked_cells(cells: Any) -> tuple[int, int]:
    """The least and the most cells of a stateful step, from one number or from both.

    >>> checked_cells(4), checked_cells((1, 8))
    ((4, 4), (1, 8))
    """
    given = cells if isinstance(cells, tuple | list) else (cells, cells)
    numbers = [each for each in given if isinstance(each, int) and not isinstance(each, bool)]
    if len(given) != 2 or len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] <= MOST_CELLS:
        raise QueryError(
            f"the cells of a stateful step are a number from 1 to {MOST_CELLS}, or the least and the most of them, such as "
            f"(1, 8); got {cells!r}"
        )
    return numbers[0], numbers[1]


class OpenCell(Protocol):
    """A cell at work in one batch, over the chunks of the batches before."""

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Add what a batch brings, none of it late, then advance to the watermark after it; returns the results.

        State is as it is after the batch when this returns, and may be committed. Results may be computed as they are
        consumed; a consumer may leave some.
        """
        ...


@dataclass(frozen=True, slots=True)
class CellLogic:
    """How the cells of one stateful step work: a value that is shipped to workers."""

    kind: Callable[[Any, int, ChunkStore, Instances], OpenCell]
    node: Stateful

    def open(self, cell: int, store: ChunkStore, instances: Instances) -> OpenCell:
        """A cell, by its number, over what it kept."""
        return self.kind(self.node, cell, store, instances)


class HasRows(Protocol):
    """Something of so many rows, such as a chunk."""

    @property
    def rows(self) -> int: ...


Part = TypeVar("Part", bound=HasRows)


def worth_merging(chunks: Sequence[Part], rows: int, most: int) -> list[Part]:
    """The first of some chunks that so many rows are merged with where there are ``most``, or more.

    They are half as many, and more as long as they are not much larger; so a row is rewritten a logarithmic number of times.
    """
    taken = 0
    while taken < len(chunks) and (taken < max(most // 2, 1) or chunks[taken].rows <= 2 * rows):
        rows += chunks[taken].rows
        taken += 1
    return list(chunks[:taken])


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_LARGEST = 1 << 30


@cache
def keep_memory() -> bool:
    """Let this process reuse the memory of large columns; returns whether the system allows it.

    By default glibc maps every large array anew and unmaps it when it is freed, and Arrow's own pool returns memory soon:
    each batch then pays for tens of thousands of page faults, a quarter of the time of small kernels. It is for worker
    processes that do nothing else, since it changes the whole process: memory stays at the peak of what batches needed.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    pa.set_memory_pool(pa.system_memory_pool())
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _LARGEST))
