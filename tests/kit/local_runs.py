"""Runs of a query in this process with everything that matters for lateness under control.

All sources deliver their part of a batch, then all advance to the same watermark, then what is ready is written into the
logs, then the next batch follows. So the watermark moves after each batch and nowhere else, as in the reference, however
the threads are scheduled. No source is ever ahead of another: as each waits here for the others, a gate must not let it
wait for them too.

`run_freely` is for sorted streams: each source is read as fast as flow control lets it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.compile.compiler import compile_query
from tidegate.query.nodes import Node, Source, sources
from tidegate.query.outputs import tagged
from tidegate.runtime.local.job import LocalJob
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.sinks import ToFunction
from tidegate.sources.in_memory import Heartbeat, Marked
from tidegate.watermark import START

Batches = Sequence[dict[str, list[pa.Table]]]


@dataclass
class LocalRun:
    """One run: its job, and the results in the order in which they left."""

    job: LocalJob
    tables: list[pa.Table] = field(default_factory=list)


def run_in_step(
    query: Node,
    batches: Batches,
    settings: Settings,
    between: Callable[[LocalJob, int], None] = lambda job, batch: None,
    spoil: Callable[[pa.Table, str], pa.Table] = lambda table, time: table,
) -> LocalRun:
    """Run a query over batches; ``between`` is called after each batch, while instances are at work on it.

    ``spoil`` is asked for the tables that arrive in place of those given, by which the watermark goes.
    """
    made: list[LocalRun] = []
    counter = iter(range(len(batches)))

    def after_batch() -> None:
        for gate in made[0].job.running.graph.gates.values():
            gate.flush()
        between(made[0].job, next(counter))

    everyone = len(sources(query))
    arrived = threading.Barrier(everyone, timeout=60)
    advanced = threading.Barrier(everyone, after_batch, timeout=60)

    def origin(source: Source) -> Iterator[pa.Table | Heartbeat]:
        for batch, watermark in zip(batches, _watermarks(query, batches), strict=True):
            yield from (spoil(table, source.time) for table in batch.get(source.name, ()))
            with suppress(threading.BrokenBarrierError):
                arrived.wait()
            yield Heartbeat(watermark)
            with suppress(threading.BrokenBarrierError):
                advanced.wait()

    run = _prepared(query, lambda source: Marked(origin(source)), settings)
    made.append(run)
    run.job.start()
    try:
        assert run.job.wait(120), "the run hangs"
    finally:
        arrived.abort()
        advanced.abort()
    return run


def run_freely(query: Node, tables: dict[str, list[pa.Table]], settings: Settings) -> LocalRun:
    """Run a query over streams that are sorted, each read on a thread of its own."""
    run = _prepared(query, lambda source: tables[source.name], settings)
    run.job.start()
    ended = run.job.wait(60)
    run.job.cancel()
    assert ended, "the run hangs"
    return run


def _prepared(query: Node, origin: Callable[[Source], object], settings: Settings) -> LocalRun:
    """A run whose sources have other origins, ready to be started."""
    plan = compile_query(query, "local", all_columns=settings.late_to is not None)
    plan = plan.reading(lambda source: replace(source, origin=origin(source)))
    tables: list[pa.Table] = []

    def take(*given: Any) -> None:
        *name, table = given
        tables.append(tagged(query, plan.names.index(name[0]) if name else 0, table))

    return LocalRun(LocalJob(plan, ToFunction(take, plan.names), settings), tables)


def _watermarks(query: Node, batches: Batches) -> list[int]:
    """The watermark after each batch: the least that a source has reached."""
    latest = {source.name: START for source in sources(query)}
    reached = []
    for batch in batches:
        for source in sources(query):
            for table in batch.get(source.name, ()):
                if table.num_rows:
                    seen = pc.max(table.column(source.time).cast(pa.int64())).as_py() - source.disorder_us
                    latest[source.name] = max(latest[source.name], seen)
        reached.append(min(latest.values()))
    return reached
