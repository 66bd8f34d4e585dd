"""Windows that overlap by thousands: said when the query is built, emitted piece by piece, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import any_features, cases
from tests.kit.check import check_case
from tests.kit.check_flow import check_flow
from tests.kit.check_join import check_join
from tests.kit.check_local import any_reconfigurer, any_settings, check_locally
from tests.kit.effort import examples
from tests.kit.join_cases import join_cases
from tidegate.errors import SlowWarning
from tidegate.operators import windowed_aggregate
from tidegate.operators.cells import CellLogic, Instances
from tidegate.operators.exchange import Delta
from tidegate.operators.joins import result_rows
from tidegate.operators.window_cell import WindowCell
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import WindowAggregate
from tidegate.state.chunks import ChunkStore, Directory
from tidegate.state.step_folder import StepFolder
from tidegate.state.storage import open_storage
from tidegate.testing.bags import difference

TIME = pa.timestamp("us", tz="UTC")
HOUR_US = 3_600_000_000


def stream(table: pa.Table | None = None) -> Any:
    return tg.stream({"ts": TIME, "k": pa.int64(), "v": pa.int64()} if table is None else table, time="ts")


def tuples(times_us: list[int], keys: list[int] | None = None, values: list[Any] | None = None) -> pa.Table:
    count = len(times_us)
    return pa.table(
        {
            "ts": pa.array(times_us, pa.int64()).cast(TIME),
            "k": pa.array(keys or [0] * count, pa.int64()),
            "v": pa.array(values or list(range(count))),
        }
    )


@pytest.mark.parametrize(
    ("size", "every", "windows"),
    [("1 hour", "1 millisecond", "3,600,000"), ("3650 days", "1 second", "315,360,000"), ("1 hour", "7ms", "514,286")],
)
def test_a_window_says_how_many_results_a_tuple_brings(size: str, every: str, windows: str) -> None:
    with pytest.warns(SlowWarning, match=rf"step 'w': .*{windows}.*every") as told:
        query = stream().key_by("k").window(size, every=every, name="w").aggregate(n=tg.count())
    assert told[0].filename == __file__
    assert f"each key of a tuple brings up to {windows} results" in query.explain()


def test_a_join_over_windows_says_it_too() -> None:
    with pytest.warns(SlowWarning, match=r"step 'pairs': .*3,600,000"):
        query = stream().join(stream(), window="1 hour", every="1 millisecond", on="k", name="pairs")
    assert "each pair of a tuple brings up to 3,600,000 results" in query.explain()


def test_functions_on_windows_say_it_too() -> None:
    with pytest.warns(SlowWarning, match=r"step 'w': .*3,600,000"):
        query = (
            stream()
            .key_by("k")
            .window("1 hour", every="1 millisecond", name="w")
            .apply(update=lambda window, tuple_: None, state={"n": pa.int64()}, returns={"n": pa.int64()})
        )
    assert "3,600,000 results" in query.explain()


@pytest.mark.parametrize(("size", "every"), [("1 day", "1 minute"), ("1 hour", "1 second"), ("3650 days", None)])
def test_windows_that_people_use_are_built_without_a_word(size: str, every: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream().key_by("k").window(size, every=every).aggregate(n=tg.count())


def in_a_process(script: str, seconds: float) -> list[str]:
    """What a script prints, run by an interpreter of its own, so that its peak of memory is its own."""
    preamble = (
        "import re, warnings\nimport numpy as np, pyarrow as pa, tidegate as tg\nwarnings.simplefilter('ignore')\n"
        # Not `ru_maxrss`, which begins with the peak of the process that started this one.
        "def peak_mb(): return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024\n"
    )
    done = subprocess.run([sys.executable, "-c", preamble + script], capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


ENDLESS = """
table = pa.table({"ts": pa.array(range(100)).cast(pa.timestamp("us", tz="UTC")), "k": range(100)})
query = tg.stream(table, time="ts").key_by("k").window(SIZE, every=EVERY).aggregate(n=tg.count())
job = tg.start(query, instances=INSTANCES)
rows = 0
for results in job:
    rows += results.num_rows
    if rows >= 3_000_000:
        break
job.cancel()
print(rows >= 3_000_000, round(peak_mb()))
"""


@pytest.mark.parametrize(
    ("size", "every", "instances"),
    [
        ("1 hour", "1 millisecond", 2),
        ("3650 days", "1 second", 1),
        pytest.param("1 hour", "1 millisecond", 1, marks=pytest.mark.long),
        pytest.param("3650 days", "1 second", 2, marks=pytest.mark.long),
    ],
)
def test_results_of_endless_windows_leave_before_all_are_made(size: str, every: str, instances: int) -> None:
    # A hundred keys: 360 million results, or 31 billion. They are taken as they come, and left.
    script = ENDLESS.replace("SIZE", repr(size)).replace("EVERY", repr(every)).replace("INSTANCES", str(instances))
    took, peak_mb = in_a_process(script, seconds=60)
    assert took == "True"
    assert int(peak_mb) < 1_000


JOIN = """
table = pa.table({"ts": pa.array(range(30)).cast(pa.timestamp("us", tz="UTC")), "k": range(30)})
left, right = (tg.stream(table, time="ts", name=name) for name in ("left", "right"))
job = tg.start(left.join(right, window="1 hour", every="1 millisecond", where=lambda l, r: l.k != r.k))
rows = 0
for results in job:
    rows += results.num_rows
    if rows >= 1_000_000:
        break
job.cancel()
print(rows >= 1_000_000, round(peak_mb()))
"""


def test_pairs_that_share_endless_windows_leave_before_all_are_made() -> None:
    took, peak_mb = in_a_process(JOIN, seconds=60)
    assert took == "True"
    assert int(peak_mb) < 1_000


def test_a_cell_emits_endless_windows_piece_by_piece(tmp_path: Path) -> None:
    with pytest.warns(SlowWarning):
        node = stream().key_by("k").window("1 hour", every="1 millisecond").aggregate(n=tg.count(), v=tg.max("v")).node
    assert isinstance(node, WindowAggregate)
    panes = Panes(node)
    lifted = panes.lift(tuples(list(range(50)), list(range(50))))
    for number in (1, 2):
        with Instances(number) as instances:
            folder = StepFolder(open_storage(str(tmp_path)), "query/step-0", "w", "run", 100)
            cell = CellLogic(WindowCell, node).open(0, ChunkStore(Directory("x"), folder, 0), instances)
            made = list(islice(cell.receive([Delta(lifted)], 2 * HOUR_US), 3))
            assert sum(table.num_rows for table in made) > 3
            assert max(table.num_rows for table in made) <= windowed_aggregate.AT_ONCE
            assert [table.column("window_start")[0].value for table in made[:1]] == [1_000 - HOUR_US]


DISTINCT = """
rows = ROWS
seed = np.random.default_rng(7)
times, values = np.sort(seed.integers(0, 120_000_000, rows)), seed.integers(0, DIFFERENT, rows)
kind = pa.string() if TEXT else pa.int64()
table = pa.table({"ts": pa.array(times).cast(pa.timestamp("us", tz="UTC")), "k": np.zeros(rows, np.int64),
                  "v": pa.array(values).cast(kind)})
query = tg.stream(table, time="ts").key_by("k").window("1 minute", every="1 second").aggregate(n=tg.distinct("v"))
made = {}
def take(results):
    made.update(zip(results.column("window_end").cast(pa.int64()).to_pylist(), results.column("n").to_pylist()))
tg.run(query, on="local", to=take, progress=False)
peak = peak_mb()
ends = np.array(sorted(made))
for end in ends[:: max(len(ends) // 9, 1)].tolist():
    low, high = np.searchsorted(times, (end - 60_000_000, end))
    assert made[end] == len(np.unique(values[low:high])), end
print(len(made), round(peak))
"""


def distinct_in_a_process(rows: int, different: int, text: bool, seconds: float) -> tuple[int, int]:
    script = DISTINCT.replace("ROWS", str(rows)).replace("DIFFERENT", str(different)).replace("TEXT", str(text))
    windows, peak_mb = in_a_process(script, seconds)
    return int(windows), int(peak_mb)


@pytest.mark.parametrize("text", [False, True])
def test_distinct_values_of_a_hot_key_take_memory_by_what_differs(text: bool) -> None:
    # Each of 179 windows combines 60 slices: copied for each window, 10 million values would take gigabytes.
    windows, peak_mb = distinct_in_a_process(400_000, 10**9, text, seconds=100)
    assert windows == 179
    assert peak_mb < 700


@pytest.mark.long
@pytest.mark.parametrize("different", [1_000, 10**9])
def test_distinct_values_of_five_million_rows_take_less_than_two_gigabytes(different: int) -> None:
    windows, peak_mb = distinct_in_a_process(5_000_000, different, False, seconds=200)
    assert windows == 179
    assert peak_mb < 2_000


@pytest.mark.parametrize("seed", range(4))
def test_however_windows_are_cut_for_memory_their_results_are_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every aggregate, over windows with one and two slices an advance, made all at once, and a few at a time."""
    chance = np.random.default_rng(seed)
    count, size, every = 120, int(chance.integers(5, 60)), int(chance.integers(1, 5))
    values = [
        None if draw > 8 else float(draw) if draw != 3 else float("nan") for draw in chance.integers(0, 10, count)
    ]
    rows = tuples(np.sort(chance.integers(-150, 150, count)).tolist(), chance.integers(0, 4, count).tolist(), values)
    rows = rows.append_column("s", pa.array([None if v is None else f"s{v}" for v in values]))
    node = (
        tg.stream(rows.schema, time="ts")
        .key_by("k")
        .window(f"{size}us", every=f"{every}us")
        .aggregate(
            n=tg.count(),
            different=tg.distinct("v"),
            texts=tg.distinct("s"),
            total=tg.sum("v"),
            most=tg.max("v"),
            first=tg.first("s"),
            top=tg.top_k("v", 3),
            every_one=tg.collect("s"),
        )
        .node
    )
    assert isinstance(node, WindowAggregate)
    panes = Panes(node)
    lifted = pa.concat_tables([panes.lift(rows.slice(at, 40)) for at in range(0, count, 40)])
    first, last = -300, 300
    whole = pa.concat_tables(panes.results(lifted, first, last))
    monkeypatch.setattr(windowed_aggregate, "AT_ONCE", 8)
    pieces = list(panes.results(lifted, first, last))
    assert len(pieces) > 20
    starts = pa.concat_tables(pieces).column("window_start").cast(pa.int64()).to_numpy()
    assert (np.diff(starts) >= 0).all(), "results leave in the order of event time"
    assert difference(pa.concat_tables(pieces), whole) is None
    for row in whole.to_pylist():
        start = int(row["window_start"].timestamp() * 1e6)
        inside = [v for t, k, v in zip(*read(rows), strict=True) if start <= t < start + size and k == row["k"]]
        assert row["n"] == len(inside)
        assert row["different"] == row["texts"] == len({repr(v) for v in inside if v is not None})


def read(rows: pa.Table) -> tuple[list[int], list[int], list[float | None]]:
    times = rows.column("ts").cast(pa.int64()).to_pylist()
    return times, rows.column("k").to_pylist(), rows.column("v").to_pylist()


@pytest.mark.parametrize("at_once", [1, 5])
def test_results_that_leave_one_by_one_are_the_laws(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generated cases whose results leave a few at a time: ways that part and meet, instances that change, joins, cells."""
    monkeypatch.setattr(windowed_aggregate, "AT_ONCE", at_once)
    monkeypatch.setattr(result_rows, "AT_ONCE", at_once)
    sample = settings(max_examples=examples(4), database=None, suppress_health_check=list(HealthCheck))

    @sample
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_flow(data)
        how, change = data.draw(any_settings()), data.draw(any_reconfigurer())
        check_locally(data.draw(any_features().flatmap(cases)), how, change)
        check_join(data.draw(join_cases()), how, change)
        check_case(data.draw(any_features().flatmap(cases)), tmp_path)

    check()
