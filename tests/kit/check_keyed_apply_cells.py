"""One O+ case driven as Spark drives it, against the law."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import strategies as st

from tests.kit.keyed_apply_cases import KeyedApplyCase
from tests.kit.spark_driver import Batch, Driver, faults
from tidegate.query.nodes import sources
from tidegate.reference import interpret
from tidegate.testing import difference


@st.composite
def any_driver(draw: st.DrawFn, case: KeyedApplyCase, folder: Path) -> tuple[Driver, list[Batch], list[bool]]:
    """A way to run a case: how many cells and instances, which attempts fail, and where batches without data come."""
    cells = draw(st.integers(1, 3))
    instances = draw(st.sampled_from([1, 1, 2, 3]))
    read = [source.name for source in sources(case.query.node)]
    batches = [
        Batch(
            {name: parts[name] for name in read},
            draw(st.sampled_from([1, 1, 2])),
            draw(st.sampled_from([(), (), (2,), (3, 1)])),
            **draw(faults()),
        )
        for parts in case.batches
    ]
    return Driver(case.query.node, cells, instances=instances), batches, [draw(st.booleans()) for _ in batches]


def check_on_driver(case: KeyedApplyCase, driver: Driver, batches: list[Batch], no_data_after: list[bool]) -> None:
    """The results and the late count are the law's for the watermarks that the run saw, and no state is left."""
    outcome = driver.run(batches, no_data_after)
    law = interpret(case.query.node, outcome.events)
    made = pa.concat_tables([case.query.schema.empty_table(), *outcome.tables])
    told = difference(made, law.rows)
    assert told is None, f"{case.told}: results differ (left: the run, right: the law)\n{told}"
    assert outcome.late == law.late, f"{case.told}: {outcome.late} late tuples, and {law.late} by the law"
    assert outcome.unfilled == law.unfilled, f"{case.told}: {outcome.unfilled} unfilled, and {law.unfilled} by the law"
    assert not driver.held(), f"{case.told}: state is left after the end of input"
