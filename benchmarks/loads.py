"""Open-loop loads: a workload's tuples, due a few at every tick of the clock, whether or not the query keeps up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
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
from tidegate.runtime.local.origins import Paced

POOL = Batching(200_000, 50_000)
TUPLES_PER_EVENT_SECOND = 1_000
STEP_US = 1_000_000 // TUPLES_PER_EVENT_SECOND


@dataclass(frozen=True, slots=True)
class Pool:
    """Tuples to draw from over and over, made before the clock starts; only their times are made when they are due."""

    workload: Workload
    rows: pa.RecordBatch

    @classmethod
    def of(cls, workload: Workload, seed: int) -> Pool:
        data = prepare(InputSpec(workload.input_kind, POOL, seed, TUPLES_PER_EVENT_SECOND), CACHE)
        names = list(columns_read(workload))
        table = pa.concat_tables([pq.read_table(file, columns=names) for file in data.files])
        return cls(workload, table.combine_chunks().to_batches()[0])

    def batch(self, first: int, rows: int) -> pa.RecordBatch:
        """The tuples from number `first` on, at most until the pool begins anew."""
        at = first % self.rows.num_rows
        drawn = self.rows.slice(at, rows)
        times = START_US + (first + np.arange(drawn.num_rows)) * STEP_US
        ts = pa.array(times).cast(self.rows.schema.field("ts").type)
        return pa.RecordBatch.from_arrays([ts, *drawn.columns[1:]], schema=self.rows.schema)

    def query(self, origin: object) -> tg.Stream:
        return query_of(tg.stream(origin, time="ts", schema=self.rows.schema), self.workload)


@dataclass(slots=True)
class Load:
    """A pool at a rate. `began` is when the first batch was due, by the monotonic clock; None until the query starts."""

    pool: Pool
    tuples_per_second: float
    ticks_per_second: int
    began: float | None = None

    def origin(self) -> Paced:
        return Paced(self._batches())

    def due(self, now: float) -> float:
        """How many tuples are due by now."""
        return 0.0 if self.began is None else max(now - self.began, 0.0) * self.tuples_per_second

    def _batches(self) -> Iterator[tuple[float, pa.RecordBatch]]:
        self.began = time.monotonic()
        first = 0
        for tick in itertools.count():
            until = round((tick + 1) * self.tuples_per_second / self.ticks_per_second)
            while first < until:
                batch = self.pool.batch(first, until - first)
                yield tick / self.ticks_per_second, batch
                first += batch.num_rows
