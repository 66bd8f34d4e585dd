"""One case in this process whose run ends at some operation on its files, again and again, and goes on: against the law.

Snapshots are taken between the items of sources. Watermarks promise what is true of the items to come, so no tuple is late
and there is one answer, wherever a run ends and however many instances it has when it goes on.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.check_local import any_settings
from tests.kit.faulty import Faulty, ProcessEnds
from tidegate.compile.compiler import compile_query
from tidegate.errors import DataError, UserError
from tidegate.query.nodes import Source, sources
from tidegate.reference import Advance, Event, Rows, interpret
from tidegate.results import read_results
from tidegate.runtime.local.checkpoint import StateFromSpark
from tidegate.runtime.local.durable_folder import DraftedPart, DraftWriter, ToDurableFolders
from tidegate.runtime.local.job import LocalJob
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.snapshots import Durable
from tidegate.sources.in_memory import Heartbeat, Marked
from tidegate.testing import difference
from tidegate.watermark import END

Batches = Sequence[dict[str, list[pa.Table]]]
NEVER = 1e9


@dataclass(frozen=True)
class Attempt:
    """One run: how it runs, how often a snapshot is taken or something changes, and at which operation it ends."""

    settings: Settings
    seed: int
    often: float
    last: int | None
    behind: bool


def any_attempts(often: Sequence[float] = (0.2, 0.5, 0.9)) -> st.SearchStrategy[list[Attempt]]:
    """Some runs that end, most of them soon."""
    lasts = st.one_of(st.integers(1, 30), st.integers(1, 120))
    drawn = st.builds(Attempt, any_settings(), st.integers(0, 2**16), st.sampled_from(often), lasts, st.booleans())
    return st.lists(drawn, min_size=1, max_size=4)


class Steps(list[Any]):
    """Items, between which something may happen."""

    def __init__(self, items: Sequence[Any], between: Callable[[], None]) -> None:
        super().__init__(items)
        self._between = between

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            yield item
            self._between()


@dataclass
class FaultyFolders(ToDurableFolders):
    """Folders whose process ends at an operation, counted together with those on its state."""

    faulty: Faulty | None = None

    def sync(self, parts: Sequence[DraftedPart]) -> None:
        for part in parts:
            self._do(super().sync, [part])

    def publish(self, number: int, parts: Sequence[DraftedPart]) -> None:
        for part in parts:
            self._do(partial(super().publish, number), [part])

    def _do(self, work: Callable[[list[DraftedPart]], None], parts: list[DraftedPart]) -> None:
        if self.faulty is None:
            work(parts)
        else:
            self.faulty.do(lambda: work(parts))


@dataclass
class Happening:
    """Takes snapshots, and asks for other instances, at random."""

    attempt: Attempt
    job: LocalJob | None = None
    taken: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.attempt.seed)

    def __call__(self) -> None:
        assert self.job is not None and self.job.running.snapshots is not None
        if self._random.random() < self.attempt.often:
            self.job.running.snapshots.take()
            self.taken += 1
        if self._random.random() < 0.2:
            for running in self.job.running.graph.subqueries:
                try:
                    running.ask(self._random.randint(1, 5), None)
                except UserError as error:  # its input has ended
                    assert "follow the end" in str(error)


def items_of(batches: Batches, source: Source) -> list[Any]:
    """The tables of a source, and behind each batch what is true of those to come."""
    found: list[Any] = []
    for number, batch in enumerate(batches):
        found += [table for table in batch.get(source.name, ()) if table.num_rows]
        if (least := _least(batches[number + 1 :], source)) < END:
            found.append(Heartbeat(least))
    return found


def events_of(query: tg.Stream, batches: Batches) -> list[Event]:
    """What the law sees."""
    events: list[Event] = []
    for number, batch in enumerate(batches):
        for source in sources(query.node):
            events += [Rows(source.name, table) for table in batch.get(source.name, ()) if table.num_rows]
        events.append(Advance(min(_least(batches[number + 1 :], source) for source in sources(query.node))))
    return [*events, Advance(END)]


def _least(batches: Batches, source: Source) -> int:
    tables = [table for batch in batches for table in batch.get(source.name, ()) if table.num_rows]
    times = [pc.min(table.column(source.time).cast(pa.int64())).as_py() for table in tables]
    return min(times, default=END)


def check_durable(query: tg.Stream, batches: Batches, attempts: Sequence[Attempt], told: object = "") -> int:
    """The results of all runs together are the law's; returns how many snapshots were taken."""
    with tempfile.TemporaryDirectory() as folder:
        taken = 0
        try:
            for attempt in [*attempts, replace(attempts[-1], last=None)]:
                happening = run_once(query, batches, attempt, Path(folder))
                taken += happening.taken
        except DataError:
            with pytest.raises(DataError):
                interpret(query.node, events_of(query, batches))
            return taken
        made = read_results(Path(folder) / "out", "parquet", query.schema)
    law = interpret(query.node, events_of(query, batches))
    assert law.late == 0
    told_apart = difference(made, law.rows)
    assert told_apart is None, f"{told}: results differ (left: the runs, right: the law)\n{told_apart}"
    return taken


def run_once(
    query: tg.Stream,
    batches: Batches,
    attempt: Attempt,
    folder: Path,
    items: Callable[[Batches, Source], list[Any]] = items_of,
    marked: bool = True,
    continues: StateFromSpark | None = None,
) -> Happening:
    """A run on a checkpoint, until it ends by itself or at its last operation; ``items`` are what a source delivers.

    Heartbeats among them are the watermark, unless the items are not ``marked``. It may go on from a run on Spark.
    """
    happening = Happening(attempt)
    plan = compile_query(query.node, "local")

    def origin(source: Source) -> Any:
        steps = Steps(items(batches, source), happening)
        return Marked(steps) if marked else steps

    plan = plan.reading(lambda source: replace(source, origin=origin(source)))
    (folder / "out").mkdir(exist_ok=True)
    sink = FaultyFolders(folder / "out", (DraftWriter(folder / "out", "parquet", query.schema),))
    durable = Durable.open(plan, folder / "cp", sink, NEVER, continues)
    faulty = Faulty(durable.checkpoint._storage, attempt.last, attempt.behind)
    durable.checkpoint._storage = faulty
    sink.faulty = faulty
    try:
        job = happening.job = LocalJob(plan, sink, attempt.settings, durable=durable)
    except ProcessEnds:
        durable.checkpoint.close()
        return happening
    job.start()
    try:
        assert job.wait(120), "the run hangs"
        assert job.state_rows == 0, "state is left after the end of input"
    except ProcessEnds:
        pass
    return happening
