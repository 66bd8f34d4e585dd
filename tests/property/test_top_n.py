"""Generated queries with top_n, in this process and driven as Spark drives them, against the law."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import SCHEMA, WINDOWS, tables
from tests.kit.check_keyed_apply import check_keyed_apply
from tests.kit.check_keyed_apply_cells import any_driver, check_on_driver
from tests.kit.check_local import any_reconfigurer, any_settings
from tests.kit.effort import examples
from tests.kit.keyed_apply_cases import KEYS, KeyedApplyCase


@st.composite
def top_n_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query, its data, and how they are cut."""
    disorder, key = draw(st.sampled_from([0, 999, 100_000])), draw(st.sampled_from([None, *sorted(KEYS)]))
    size, every = WINDOWS[draw(st.sampled_from(sorted(WINDOWS)))]
    by, n = draw(st.sampled_from(["n", "x", "k"])), draw(st.sampled_from([1, 2, 5]))
    stream = tg.stream(SCHEMA, time="ts", disorder=f"{disorder}us", name="s0")
    keyed = stream if key is None else stream.key_by(*KEYS[key][0])
    query = keyed.window(f"{size}us", every=f"{every}us").top_n(n, by=by)
    if draw(st.booleans()):
        query = query.key_by("rank").window("7ms").aggregate(c=tg.count())
    base = draw(st.sampled_from([1_700_000_000_000_000, -20_000, 3]))
    batches: list[dict[str, list[pa.Table]]] = []
    for _ in range(draw(st.integers(1, 4))):
        table = draw(tables(draw(st.sampled_from([0, 2, 4, 9])), base))
        cut = draw(st.integers(0, table.num_rows))
        batches.append({"s0": [table.slice(0, cut), table.slice(cut)]})
        base += draw(st.sampled_from([0, 1_000, 6_000]))
    return KeyedApplyCase(query, batches, f"{key}, {size} every {every}, top {n} by {by}")


@settings(max_examples=examples(8))
@given(data=st.data())
def test_the_output_is_the_laws_however_instances_change(data: st.DataObject) -> None:
    check_keyed_apply(data.draw(top_n_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))


def test_the_output_is_the_laws_whatever_the_batches(tmp_path: Path) -> None:
    @settings(max_examples=examples(8), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(top_n_cases())
        check_on_driver(case, *data.draw(any_driver(case, tmp_path)))

    check()
