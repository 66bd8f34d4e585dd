"""A second stateful step behind a generated one, driven as Spark drives it, gives the reference's answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import Case, any_features, cases
from tests.kit.check import check_case
from tests.kit.effort import examples


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """A generated query whose results are counted per key, or over all keys, in windows of their own."""
    case = draw(any_features().flatmap(cases))
    assume("revision" not in case.query.schema.names)
    key = draw(st.sampled_from(case.keys))
    size, every = draw(st.sampled_from([("1 us", "1 us"), ("7 ms", "7 ms"), ("7 ms", "2 ms"), ("1 second", "300 ms")]))
    again = case.query.key_by(key).window(size, every=every).aggregate(rows=tg.count(), last=tg.last("window_end"))
    return replace(case, query=again, keys=[key])


def test_what_a_step_makes_reaches_the_next_before_the_watermark(tmp_path: Path) -> None:
    @settings(max_examples=examples(20), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(chains())
    def check(case: Case) -> None:
        check_case(case, tmp_path)

    check()
