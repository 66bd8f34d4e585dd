"""What does it cost to share and to order tuples when nothing else is done with them? (STRETCH, Q2 and operator 6.)

Two inputs are merged in order, and every tuple is handed out once per instance, by each of them: n outputs for one input.
For each number of instances: the highest sustainable rate, and the latency at half of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

import tidegate as tg
from benchmarks.loads import Pool
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import write_json
from benchmarks.sweep import SPAN_SECONDS, sweep_pool
from benchmarks.workloads import WINDOWED
from tidegate.query.column_form import Contributions
from tidegate.query.forms import Updated

INSTANCES = (1, 2, 4, 8)


def run(options: Options) -> int:
    """Sweep each number of instances; 1 if one of them sustained no rate at all."""
    tweets = Pool.of(WINDOWED["wordcount"], options.seed).inputs
    swept = []
    for instances in INSTANCES:
        pool = Pool(2 * tweets, forward_to(instances))
        swept.append({"copies": instances, **sweep_pool(f"forward-{instances}", pool, instances, options)})
    content = {"workload": "forward", "input": {"seed": options.seed, "span_s": options.span_seconds or SPAN_SECONDS}}
    path = options.out / "forward.json"
    write_json(path, {**content, "machine": describe(), "rows": swept, "ratios": {}})
    print(f"\nwritten to {path}")
    return 0 if all(row["tuples_per_second"] is not None for row in swept) else 1


def forward_to(copies: int) -> Callable[[tg.Stream, tg.Stream], tg.Stream]:
    """The query that hands out every tuple of two streams once for each of so many keys."""

    def every_key(batch: pa.RecordBatch) -> pa.ListArray:
        ends = np.arange(batch.num_rows + 1, dtype=np.int32) * copies
        return pa.ListArray.from_arrays(ends, np.tile(np.arange(1, copies + 1), batch.num_rows))

    def query(left: tg.Stream, right: tg.Stream) -> tg.Stream:
        keys = tg.keys(every_key, columns={"copy": pa.int64()}, reads=["text"])
        both = tg.gather(left.key_by(keys), right.key_by(keys)).unbounded()
        made = {"copy": pa.int64(), "text": pa.string()}
        return both.apply_columns(update=payloads, state={}, returns=made, ordered=False)

    return query


def payloads(batch: Contributions) -> Updated:
    """f_U: no state, and each tuple's payload for each of its keys."""
    rows = {"copy": batch.windows.keys["copy"].take(batch.slots), "text": batch.column("text")}
    return tg.updated({}, rows=rows, of=np.arange(len(batch)))
