"""What the windowed benchmarks compute, and in which micro-batches they are fed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

InputKind = Literal["tweets", "keyed"]


@dataclass(frozen=True, slots=True)
class Batching:
    """How an input is cut: `batches` files of `batch_rows` tuples, the last one possibly shorter."""

    tuples: int
    batch_rows: int

    def __post_init__(self) -> None:
        if self.batch_rows < 1 or self.batches < 2:
            raise ValueError(
                f"{self.tuples:,} tuples make fewer than two micro-batches of {self.batch_rows:,}, so no state is read "
                "back: give more --tuples or fewer --batch-rows"
            )

    @property
    def batches(self) -> int:
        return -(-self.tuples // max(self.batch_rows, 1))

    @property
    def label(self) -> str:
        """The batch as ratios name it: 50k, 250k, 1m."""
        return short_count(self.batch_rows)


@dataclass(frozen=True, slots=True)
class Workload:
    """One windowed aggregation by key, described independently of the engine that runs it.

    A tuple belongs to every window `[l * every, l * every + size)` that holds its time. Its keys are the set of its
    words (`pair_distance` 0), the set of ordered pairs of its words at most `pair_distance` apart, or its `key` column.
    Results have the columns `window_start`, `keys` and `aggregates`, in this order.
    """

    name: str
    summary: str
    input_kind: InputKind
    size_seconds: int
    every_seconds: int
    keys: tuple[str, ...]
    aggregates: tuple[str, ...]
    batchings: tuple[Batching, ...]
    pair_distance: int = 0
    driver_memory_gb: int = 4  # the heap that native Spark needs for its state

    def __post_init__(self) -> None:
        if self.size_seconds % self.every_seconds:
            raise ValueError(
                f"workload {self.name!r}: window size ({self.size_seconds} s) must be a multiple of its advance "
                f"({self.every_seconds} s), because the batch engines expand a tuple into a fixed number of windows"
            )

    @property
    def windows_per_tuple(self) -> int:
        return self.size_seconds // self.every_seconds

    @property
    def columns(self) -> tuple[str, ...]:
        return ("window_start", *self.keys, *self.aggregates)


def short_count(count: int) -> str:
    """A count as 50k or 1m where that is exact, else in full."""
    if count and count % 1_000_000 == 0:
        return f"{count // 1_000_000}m"
    if count and count % 1_000 == 0:
        return f"{count // 1_000}k"
    return str(count)


THREE_BATCHINGS = (Batching(1_000_000, 50_000), Batching(1_000_000, 250_000), Batching(4_000_000, 1_000_000))

WORDCOUNT = Workload(
    name="wordcount",
    summary="tweets per word, windows of 120 s every 60 s",
    input_kind="tweets",
    size_seconds=120,
    every_seconds=60,
    keys=("word",),
    aggregates=("tweets",),
    batchings=THREE_BATCHINGS,
)


def _paircount(name: str, distance: int) -> Workload:
    return Workload(
        name=name,
        summary=f"tweets per ordered pair of words at most {distance} apart, windows of 120 s every 60 s",
        input_kind="tweets",
        size_seconds=120,
        every_seconds=60,
        keys=("left", "right"),
        aggregates=("tweets",),
        batchings=(Batching(200_000, 50_000),),
        pair_distance=distance,
        driver_memory_gb=4 if distance < 10 else 8,
    )


PAIRCOUNT_L = _paircount("paircount-l", 3)
PAIRCOUNT_M = _paircount("paircount-m", 10)
PAIRCOUNT_H = _paircount("paircount-h", 18)  # any distance: a tweet has at most 19 words

KEYED = Workload(
    name="keyed",
    summary="count and mean by one of 1,000 keys, windows of 60 s every 10 s",
    input_kind="keyed",
    size_seconds=60,
    every_seconds=10,
    keys=("key",),
    aggregates=("n", "mean"),
    batchings=THREE_BATCHINGS,
)

WINDOWED = {workload.name: workload for workload in (WORDCOUNT, PAIRCOUNT_L, PAIRCOUNT_M, PAIRCOUNT_H, KEYED)}
