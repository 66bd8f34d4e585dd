"""One case against the law."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.kit.cases import Case
from tests.kit.join_cases import SparkJoinCase
from tests.kit.spark_driver import Driver
from tidegate.errors import DataError
from tidegate.reference import Answer, Event, interpret
from tidegate.testing import difference, last_revisions


def check_case(case: Case, folder: Path, hot_keys: bool = False) -> None:
    """The driver's results are the reference's, for the watermarks that the run saw."""
    driver = Driver(case.query.node, case.cells, instances=case.instances, hot_keys=hot_keys)
    try:
        outcome = driver.run(case.batches, case.no_data_after)
    except DataError:
        # A sum that does not fit: the law must say so too, once it sees what the run would have seen.
        assert law_overflows(case), "the run says that a sum overflows, the reference does not"
        return
    law = law_of(case, outcome.events)
    if law is None:
        return
    made = pa.concat_tables([case.query.schema.empty_table(), *outcome.tables])
    told = difference(last_revisions(made, case.keys), last_revisions(law.rows, case.keys))
    assert told is None, f"results differ (left: the run, right: the law)\n{told}"
    assert outcome.late == law.late, f"{outcome.late} late tuples, and {law.late} by the law"
    check_instances(case, outcome.instances)
    assert not driver.held(), "state is left after the end of input"


def law_of(case: Case, events: list[Event]) -> Answer | None:
    """What the reference says of these events; nothing if a sum does not fit in a revision that only the reference makes.

    It revises a window at every late tuple, a run once for all that come together: by then the sum may fit again.
    """
    try:
        return interpret(case.query.node, events)
    except DataError:
        assert case.features.lateness == "some", "the reference says that a sum overflows, the run does not"
        return None


def check_instances(case: Case | SparkJoinCase, ran: list[set[int]]) -> None:
    """Every cell runs the number that the control stream asked for last in this run, from the batch it came in."""
    batches = iter(ran)
    expected = case.instances
    for batch, no_data in zip(case.batches, case.no_data_after, strict=True):
        expected = case.instances if batch.restart else expected
        expected = batch.instances[-1] if batch.instances else expected
        for _ in range(1 + no_data):
            assert next(batches) <= {expected}
    assert all(numbers <= {expected} for numbers in batches)


def law_overflows(case: Case | SparkJoinCase) -> bool:
    """Whether the reference fails too, over all events of the case."""
    events = Driver(case.query.node, 1).events_of(case.batches, case.no_data_after)
    try:
        interpret(case.query.node, events)
    except DataError:
        return True
    return False
