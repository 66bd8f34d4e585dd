"""A windowed benchmark from options to exit code: inputs, judge, engines, figures."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from benchmarks import ladder, machine, memory, report
from benchmarks.compare import load, sort
from benchmarks.engine_process import EngineProcess
from benchmarks.engines import ENGINES, JUDGES, EngineSpec, expand_names
from benchmarks.inputs import Input, InputSpec, prepare
from benchmarks.measure import Session, Trial, say
from benchmarks.options import CACHE, Options
from benchmarks.workloads import Batching, Workload

USUAL_BATCHES = 4
PARTS_OF_A_BEGINNING = 10


def run_windowed(workload: Workload, options: Options) -> int:
    """Run `workload` on every chosen engine at every batch size; 1 if an engine failed or gave a wrong answer."""
    if options.data is not None and workload.input_kind != "tweets":
        raise ValueError(f"--data holds tweets, but {workload.name} reads generated keys and values; leave it out")
    specs = [spec for spec in installed_engines(options.engines) if spec.windowed]
    batchings = choose_batchings(workload, options)
    described = machine.describe()
    versions = ", ".join(f"{name} {number}" for name, number in described["versions"].items())
    say(f"{workload.name}: {workload.summary}")
    say(f"machine: {described['cores']} cores, {described['cpu']}, {described['memory_gb']} GB; {versions}")

    rows: list[report.Row] = []
    failures: list[str] = []
    compared: dict[str, dict[str, int]] = {}
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as scratch:
        judge = Judge(workload, options, Path(scratch))
        for index, batching in enumerate(batchings):
            chosen = [spec for spec in specs if spec.on_spark or index == 0]
            if not chosen:
                continue
            say(f"input: {batching.tuples:,} tuples in {batching.batches} batches of {batching.batch_rows:,}")
            trials = [_trial(spec, workload, batching, options, judge) for spec in chosen]
            heap_gb = options.driver_memory_gb or workload.driver_memory_gb
            session = Session(workload, options.runs, heap_gb, Path(scratch) / f"at-{batching.label}")
            measured, failed = session.measure(trials)
            failures += failed
            for found in measured:
                batch = batching.label if ENGINES[found.engine].on_spark else report.ONE_BATCH
                rows.append(report.row_from_runs(found.engine, batch, found.tuples, found.runs, found.output_rows))
                compared[f"{found.engine}@{batch}"] = {"windows": found.agreement.windows, "rows": found.agreement.rows}

    rows = report.with_best_spark(rows)
    ratios = report.ratios(rows)
    rungs = ladder.held_against(workload.name, rows, ratios)
    print(report.table(rows, ratios))
    print(ladder.table(rungs))
    path = options.out / f"{workload.name}.json"
    source = {"seed": options.seed} if options.data is None else {"data": options.data.name}
    content = {
        "workload": workload.name,
        "input": {"tuples": batchings[0].tuples, **source},
        "machine": described,
        "memory": memory.MEASURE,
        "rows": [row.as_json() for row in rows],
        "ratios": ratios,
        "ladder": [rung.as_json() for rung in rungs],
        "compared": compared,
        "failures": failures,
    }
    report.write_json(path, content)
    print(f"\nwritten to {path}")
    for failure in failures:
        print(f"\nFAILED {failure}")
    return 1 if failures else 0


def installed_engines(names: tuple[str, ...] | None) -> list[EngineSpec]:
    """The chosen engines whose packages are installed; the others are named as skipped, with the reason."""
    specs = [ENGINES[name] for name in expand_names(names)]
    reasons = {spec.name: spec.reason_missing() for spec in specs}
    for name, reason in reasons.items():
        if reason:
            say(f"{name}: skipped, {reason}")
    return [spec for spec in specs if reasons[spec.name] is None]


def choose_batchings(workload: Workload, options: Options) -> tuple[Batching, ...]:
    """The workload's own batchings, unless options give a size or batches."""
    usual = {batching.batch_rows: batching for batching in workload.batchings}
    if options.batch_rows is None and options.tuples is None:
        return workload.batchings
    if options.tuples is None:
        sizes: Sequence[int] = options.batch_rows or ()
        return tuple(usual.get(rows) or Batching(USUAL_BATCHES * rows, rows) for rows in sizes)
    if options.batch_rows is not None:
        return tuple(Batching(options.tuples, rows) for rows in options.batch_rows)
    fitting = [rows for rows in usual if 2 * rows <= options.tuples]
    return tuple(Batching(options.tuples, rows) for rows in fitting or [min(usual)])


class Judge:
    """The right results of a workload, from one unmeasured run of an engine that emits every window."""

    def __init__(self, workload: Workload, options: Options, scratch: Path) -> None:
        self._workload = workload
        self._options = options
        self._scratch = scratch
        self._results: dict[int, pl.DataFrame] = {}

    def results(self, data: Input) -> pl.DataFrame:
        """The sorted results over `data`; inputs of the same size hold the same rows, however they are cut."""
        if data.tuples not in self._results:
            name = next((name for name in JUDGES if ENGINES[name].reason_missing() is None), None)
            if name is None:
                raise ValueError(f"results need a judge: install one of {', '.join(JUDGES)}")
            folder = self._scratch / f"judge-{data.tuples}"
            process = EngineProcess(name, self._workload.name, folder, self._workload.driver_memory_gb)
            try:
                process.run(data)
                results = sort(load(process.collect(), self._workload), self._workload)
            finally:
                process.stop()
            windows = results["window_start"].n_unique()
            say(f"  judge ({name}): {results.height:,} rows in {windows:,} windows for {data.tuples:,} tuples")
            self._results[data.tuples] = results
        return self._results[data.tuples]


def _trial(spec: EngineSpec, workload: Workload, batching: Batching, options: Options, judge: Judge) -> Trial:
    """The engine on the input or, if it would take too long, on as much of its beginning as it can take."""
    most = spec.most_tuples.get(workload.name, batching.tuples)
    if most < batching.tuples:
        batching = Batching(most, most // PARTS_OF_A_BEGINNING)
    data = prepare(_input_spec(workload, batching, options), CACHE)
    return Trial(spec, data, judge.results(data))


def _input_spec(workload: Workload, batching: Batching, options: Options) -> InputSpec:
    return InputSpec(workload.input_kind, batching, options.seed, options.tuples_per_second, options.data)
