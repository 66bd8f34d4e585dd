"""Runs of a query in this process with everything that matters for lateness under control.

All sources deliver their part of a batch, then all advance their watermarks, then what is ready is written into the logs,
then the next batch follows. So the watermark moves after each batch and nowhere else, as in the reference, however the
threads are scheduled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.compile.compiler import compile_query
from tidegate.gate.ready import START
from tidegate.query.nodes import Node, Source, sources
from tidegate.query.rewrite import rewrite
from tidegate.runtime.local.job import LocalJob
from tidegate.runtime.local.origins import Heartbeat, Marked
from tidegate.runtime.local.outputs import ToFunction
from tidegate.runtime.local.settings import Settings

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
) -> LocalRun:
    """Run a query over batches; ``between`` is called after each batch, while instances are at work on it."""
    made: list[LocalRun] = []
    counter = iter(range(len(batches)))

    def after_batch() -> None:
        for gate in made[0].job._gates:
            gate.flush()
        between(made[0].job, next(counter))

    everyone = len(sources(query))
    arrived = threading.Barrier(everyone, timeout=60)
    advanced = threading.Barrier(everyone, after_batch, timeout=60)

    def origin(source: Source) -> Iterator[pa.Table | Heartbeat]:
        latest = START
        for batch in batches:
            for table in batch.get(source.name, ()):
                yield table
                if table.num_rows:
                    latest = max(
                        latest, pc.max(table.column(source.time).cast(pa.int64())).as_py() - source.disorder_us
                    )
            with suppress(threading.BrokenBarrierError):
                arrived.wait()
            yield Heartbeat(latest)
            with suppress(threading.BrokenBarrierError):
                advanced.wait()

    compiled = compile_query(query, "local").query
    bound = rewrite(
        compiled, lambda node: replace(node, origin=Marked(origin(node))) if isinstance(node, Source) else node
    )
    tables: list[pa.Table] = []
    run = LocalRun(LocalJob(bound, ToFunction(tables.append), settings), tables)
    made.append(run)
    run.job.start()
    try:
        assert run.job.wait(120), "the run hangs"
    finally:
        arrived.abort()
        advanced.abort()
    return run
