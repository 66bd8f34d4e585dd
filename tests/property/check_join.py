"""One generated join in this process, with instances that change all the time, against the law."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.property.check_local import Reconfigurer, events_of
from tests.property.join_cases import JoinCase
from tests.property.local_runs import run_in_step
from tidegate.errors import DataError
from tidegate.reference import interpret
from tidegate.runtime.local.job import Settings
from tidegate.testing import difference


def check_join(case: JoinCase, settings: Settings, reconfigure: Reconfigurer) -> None:
    """The results are the reference's, in order, and nothing is left of the state."""
    try:
        run = run_in_step(case.query.node, case.batches, settings, reconfigure)
    except DataError:
        with pytest.raises(DataError):
            interpret(case.query.node, events_of(case.query, case.batches))
        return
    law = interpret(case.query.node, events_of(case.query, case.batches))
    made = pa.concat_tables([case.query.schema.empty_table(), *run.tables])
    told = difference(made, law.rows)
    assert told is None, f"{case.features}: results differ (left: the run, right: the law)\n{told}"
    assert run.job.late == law.late, f"{run.job.late} late tuples, and {law.late} by the law"
    assert run.job.state_rows == 0, "state is left after the end of input"
    times = made.column(case.query.time).cast(pa.int64()).to_pylist()
    assert times == sorted(times), "results left out of order"
