"""The papers' applications and operators in process, with one instance and with two.

The applications of `examples/`, each whole: four of Gedik et al. (§7.2), Elasticutor's stock exchange (§5.4); and the single
operators over call records with which StreamCloud measures its scalability (§VI.B). Each runs over generated tuples, once
to warm up and then in turns. Results with one instance and with two must be the same. What two instances are worth
depends on the cores there are and on what else they do, so tuples a second of CPU time stand beside those by the clock.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import tidegate as tg
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import write_json
from examples.application import Application
from examples.bargain_index.application import bargain_index
from examples.call_records.operators import by_start, districts, overlapping, same_number, with_duration
from examples.exchange.application import exchange
from examples.inputs.calls import call_records
from examples.network_monitoring.application import network_monitoring
from examples.pagerank.application import pagerank
from examples.twitter.application import twitter
from tidegate.testing import difference

INSTANCES = (1, 2)
CALLS = 10_000


@dataclass(frozen=True, slots=True)
class ApplicationCase:
    """A query over so many generated tuples of each stream."""

    tuples: int
    generate: Callable[[int, int], Mapping[str, pa.Table]]
    results: Callable[[Mapping[str, pa.Table]], dict[str, tg.Stream]]


def _whole(application: Application, tuples: int) -> ApplicationCase:
    return ApplicationCase(tuples, application.generate, application.results)


def _over_calls(operator: Callable[[tg.Stream], tg.Stream], tuples: int = CALLS) -> ApplicationCase:
    return ApplicationCase(
        tuples,
        lambda rows, seed: {"calls": call_records(rows, seed)},
        lambda tables: {"result": operator(by_start(tables["calls"]))},
    )


CASES: Mapping[str, ApplicationCase] = {
    "bargain_index": _whole(bargain_index, 300_000),
    "twitter": _whole(twitter, 100_000),
    "pagerank": _whole(pagerank, 10_000),
    "network_monitoring": _whole(network_monitoring, 50_000),
    "exchange": _whole(exchange, 20_000),
    "calls_map": _over_calls(with_duration, 200_000),
    "calls_aggregate": _over_calls(districts, 200_000),
    "calls_join": _over_calls(same_number, 50_000),
    "calls_product": _over_calls(overlapping),
}


def run(options: Options) -> int:
    """Run each case; 1 if two instances gave another result than one."""
    names = options.of or tuple(CASES)
    rows, wrong = [], []
    print(
        f"{'application':<20}{'tuples':>9}{'instances':>11}{'tuples/s':>12}{'tuples/CPU s':>14}{'speedup':>9}{'results':>11}"
    )
    for name in names:
        made, failures = _measured(name, options)
        rows += made
        wrong += failures
        for row in made:
            print(
                f"{name:<20}{row['tuples']:>9,}{row['instances']:>11}{row['tuples_per_second']:>12,}"
                f"{row['tuples_per_cpu_second']:>14,}{row['speedup']:>9.2f}{row['output_rows']:>11,}",
                flush=True,
            )
    path = options.out / "applications.json"
    write_json(path, {"workload": "applications", "machine": describe(), "rows": rows, "failures": wrong})
    print(f"written to {path}")
    for each in wrong:
        print(f"\nFAILED {each}")
    return int(bool(wrong))


def _measured(name: str, options: Options) -> tuple[list[dict[str, Any]], list[str]]:
    case = CASES[name]
    tables = case.generate(options.tuples or case.tuples, options.seed)
    tuples = sum(table.num_rows for table in tables.values())
    taken: dict[int, list[tuple[float, float]]] = {instances: [] for instances in INSTANCES}
    found: dict[int, dict[str, pa.Table]] = {}
    for turn in range(options.runs + 1):
        for instances in INSTANCES:
            seconds, cpu_seconds, results = _once(case, tables, instances)
            if turn == 0:
                found[instances] = results
            else:
                taken[instances].append((seconds, cpu_seconds))
    one, two = (found[instances] for instances in INSTANCES)
    told = {result: difference(two[result], one[result]) for result in one}
    base = statistics.median(seconds for seconds, _ in taken[1])
    rows = [
        {
            "application": name,
            "instances": instances,
            "tuples": tuples,
            "tuples_per_second": round(tuples / statistics.median(seconds for seconds, _ in runs)),
            "tuples_per_cpu_second": round(tuples / statistics.median(cpu for _, cpu in runs)),
            "speedup": round(base / statistics.median(seconds for seconds, _ in runs), 3),
            "output_rows": sum(table.num_rows for table in found[instances].values()),
            "cores": os.cpu_count(),
        }
        for instances, runs in taken.items()
    ]
    return rows, [f"{name}, {result}: {what}" for result, what in told.items() if what]


def _once(
    case: ApplicationCase, tables: Mapping[str, pa.Table], instances: int
) -> tuple[float, float, dict[str, pa.Table]]:
    """Seconds, CPU seconds and the results of one run."""
    query = case.results(tables)
    came: dict[str, list[pa.Table]] = {name: [] for name in query}
    gc.collect()  # what earlier runs left is not this one's to clean up
    began, began_cpu = time.perf_counter(), time.process_time()
    tg.run(query, on="local", to=lambda name, table: came[name].append(table), instances=instances, progress=False)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    made = {name: pa.concat_tables([query[name].schema.empty_table(), *given]) for name, given in came.items()}
    return seconds, cpu_seconds, made
