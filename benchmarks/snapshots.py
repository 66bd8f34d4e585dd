"""What do snapshots of a run in this process cost, and how long does a run take to go on from one?

Wordcount with two instances runs with a checkpoint, a snapshot every second, and without, in turns: once over files as fast
as it can, and once under a load that does not wait, files that appear at a rate in a folder which is followed. Compared are
processor seconds per tuple, and the latency of results under the load: from when the file was due whose tuples released a
window until its rows are given to the sink. With a checkpoint rows are visible to readers of the folder once a snapshot
lists them, as always; that is not in the latency.

Then queries are filled until they hold so many tuples in state, left behind a snapshot, and started again in the same
process: a recovery is over when a tuple that came behind the snapshot has been read.
"""

from __future__ import annotations

import gc
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from benchmarks.engines.tidegate_query import query_of
from benchmarks.inputs import Input, InputSpec, prepare
from benchmarks.machine import describe
from benchmarks.options import CACHE, MOVED, Options
from benchmarks.report import write_json
from benchmarks.stored_state import COLUMNS, KINDS, LOADED_ROWS, TUPLES, Kind, Tuples
from benchmarks.workloads import WORDCOUNT, Batching
from tidegate.runtime.local.job import LocalJob
from tidegate.runtime.local.sinks import Sink

EVERY = "1 second"
INSTANCES = 2
FILE_ROWS, FILES = 10_000, 600
TUPLES_PER_SECOND = 400_000
"""Of the load: a fifth of what two instances can do on two cores."""
WARM_UP = 0.2
"""The share of the load's windows that is not counted."""
PATIENCE_SECONDS = 600.0
RECOVERED = KINDS | {"windows": Kind(lambda rows: rows.key_by("key").window("1 day").aggregate(n=tg.count()))}
"""The queries that are recovered, over tuples in order: what a source holds back out of order is no state of a query."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run took: processor and wall seconds, snapshots, and latencies of windows in milliseconds."""

    cpu_seconds: float
    seconds: float
    snapshots: int
    latencies_ms: tuple[float, ...] = ()


@dataclass(slots=True)
class TimedSink:
    """Notes when the rows of each window were given to a sink, and hands them on."""

    inner: Sink
    given: dict[int, float] = field(default_factory=dict)

    def write(self, table: pa.Table, output: int = 0) -> None:
        now = time.monotonic()
        for end in table["window_end"].unique().cast(pa.int64()).to_pylist():
            self.given[end] = now
        self.inner.write(table, output)

    def close(self, complete: bool) -> None:
        self.inner.close(complete)


def run(options: Options) -> int:
    """Measure both, and print what is held against the goals."""
    if options.of and not set(options.of) <= set(MOVED):
        raise ValueError(f"--of names queries that are recovered: {', '.join(MOVED)}")
    content: dict[str, Any] = {"workload": "snapshots", "machine": describe(), "every": EVERY}
    rows = FILE_ROWS if options.tuples is None else max(options.tuples // FILES, 1)
    rate = options.rate or TUPLES_PER_SECOND
    with _scratch("tidegate-snapshots-") as work:
        content |= cost(rows, rate, options, work)
        content["recoveries"] = [recovery(name, options, work / name) for name in options.of or MOVED]
    path = options.out / "snapshots.json"
    write_json(path, content)
    print(f"written to {path}")
    return 0


def cost(file_rows: int, rate: int, options: Options, work: Path) -> dict[str, Any]:
    """What snapshots cost on wordcount: as fast as it can, and under a load."""
    spec = InputSpec("tweets", Batching(file_rows * FILES, file_rows), options.seed, options.tuples_per_second)
    data = prepare(spec, CACHE)
    _at_full_speed(data, None, work)  # compiles
    found: dict[str, Any] = {"input": {"tuples": data.tuples, "seed": options.seed, "tuples_per_second": rate}}
    for name, measure in (("full speed", _at_full_speed), ("under load", lambda *given: _under_load(rate, *given))):
        runs: dict[bool, list[Spent]] = {False: [], True: []}
        for number in range(options.runs):
            for durable in (False, True):
                checkpoint = work / f"checkpoint-{number}" if durable else None
                runs[durable].append(measure(data, checkpoint, work))
                if checkpoint is not None:
                    shutil.rmtree(checkpoint)
        found[name] = _compared(name, data.tuples, runs[False], runs[True])
    return found


def _at_full_speed(data: Input, checkpoint: Path | None, work: Path) -> Spent:
    query = query_of(tg.stream(str(data.folder / "*.parquet"), time="ts"), WORDCOUNT)
    with _scratch("results-", work) as results:
        cpu, clock = time.process_time(), time.monotonic()
        job = _start(query, results, checkpoint)
        job.wait()
        return Spent(time.process_time() - cpu, time.monotonic() - clock, _snapshots(job))


def _under_load(rate: int, data: Input, checkpoint: Path | None, work: Path) -> Spent:
    with _scratch("results-", work) as results, _scratch("load-", work) as folder:
        query = query_of(tg.stream(str(folder / "*.parquet"), time="ts", schema=_schema(data), follow=True), WORDCOUNT)
        sources = [file for file in data.files if pq.read_metadata(file).num_rows]
        begin = time.monotonic() + 1.0
        due = begin + np.arange(len(sources)) * (data.tuples / len(sources)) / rate
        job = _start(query, results, checkpoint)
        sink = job.running.collector.sink = TimedSink(job.running.sink)
        feeder = threading.Thread(target=_appear, args=(sources, due, folder), daemon=True)
        cpu, clock = time.process_time(), time.monotonic()
        feeder.start()
        feeder.join()
        _wait_for(job, lambda: job.rows == data.tuples)
        spent = time.process_time() - cpu, time.monotonic() - clock, _snapshots(job)
        latest = [_latest(file) for file in sources]
        job.cancel()
    # A window is released by the first file that has a tuple at its end or later.
    latencies = [
        1e3 * (given - due[np.searchsorted(latest, end)])
        for end, given in sorted(sink.given.items())
        if end <= latest[-1]
    ]
    return Spent(*spent, tuple(latencies[int(WARM_UP * len(latencies)) :]))


def _appear(sources: Sequence[Path], due: np.ndarray[Any, Any], folder: Path) -> None:
    """Let each file appear in a folder when it is due."""
    for number, (file, moment) in enumerate(zip(sources, due, strict=True)):
        time.sleep(max(moment - time.monotonic(), 0.0))
        os.link(file, folder / f"{number:06}.parquet")


def _compared(name: str, tuples: int, without: Sequence[Spent], within: Sequence[Spent]) -> dict[str, Any]:
    before, after = (statistics.median(each.cpu_seconds for each in runs) for runs in (without, within))
    found: dict[str, Any] = {
        "cpu_us_per_tuple": [round(1e6 * each / tuples, 4) for each in (before, after)],
        "cpu_ratio": round(after / before, 4),
        "seconds": [round(statistics.median(each.seconds for each in runs), 2) for runs in (without, within)],
        "snapshots": [each.snapshots for each in within],
        "cpu_seconds": [[round(each.cpu_seconds, 3) for each in runs] for runs in (without, within)],
    }
    print(
        f"{name}: {tuples:,} tuples, {1e6 * before / tuples:.3f} µs of processors each without snapshots, "
        f"{1e6 * after / tuples:.3f} with {statistics.median(found['snapshots']):g} of them: {after / before - 1:+.1%}"
    )
    if all(each.latencies_ms for each in (*without, *within)):
        for share in (50, 99):
            both = [
                float(np.percentile([ms for each in runs for ms in each.latencies_ms], share))
                for runs in (without, within)
            ]
            found[f"p{share}_ms"] = [round(each, 2) for each in both]
            more = both[1] - both[0]
            print(f"  p{share} of results {both[0]:.1f} ms without, {both[1]:.1f} ms with snapshots: {more:+.1f} ms")
    return found


def recovery(name: str, options: Options, work: Path) -> dict[str, Any]:
    """Fill a query with state, leave it behind a snapshot, and start it again."""
    kept = KeptState(name, options.tuples or TUPLES, Tuples(RECOVERED[name], options.seed), work)
    state_rows, state_bytes = kept.fill()
    written = sum(file.stat().st_size for file in (work / "checkpoint" / "state").rglob("*") if file.is_file())
    took = [kept.recover(number) for number in range(options.runs)]
    seconds = statistics.median(took)
    print(
        f"{name}: {state_rows:,} states, {state_bytes / 1e6:,.0f} MB in memory, {written / 1e6:,.0f} MB in the checkpoint; "
        f"goes on after {seconds:.2f} s ({', '.join(f'{each:.2f}' for each in took)})"
    )
    shutil.rmtree(work)
    return {
        "query": name,
        "tuples": kept.tuples,
        "state_rows": state_rows,
        "state_bytes": state_bytes,
        "checkpoint_bytes": written,
        "recovery_s": round(seconds, 3),
        "runs_s": [round(each, 3) for each in took],
    }


@dataclass(frozen=True, slots=True)
class KeptState:
    """A query over a folder, with a checkpoint beside it, that is filled with so many tuples and started again."""

    name: str
    tuples: int
    drawn: Tuples
    work: Path

    def start(self) -> LocalJob:
        files = str(self.work / "in" / "*.parquet")
        rows = tg.stream(files, time="ts", ahead=None, schema=COLUMNS, follow=True)
        return _start(RECOVERED[self.name].query(rows), self.work / "out", self.work / "checkpoint")

    def fill(self) -> tuple[int, int]:
        """Leave a run behind a snapshot of all tuples; how many states it held, and in how many bytes."""
        (self.work / "in").mkdir(parents=True)
        job = self.start()
        for number, first in enumerate(range(0, self.tuples, LOADED_ROWS)):
            rows = min(LOADED_ROWS, self.tuples - first)
            _put(self.drawn.stored(rows, first, self.tuples), self.work / "in" / f"a-{number:05}.parquet")
        _wait_for(job, lambda: job.rows == self.tuples)
        seen = _snapshots(job)
        # The one that was under way when the last tuple was read, and another.
        _wait_for(job, lambda: _snapshots(job) >= seen + 2)
        job.cancel()
        return job.state_rows, job.state_bytes

    def recover(self, number: int) -> float:
        """The seconds from the start of a run until it reads a tuple that came behind the snapshot."""
        gc.collect()
        _put(self.drawn.next(1_000), self.work / "in" / f"b-{number:05}.parquet")
        began = time.monotonic()
        job = self.start()
        _wait_for(job, lambda: job.rows > 0)
        seconds = time.monotonic() - began
        job.cancel()
        return seconds


def _start(query: tg.Stream, results: Path, checkpoint: Path | None) -> LocalJob:
    return tg.start(query, to=results, checkpoint=checkpoint, every=EVERY, instances=INSTANCES)


def _snapshots(job: LocalJob) -> int:
    """How many snapshots a run has committed; 0 without a checkpoint."""
    durable = job.running.durable
    return 0 if durable is None or durable.checkpoint.last is None else durable.checkpoint.last.number


def _wait_for(job: LocalJob, condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if job.wait(0.005) or time.monotonic() > deadline:  # raises if the run failed
            raise RuntimeError(f"what was waited for has not come: {job!r}")


def _put(table: pa.Table, file: Path) -> None:
    """Write a file that appears whole."""
    draft = file.with_name(f".{file.name}")
    pq.write_table(table, draft)
    draft.rename(file)


def _schema(data: Input) -> pa.Schema:
    return pq.read_schema(data.files[0]).remove_metadata()


def _latest(file: Path) -> int:
    """The newest time in a file of the load, in microseconds."""
    return int(pq.read_table(file, columns=["ts"])["ts"][-1].cast(pa.int64()).as_py())


@contextmanager
def _scratch(prefix: str, within: Path | None = None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
