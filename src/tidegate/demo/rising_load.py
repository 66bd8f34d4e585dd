"""A load that rises to ten times and falls again, on a query in this process that follows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidegate.elastic.options import Elastic
from tidegate.query.aggregates import count
from tidegate.sources.in_memory import Paced
from tidegate.start import start
from tidegate.stream import stream

TIME = pa.timestamp("us", tz="UTC")
BATCH_SECONDS = 0.02
COST_SECONDS = 0.0005
PHASES = ((2.0, 400), (3.0, 4_000), (3.0, 400))
"""Seconds and calls per second; an instance completes 2,000 calls per second."""


def follow_rising_load(ledger: Path, phases: tuple[tuple[float, int], ...] = PHASES) -> tuple[int, int]:
    """Run the query, with its decisions in a ledger; returns how many calls were sent and how many counted.

    Takes as long as the phases do. Each call waits half a millisecond for a service that rates it.
    """
    sent = [0]
    counted: list[int] = []
    query = (
        stream(Paced(_calls(phases, sent)), time="ts", schema={"ts": TIME, "src": pa.int64()}, name="calls")
        .map_batches(_rate)
        .key_by("src")
        .window("100 milliseconds")
        .aggregate(calls=count(), name="per_customer")
    )
    job = start(
        query,
        to=lambda table: counted.append(sum(table["calls"].to_pylist())),
        instances=(1, 6),
        segment_rows=100,
        elastic=Elastic(ledger=ledger),
    )
    job.wait()
    return sent[0], sum(counted)


def _rate(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(batch.num_rows * COST_SECONDS)
    return batch


def _calls(phases: tuple[tuple[float, int], ...], sent: list[int]) -> Iterator[tuple[float, pa.RecordBatch]]:
    number = 0
    for seconds, rate in phases:
        for _ in range(round(seconds / BATCH_SECONDS)):
            rows = int(rate * BATCH_SECONDS)
            times = number * 20_000 + np.arange(rows) * 20_000 // rows
            number += 1
            sent[0] += rows
            columns = [pa.array(times).cast(TIME), pa.array(times % 97)]
            yield number * BATCH_SECONDS, pa.record_batch(columns, ["ts", "src"])
