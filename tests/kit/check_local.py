"""One case in this process, with instances that change all the time, against the law."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import Case
from tests.kit.check import law_of
from tests.kit.late_files import check_late_files
from tests.kit.local_runs import run_in_step
from tidegate.errors import DataError, SetAsideWarning
from tidegate.operators.cells import SHARDS
from tidegate.operators.joins.shared_join import SPLIT_PAIRS
from tidegate.operators.shared_windows import SPLIT_PANES
from tidegate.query.nodes import sources
from tidegate.reference import Advance, Event, Rows, interpret
from tidegate.runtime.local.job import LocalJob
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.split_choice import SPLIT_KEYS
from tidegate.testing import difference, last_revisions
from tidegate.watermark import END, START

FAR_US = 7_258_118_400_000_000


@dataclass
class Reconfigurer:
    """Asks for new numbers of instances and random mappings, several at once, and does not wait for any of them.

    In some runs shards are measured meanwhile.
    """

    seed: int
    most: int
    asked: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, job: LocalJob, batch: int) -> None:
        if self.seed % 2:
            job.running.graph.measure_shards()
            job.figures(float(batch))
        for running in job.running.graph.subqueries:
            for _ in range(self._random.choice([0, 1, 1, 3])):
                count = self._random.randint(1, self.most)
                mapping = (
                    [self._random.randrange(count) for _ in range(SHARDS)] if self._random.random() < 0.5 else None
                )
                running.ask(count, mapping)
                self.asked += 1


def events_of(query: tg.Stream, batches: list[dict[str, list[pa.Table]]]) -> list[Event]:
    """What the law sees: each batch, then the watermark that it brings about."""
    latest = dict.fromkeys((source.name for source in sources(query.node)), START)
    events: list[Event] = []
    for batch in batches:
        for source in sources(query.node):
            for table in batch.get(source.name, ()):
                if table.num_rows:
                    events.append(Rows(source.name, table))
                    seen = pc.max(table.column(source.time).cast(pa.int64())).as_py()
                    latest[source.name] = max(latest[source.name], seen - source.disorder_us)
        events.append(Advance(min(latest.values())))
    return [*events, Advance(END)]


@dataclass
class Future:
    """Puts tuples of the year 2200 among others, at random."""

    seed: int
    added: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, table: pa.Table, time: str) -> pa.Table:
        if not table.num_rows or self._random.random() < 0.7:
            return table
        place, at = table.schema.get_field_index(time), self._random.randint(0, table.num_rows)
        far = pa.array([FAR_US], pa.int64()).cast(table.schema.field(place).type)
        self.added += 1
        return pa.concat_tables([table.slice(0, at), table.slice(0, 1).set_column(place, time, far), table.slice(at)])


def arrivals(case: Case) -> list[dict[str, list[pa.Table]]]:
    return [{name: list(tables) for name, tables in batch.parts.items()} for batch in case.batches]


def any_settings() -> st.SearchStrategy[Settings]:
    """Few or many instances, segments of a row or of all there is, windows made by one or by all, much or little waiting."""
    return st.builds(
        Settings,
        st.integers(1, 4),
        segment_rows=st.sampled_from([1, 2, 7, 1_000]),
        split_panes=st.sampled_from([0, 4, SPLIT_PANES]),
        split_keys=st.sampled_from([0, 4, SPLIT_KEYS]),
        split_pairs=st.sampled_from([0, 1 << 14, SPLIT_PAIRS]),
        waiting_rows=st.sampled_from([1, 2, 10, None]),
    )


def any_reconfigurer() -> st.SearchStrategy[Reconfigurer]:
    """Changes between few or many instances."""
    return st.builds(Reconfigurer, st.integers(0, 2**16), st.sampled_from([1, 2, 5, 9]))


def check_locally(case: Case, settings: Settings, reconfigure: Reconfigurer) -> None:
    """The results are the reference's, in order, so are the late tuples that are asked for; nothing is left of the state."""
    batches = arrivals(case)
    future = Future(reconfigure.seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SetAsideWarning)
            run = run_in_step(case.query.node, batches, settings, reconfigure, future)
    except DataError:
        with pytest.raises(DataError):
            interpret(case.query.node, events_of(case.query, batches))
        return
    law = law_of(case, events_of(case.query, batches))
    if law is None:
        return
    made = pa.concat_tables([case.query.schema.empty_table(), *run.tables])
    told = difference(last_revisions(made, case.keys), last_revisions(law.rows, case.keys))
    assert told is None, f"results differ (left: the run, right: the law)\n{told}"
    assert run.job.late == law.late, f"{run.job.late} late tuples, and {law.late} by the law"
    if settings.late_to is not None:
        check_late_files(run.job.late, run.job.running.plan, settings.late_to.path, law)
    assert run.job.ahead == future.added, f"{run.job.ahead} set aside of {future.added} tuples from the future"
    assert run.job.state_rows == 0, "state is left after the end of input"
    if case.features.lateness == "none":
        times = made.column(case.query.time).cast(pa.int64()).to_pylist()
        assert times == sorted(times), "results left out of order"
