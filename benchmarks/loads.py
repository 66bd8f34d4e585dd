"""Open-loop loads: a workload's tuples, due a few at every tick of the clock, whether or not the query keeps up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from benchmarks.engines.csv_input import columns_read
from benchmarks.engines.tidegate_query import query_of
from benchmarks.inputs import START_US, InputSpec, prepare
from benchmarks.options import CACHE
from benchmarks.workloads import Batching, Workload
from tidegate.sources.in_memory import Paced

POOL = Batching(200_000, 50_000)
TUPLES_PER_EVENT_SECOND = 1_000
STEP_US = 1_000_000 // TUPLES_PER_EVENT_SECOND
BLOCK_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Pool:
    """Tuples to draw from over and over, made before the clock starts; only their times are made when they are due.

    ``inputs`` holds the tuples of each input; they are due in turn, one of each. ``build`` makes the query of as many
    streams. After ``fill`` tuples its windows are full, and what it does for a tuple does not grow any more.
    """

    inputs: tuple[pa.RecordBatch, ...]
    build: Callable[..., tg.Stream]
    fill: int = 0

    @classmethod
    def of(cls, workload: Workload, seed: int) -> Pool:
        data = prepare(InputSpec(workload.input_kind, POOL, seed, TUPLES_PER_EVENT_SECOND), CACHE)
        names = list(columns_read(workload))
        table = pa.concat_tables([pq.read_table(file, columns=names) for file in data.files])
        return cls((table.combine_chunks().to_batches()[0],), lambda stream: query_of(stream, workload))

    def batch(self, first: int, rows: int, part: int = 0) -> pa.RecordBatch:
        """The tuples of an input from number `first` on, at most until the pool begins anew."""
        held = self.inputs[part]
        drawn = held.slice(first % held.num_rows, rows)
        times = START_US + ((first + np.arange(drawn.num_rows)) * len(self.inputs) + part) * STEP_US
        ts = pa.array(times).view(held.schema.field("ts").type)
        return pa.RecordBatch.from_arrays([ts, *drawn.columns[1:]], schema=held.schema)

    def query(self, *origins: object) -> tg.Stream:
        both = enumerate(zip(origins, self.inputs, strict=True), start=1)
        return self.build(
            *(tg.stream(origin, time="ts", schema=rows.schema, name=f"input {at}") for at, (origin, rows) in both)
        )


@dataclass(slots=True)
class Load:
    """A pool at a rate. `began` is when the first batch was due, by the monotonic clock; None until the query starts."""

    pool: Pool
    tuples_per_second: float
    ticks_per_second: int
    began: float | None = None

    def origins(self) -> list[Paced]:
        """One for each input of the pool's query."""
        return [Paced(self._batches(part)) for part in range(len(self.pool.inputs))]

    def due(self, now: float) -> float:
        """How many tuples are due by now."""
        return 0.0 if self.began is None else max(now - self.began, 0.0) * self.tuples_per_second

    def _batches(self, part: int) -> Iterator[tuple[float, pa.RecordBatch]]:
        self.began = time.monotonic()
        first, begin = 0, 0
        block = self.pool.batch(0, BLOCK_ROWS, part)
        for tick in itertools.count():
            until = round((tick + 1) * self.tuples_per_second / self.ticks_per_second / len(self.pool.inputs))
            while first < until:
                if first == begin + block.num_rows:
                    begin, block = first, self.pool.batch(first, BLOCK_ROWS, part)
                # Cut from a block: making a batch for every tick would take the time of those who are measured.
                batch = block.slice(first - begin, until - first)
                yield tick / self.ticks_per_second, batch
                first += batch.num_rows
