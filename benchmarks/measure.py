"""Measuring several engines on one input: warm up each, then take turns, and check every answer."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.compare import Agreement, Mismatch, compare, digest, load, sort
from benchmarks.engine_process import EngineFailed, EngineProcess, Run
from benchmarks.engines import EngineSpec
from benchmarks.inputs import Input
from benchmarks.workloads import Workload

MEMORY_BESIDE_HEAP_GB = 2


def say(message: str) -> None:
    """A line of progress, apart from the figures on standard output."""
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Trial:
    """An engine and what it runs on: the input or, for a slow one, the beginning of it, and the right results, sorted."""

    spec: EngineSpec
    data: Input
    judge: pl.DataFrame


@dataclass(slots=True)
class Contender:
    """An engine in the running: its runs so far and the fingerprint of its first answer."""

    trial: Trial
    process: EngineProcess
    runs: list[Run] = field(default_factory=list)
    first_digest: tuple[int, int, int] | None = None
    agreement: Agreement | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """All measured runs of an engine, whose answers were right."""

    engine: str
    tuples: int
    runs: tuple[Run, ...]
    output_rows: int
    agreement: Agreement


@dataclass(frozen=True, slots=True)
class Session:
    """One workload on one input, or on the beginning of it; each engine gets a folder in `scratch`."""

    workload: Workload
    runs: int
    driver_memory_gb: int
    scratch: Path

    def measure(self, trials: Sequence[Trial]) -> tuple[list[Measured], list[str]]:
        """The figures of all engines that gave right answers, and a message for each that did not."""
        measured: list[Measured] = []
        failures: list[str] = []
        for group in groups_that_fit(trials, self.driver_memory_gb, psutil.virtual_memory().available):
            with ExitStack() as processes:
                contenders = [found for trial in group if (found := self._enter(trial, processes, failures))]
                for turn in range(1, self.runs + 1):
                    contenders = [contender for contender in contenders if self._take_turn(contender, turn, failures)]
            for contender in contenders:
                assert contender.first_digest is not None and contender.agreement is not None
                rows = contender.first_digest[0]
                trial, runs = contender.trial, tuple(contender.runs)
                measured.append(Measured(trial.spec.name, trial.data.tuples, runs, rows, contender.agreement))
        return measured, failures

    def _enter(self, trial: Trial, processes: ExitStack, failures: list[str]) -> Contender | None:
        """Start an engine and warm it up; None, and a message in `failures`, if that fails."""
        name = trial.spec.name
        try:
            process = EngineProcess(name, self.workload.name, self.scratch / name, self.driver_memory_gb)
            processes.callback(process.stop)
            warmed = process.run(trial.data)
        except EngineFailed as failure:
            failures.append(str(failure))
            say(f"  {name}: failed while warming up")
            return None
        say(f"  {name}: warm after {warmed.timing.seconds:.1f} s")
        return Contender(trial, process)

    def _take_turn(self, contender: Contender, turn: int, failures: list[str]) -> bool:
        """Run an engine once and check its answer; whether it stays in the running.

        Its first batches go before, unmeasured: while others had their turn, the system may have taken its pages.
        """
        name, data = contender.trial.spec.name, contender.trial.data
        try:
            contender.process.run(first_batches(data))
            run = contender.process.run(data)
            folder = contender.process.collect()
            self._check(contender, folder)
            shutil.rmtree(folder)
        except (EngineFailed, Mismatch) as failure:
            failures.append(str(failure))
            say(f"  {name}: out of the running in run {turn}")
            return False
        contender.runs.append(run)
        seconds = run.timing.seconds
        rate = data.tuples / seconds
        say(f"  {name}: run {turn}, {seconds:.2f} s, {rate:,.0f} tuples/s, {run.peak_mb:,.0f} MB")
        return True

    def _check(self, contender: Contender, folder: Path) -> None:
        """Compare the first answer with the judge's row by row, and later ones with the first by fingerprint."""
        trial = contender.trial
        name = trial.spec.name
        results = load(folder, self.workload)
        fingerprint = digest(results)
        if contender.first_digest is None:
            due_by = latest_watermark(trial.data) if trial.spec.on_spark else None
            contender.agreement = compare(name, sort(results, self.workload), trial.judge, self.workload, due_by)
            contender.first_digest = fingerprint
        elif contender.first_digest != fingerprint:
            first = contender.first_digest[0]
            raise Mismatch(f"{name}: a later run gave other rows than the first ({results.height:,}, {first:,} before)")


def first_batches(data: Input) -> Input:
    """As much of the input as reads state back once."""
    files = data.files[:2]
    return Input(data.folder, files, sum(pq.read_metadata(file).num_rows for file in files))


def groups_that_fit(trials: Sequence[Trial], driver_memory_gb: int, available_bytes: int) -> list[tuple[Trial, ...]]:
    """All engines as one group that takes turns if their heaps fit into memory together.

    Else the peers with environments of their own are a group apart, and if that does not do, each engine is alone.
    """

    def fits(group: Sequence[Trial]) -> bool:
        heaps_gb = [trial.spec.heap_gb or driver_memory_gb for trial in group if trial.spec.jvm]
        return sum(heap_gb + MEMORY_BESIDE_HEAP_GB for heap_gb in heaps_gb) * 2**30 <= available_bytes

    if fits(trials):
        return [tuple(trials)]
    apart = [tuple(trial for trial in trials if trial.spec.peer is peer) for peer in (False, True)]
    if all(fits(group) for group in apart):
        say(
            "  not enough memory for all Java heaps at once: peers in environments of their own take turns by themselves"
        )
        return [group for group in apart if group]
    say("  not enough memory for all Java heaps at once: engines run one after the other, not in turns")
    return [(trial,) for trial in trials]


def latest_watermark(data: Input) -> datetime:
    """What the watermark has surely reached before the last batch: the last event time until then, less 1 ms."""
    latest: datetime = pc.max(pq.read_table(data.files[-2], columns=["ts"])["ts"]).as_py()
    return latest - timedelta(milliseconds=1)
