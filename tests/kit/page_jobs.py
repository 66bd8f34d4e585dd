"""Jobs and ledgers that the page is tested on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidegate as tg
from tests.kit.ledger_loops import Holding, Machine, Swinging, observed
from tidegate.compile.compiler import compile_query
from tidegate.compile.draw import draw_plan
from tidegate.control.controller import Limits
from tidegate.control.events import Flowed, Notice, Noticed
from tidegate.control.loop import ControlLoop
from tidegate.control.rules import Rule
from tidegate.telemetry.ledger import Ledger

TIME = pa.timestamp("us", tz="UTC")
BATCH_SECONDS = 0.02


def calls_query(seconds: float, cost_seconds: float = 0.0) -> tg.Stream:
    """Two steps over calls that come by a schedule, few at first and then many; each waits for a service so long."""

    def batches() -> Iterator[tuple[float, pa.RecordBatch]]:
        for number in range(round(seconds / BATCH_SECONDS)):
            rows = 10 if number * BATCH_SECONDS < seconds / 4 else 60
            times = number * 20_000 + np.arange(rows) * 20_000 // rows
            columns = [pa.array(times).cast(TIME), pa.array(times % 97)]
            yield number * BATCH_SECONDS, pa.record_batch(columns, ["ts", "src"])

    def wait(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(batch.num_rows * cost_seconds)
        return batch

    calls = tg.stream(tg.paced(batches()), time="ts", schema={"ts": TIME, "src": pa.int64()}, name="calls")
    customers = (
        calls.map_batches(wait, name="rated")
        .key_by("src")
        .window("100 milliseconds")
        .aggregate(calls=tg.count(), name="per_customer")
    )
    return customers.key_by("src").window("1 second").aggregate(calls=tg.sum("calls"), name="per_second")


def swinging_ledger(path: Path, steps: int = 6, name: str = "q") -> Path:
    """A ledger of one run, with a graph, in which each step is a change and a shadow holds."""
    rows = pa.table({"ts": pa.array([0], TIME), "k": ["a"]})
    query = tg.stream(rows, time="ts", name="calls").key_by("k").window("1 second").aggregate(n=tg.count(), name="q")
    with Ledger.open(path, f"run of {name}", draw_plan(compile_query(query.node, "local"))) as ledger:
        machine = Machine()
        loop = ControlLoop(Rule(Swinging(), Limits(1, 4), shadows=(Holding(),)), machine, ledger)
        for step in range(steps):
            seen = observed(5.0 * (step + 1), machine.instances, name)
            loop.step(replace(seen, mapping=(0, machine.instances - 1)))
            rates = (("source calls", name, 200.0), (name, "", 20.0))
            ledger(Flowed("", -1, 5.0 * (step + 1), rates, (0.01, 0.02, float("inf"))))
        ledger(Noticed(name, steps - 1, 5.0 * steps, Notice.INSTANCES_LOST, "2 became 1"))
    return path
