"""Does anything get lost, doubled or left behind when instances change all the time? (a long run at 70 % of the load)

A count by key runs in this process under an open-loop load. Every 50 ms another number of instances or another mapping of
shards is asked for, at random. Results are counted as they come: keys, counts and sums of every window are held against
those of the tuples that were sent, window by window. Memory is printed over time: a line through its second half says
whether it grows.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

import tidegate as tg
from benchmarks.loads import TUPLES_PER_EVENT_SECOND, Pool
from benchmarks.options import Options
from benchmarks.reconfigure import BATCHES_PER_SECOND, LOAD, sustained
from benchmarks.workloads import WINDOWED
from tidegate.operators.cells import SHARDS
from tidegate.runtime.local.job import LocalJob
from tidegate.sources.in_memory import Paced

Array = np.ndarray[Any, Any]

SECONDS = 600.0
SECONDS_BETWEEN_CHANGES = 0.05
SECONDS_BETWEEN_READINGS = 1.0
READINGS_SHOWN = 10
"""Every so many readings, one is printed."""
MOST_INSTANCES = 8
SIZE_US, EVERY_US = 60_000_000, 10_000_000  # of the query's windows
US_PER_TUPLE = 1_000_000 // TUPLES_PER_EVENT_SECOND
KEYS = 1_000
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("key", pa.int64()), ("value", pa.float64())])
LATEST = 16
FLAT_MB_PER_MINUTE = 2.0


@dataclass(slots=True)
class Sent:
    """A load without end whose every window is known beforehand: key and value follow from the number of a tuple.

    Tuple i has the time i / 1,000 s, the key i · 7 mod 1,000 and the value i mod 8.
    """

    rows: int
    batches: int
    stop: threading.Event = field(default_factory=threading.Event)
    tuples: int = 0

    def __iter__(self) -> Iterator[tuple[float, pa.RecordBatch]]:
        for number in range(self.batches):
            if self.stop.is_set():
                return
            index = np.arange(number * self.rows, (number + 1) * self.rows)
            times = pa.array(index * US_PER_TUPLE).cast(SCHEMA.field("ts").type)
            values = pa.array((index % 8).astype(np.float64))
            self.tuples += self.rows
            batch = pa.record_batch([times, pa.array(index * 7 % KEYS), values], schema=SCHEMA)
            yield number / BATCHES_PER_SECOND, batch


@dataclass(slots=True)
class Checked:
    """The results of a run, held against what was sent, window after window as they come; what was checked is not kept."""

    wrong: list[str] = field(default_factory=list)
    _due: int = -SIZE_US + EVERY_US
    _open: dict[int, list[Array]] = field(default_factory=dict)

    def __call__(self, table: pa.Table) -> None:
        """Take results in. They come in the order of windows, so all but the latest window are complete."""
        starts = np.asarray(table.column("window_start").cast(pa.int64()))
        counts = np.asarray(table.column("n"))
        rows = np.stack([np.asarray(table.column("key")), counts, np.rint(np.asarray(table.column("mean")) * counts)])
        for start in np.unique(starts).tolist():
            self._open.setdefault(start, []).append(rows[:, starts == start])
        for start in sorted(self._open)[:-LATEST]:
            self._check(start, None)

    def end(self, tuples: int) -> None:
        """Check the last windows, given how many tuples there were."""
        for start in sorted(self._open):
            self._check(start, tuples)
        last = (tuples - 1) * US_PER_TUPLE // EVERY_US * EVERY_US
        if self._due != last + EVERY_US:
            self.wrong.append(f"the last window is {self._due - EVERY_US}, should be {last}")

    def _check(self, start: int, tuples: int | None) -> None:
        """Hold the results of one window against the tuples in it: every key once, all tuples, all values."""
        if start != self._due:
            self.wrong.append(f"window {start} came where {self._due} was due")
        self._due = start + EVERY_US
        keys, counts, sums = np.concatenate(self._open.pop(start), axis=1)
        low, high = max(start // US_PER_TUPLE, 0), (start + SIZE_US) // US_PER_TUPLE
        high = high if tuples is None else min(high, tuples)
        found = (len(keys), len(set(keys.tolist())), int(counts.sum()), int(sums.sum()))
        due = (min(high - low, KEYS), min(high - low, KEYS), high - low, _values_before(high) - _values_before(low))
        if found != due:
            self.wrong.append(f"window {start}: results, keys, tuples and sum are {found}, should be {due}")


def _values_before(tuples: int) -> int:
    """The sum of the values of the first tuples: 0 to 7, over and over."""
    rounds, rest = divmod(tuples, 8)
    return 28 * rounds + rest * (rest - 1) // 2


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a run came to."""

    tuples: int
    changes: int
    results: int
    wrong: list[str]
    resident_mb: list[tuple[float, float]]
    p99_latency_ms: float
    p50_change_ms: float
    max_change_ms: float

    def mb_per_minute(self) -> float:
        """The slope of memory after the first fifth of the run."""
        settled = self.resident_mb[len(self.resident_mb) // 5 :]
        if len(settled) < 3:
            return 0.0
        seconds, resident = np.array(settled).T
        return float(np.polyfit(seconds, resident, 1)[0] * 60)


def run(options: Options) -> int:
    """Ten minutes, or as many seconds as ``--seconds`` says; 1 if a result is wrong or memory grows."""
    rate = LOAD * sustained(Pool.of(WINDOWED["keyed"], options.seed))
    seconds = options.seconds or SECONDS
    print(f"{seconds:,.0f} s at {rate:,.0f} tuples/s, 70 % of what two instances sustain; a change every 50 ms")
    done = soak(seconds, rate, options.seed, show=True)
    slope = done.mb_per_minute()
    flat = "flat" if slope <= FLAT_MB_PER_MINUTE else "GROWING"
    print(
        f"{done.tuples:,} tuples, {done.changes:,} changes, {done.results:,} results, {len(done.wrong)} of them wrong"
    )
    print(
        f"change p50 {done.p50_change_ms:.2f} ms, max {done.max_change_ms:.2f} ms; latency p99 {done.p99_latency_ms:.1f} ms"
    )
    print(f"memory after the first fifth: {slope:+.2f} MB a minute, {flat}")
    for line in done.wrong[:20]:
        print(line)
    return int(bool(done.wrong) or slope > FLAT_MB_PER_MINUTE)


def query(origin: Any) -> tg.Stream:
    """Count and mean by key, windows of 60 s every 10 s."""
    tuples = tg.stream(origin, time="ts", schema=SCHEMA)
    return tuples.key_by("key").window("60 seconds", every="10 seconds").aggregate(n=tg.count(), mean=tg.mean("value"))


def soak(seconds: float, rate: float, seed: int, show: bool = False) -> Soaked:
    """Run under load with a random change every 50 ms, to a whole number of batches, then to the end of all windows."""
    rows = max(round(rate / BATCHES_PER_SECOND), 1)
    sent = Sent(rows, max(round(seconds * BATCHES_PER_SECOND), 1))
    checked = Checked()
    began = time.monotonic()
    job = tg.start(query(Paced(sent)), to=checked, instances=(2, MOST_INSTANCES))
    resident: list[tuple[float, float]] = []
    try:
        took = list(_changes(job, began + seconds, random.Random(seed), resident, show))
        sent.stop.set()
        job.wait()
        checked.end(sent.tuples)
    finally:
        job.cancel()
    return Soaked(
        sent.tuples,
        len(took),
        job.results,
        checked.wrong,
        resident,
        1e3 * (job.latencies.quantile(0.99) or 0.0),
        1e3 * float(np.median(took)),
        1e3 * max(took),
    )


def _changes(
    job: LocalJob, until: float, choose: random.Random, resident: list[tuple[float, float]], show: bool
) -> Iterator[float]:
    """Ask for change after change until a moment; gives the seconds each took. Reads memory on the way."""
    process = psutil.Process()
    began = next_change = next_reading = time.monotonic()
    while next_change < until:
        time.sleep(max(next_change - time.monotonic(), 0.0))
        instances = choose.randint(1, MOST_INSTANCES)
        mapping = [choose.randrange(instances) for _ in range(SHARDS)] if choose.random() < 0.5 else None
        yield job.reconfigure(instances=instances, mapping=mapping).seconds
        next_change = max(next_change + SECONDS_BETWEEN_CHANGES, time.monotonic())
        if time.monotonic() >= next_reading:
            next_reading += SECONDS_BETWEEN_READINGS
            resident.append((time.monotonic() - began, process.memory_info().rss / 1e6))
            if show and len(resident) % READINGS_SHOWN == 1:
                print(f"{resident[-1][0]:6.0f} s {resident[-1][1]:8.1f} MB {job.results:>14,} results", flush=True)
