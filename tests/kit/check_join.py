"""One generated join against the law: in this process, with instances that change all the time, and as on Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.kit.check import check_instances, law_overflows
from tests.kit.check_local import Reconfigurer, events_of
from tests.kit.join_cases import JoinCase, SparkJoinCase
from tests.kit.late_files import check_late_files
from tests.kit.local_runs import run_in_step
from tests.kit.spark_driver import Driver
from tidegate.compile.split_hot_keys import HotKeys
from tidegate.errors import DataError
from tidegate.operators.joins.cached_join import IN_THIS_PROCESS
from tidegate.reference import interpret
from tidegate.runtime.local.settings import Settings
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
    if settings.late_to is not None:
        check_late_files(run.job.late, run.job.running.plan, settings.late_to.path, law)
    assert run.job.state_rows == 0, "state is left after the end of input"
    times = made.column(case.query.time).cast(pa.int64()).to_pylist()
    assert times == sorted(times), "results left out of order"


def check_join_on_cells(case: SparkJoinCase, folder: Path, hot_keys: HotKeys = False) -> None:
    """The driver's results are the reference's, for the watermarks that the run saw, and nothing is left of the state."""
    IN_THIS_PROCESS.limit_bytes = None if case.remembers else 0
    driver = Driver(case.query.node, case.cells, instances=case.instances, hot_keys=hot_keys)
    try:
        outcome = driver.run(case.batches, case.no_data_after)
    except DataError:
        assert law_overflows(case), f"{case.features}: the run fails, the reference does not"
        return
    finally:
        IN_THIS_PROCESS.limit_bytes = None
    law = interpret(case.query.node, outcome.events)
    made = pa.concat_tables([case.query.schema.empty_table(), *outcome.tables])
    told = difference(made, law.rows)
    assert told is None, f"{case.features}: results differ (left: the run, right: the law)\n{told}"
    assert outcome.late == law.late, f"{outcome.late} late tuples, and {law.late} by the law"
    check_instances(case, outcome.instances)
    assert not driver.held(), "state is left after the end of input"
