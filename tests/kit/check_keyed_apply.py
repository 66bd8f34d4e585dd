"""One O+ case in this process, with instances that change all the time, against the law."""

from __future__ import annotations

import pyarrow as pa

from tests.kit.check_local import Reconfigurer, events_of
from tests.kit.keyed_apply_cases import KeyedApplyCase
from tests.kit.late_files import check_late_files
from tests.kit.local_runs import run_in_step
from tidegate.reference import interpret
from tidegate.runtime.local.settings import Settings
from tidegate.testing import difference


def check_keyed_apply(case: KeyedApplyCase, how: Settings, reconfigure: Reconfigurer) -> None:
    """The results are the law's, in order; so is the number of late tuples; and nothing is left of the state."""
    run = run_in_step(case.query.node, case.batches, how, reconfigure)
    law = interpret(case.query.node, events_of(case.query, case.batches))
    made = pa.concat_tables([case.query.schema.empty_table(), *run.tables])
    told = difference(made, law.rows)
    assert told is None, f"{case.told}: results differ (left: the run, right: the law)\n{told}"
    assert run.job.late == law.late, f"{case.told}: {run.job.late} late tuples, and {law.late} by the law"
    assert run.job.unfilled == law.unfilled, f"{case.told}: {run.job.unfilled} unfilled, and {law.unfilled} by the law"
    if how.late_to is not None:
        check_late_files(run.job.late, run.job.running.plan, how.late_to.path, law)
    assert (run.job.state_rows, run.job.state_bytes) == (0, 0), f"{case.told}: state is left after the end of input"
    times = made.column(case.query.time).cast(pa.int64()).to_pylist()
    assert times == sorted(times), f"{case.told}: results left out of order"
