"""An input as CSV, for engines whose packages read no parquet; writing it is set-up, reading it is measured."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.inputs import Input
from benchmarks.workloads import Workload


def columns_read(workload: Workload) -> tuple[str, ...]:
    return ("ts", "key", "value") if workload.input_kind == "keyed" else ("ts", "text")


def write_csv(
    data: Input, workload: Workload, folder: Path, ts_type: pa.DataType, parts: int = 1, header: bool = True
) -> pa.Table:
    """Write the input into `parts` files, part k of n holding the tuples k, k + n, k + 2n, …, each in order of time.

    Gives back the tuples. Event times are `ts_type`: an integer of microseconds, or a time without a zone.
    """
    names = list(columns_read(workload))
    tuples = pa.concat_tables([pq.read_table(file, columns=names) for file in data.files])
    ts = tuples["ts"].cast(pa.timestamp("us")) if pa.types.is_timestamp(ts_type) else tuples["ts"]
    tuples = tuples.set_column(0, "ts", ts.cast(ts_type, safe=False))
    folder.mkdir(parents=True)
    for part in range(parts):
        rows = tuples.take(np.arange(part, tuples.num_rows, parts)) if parts > 1 else tuples
        csv.write_csv(rows, folder / f"part-{part}.csv", csv.WriteOptions(include_header=header))
    return tuples


def cores() -> int:
    return os.cpu_count() or 1
