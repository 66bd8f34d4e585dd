"""What changes hands when a mapping does, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.memory_storage import MemoryStorage
from tests.kit.spark_driver import Batch, Driver
from tidegate.runtime.spark import cell_batch
from tidegate.runtime.spark.control import SetMapping
from tidegate.runtime.spark.epochs import CellPlan, Recreation, switch
from tidegate.state.chunks import Chunk, Directory
from tidegate.state.epochs import RECREATE, CellEpoch, first_mapping

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema({"ts": TIME, "k": pa.int64(), "n": pa.int64()})
KEYS = 2_000


CALLS = tg.stream(SCHEMA, time="ts", name="calls")


def applied() -> tg.Stream:
    return (
        CALLS.key_by("k")
        .window("1 hour")
        .apply(
            update=lambda window, arriving: tg.updated({"seen": window.state["seen"] + 1}),
            output=lambda window: {"k": window.key, "seen": window.state["seen"]},
            state={"seen": pa.int64()},
            initial={"seen": 0},
            returns={"k": pa.int64(), "seen": pa.int64()},
        )
    )


QUERIES = {
    "windows": lambda: CALLS.key_by("k").window("1 hour").aggregate(n=tg.sum("n")),
    "apply": applied,
    "by key": lambda: CALLS.join(CALLS, on="k", window="1 hour"),
    "grid": lambda: CALLS.join(CALLS, window="1 hour", where=lambda l, r: l.n < r.n),
    "left join": lambda: CALLS.join(CALLS, window="1 hour", where=lambda l, r: l.n < r.n, how="left"),
    "full join": lambda: CALLS.join(CALLS, window="1 hour", where=lambda l, r: l.n < r.n, how="full"),
}


def batch(number: int, **more: Any) -> Batch:
    times = pa.array([number * 1_000_000 + place for place in range(KEYS)], TIME)
    table = pa.table([times, pa.array(range(KEYS)), pa.array([number] * KEYS)], schema=SCHEMA)
    return Batch({"calls": [table]}, **more)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> MemoryStorage:
    found = MemoryStorage()
    monkeypatch.setattr(cell_batch, "open_storage", lambda uri, options: found)
    return found


@pytest.mark.parametrize("kind", QUERIES)
def test_half_of_the_state_moves_without_a_chunk_being_written_for_it(kind: str, storage: MemoryStorage) -> None:
    driver = Driver(QUERIES[kind]().node, (1, 2), "memory")
    written = []
    for number in range(6):
        before = len(storage.puts)
        driver.batch(batch(number, mappings=(SetMapping(1, cells=2),) if number == 1 else ()))
        puts = [name for name in storage.puts[before:] if "/chunks/" in name]
        written.append(sum(len(storage.files[name]) for name in puts))
    reports = [[one for one in told if "step" in one] for told in driver.outcome.reports]
    assert [one["epoch"] for told in reports for one in told if one["cell"] == 0] == [0, 0, 1, 1, 1, 1]
    assert [one["shards"] for one in reports[1]] == [1024, 0]
    assert [one["shards"] for one in reports[2]] == [512, 512]
    (adopted,) = (one["adopted"] for one in reports[2] if "adopted" in one)
    had = reports[1][0]["state_bytes"]
    # On a grid with two columns a right tuple goes to one of them, a left one to both; the partners of tuples that may
    # stay alone go to all cells.
    share = {"grid": 0.75, "left join": 0.75, "full join": 1.0}.get(kind, 0.5)
    assert adopted["shards"] == 512
    assert adopted["bytes"] == pytest.approx(share * had, rel=0.02)
    # With two cells a batch writes two files; in that of the move nothing comes on top of that. (In batch 3 joins merge.)
    assert written[2] < 1.05 * written[4]


def test_while_windows_are_recreated_nothing_is_adopted(storage: MemoryStorage) -> None:
    hours = CALLS.key_by("k").window("2 seconds", every="1 second").aggregate(n=tg.sum("n"))
    driver = Driver(hours.node, (1, 2), "memory")
    for number in range(6):
        driver.batch(batch(number, mappings=(SetMapping(1, cells=2, protocol=RECREATE),) if number == 1 else ()))
    reports = [[one for one in told if "step" in one] for told in driver.outcome.reports]
    assert not any("adopted" in one for told in reports for one in told)
    # The newest time of batch 1 is 1.001999 s: windows from 2 s on are the new cell's, the last old one ends at 3 s.
    assert [[one.get("handover_us") for one in told] for told in reports[1:5]] == [
        [None, None],
        [3_000_000, 3_000_000],
        [3_000_000, 3_000_000],
        [None, None],
    ]
    # In batch 2 tuples of the second cell's shards go to both, in batch 3, of windows from 2 s on, to the new one alone.
    moved = reports[5][1]["rows"]
    assert 900 < moved < 1_100
    assert [[one["rows"] for one in told] for told in reports[1:4]] == [
        [KEYS, 0],
        [KEYS, moved],
        [KEYS - moved, moved],
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (lambda: QUERIES["windows"](), Recreation(3_600_000_000, 0)),
        (lambda: CALLS.key_by("k").window("6s", every="2s", lateness="1s").aggregate(n=tg.count()), (2, 4, 1)),
        (lambda: CALLS.join(CALLS, on="k", window="6s", every="2s"), (2, 4, 0)),
        (lambda: CALLS.join(CALLS, on="k", within="3s"), Recreation(1, 3_000_000)),
        (lambda: QUERIES["grid"](), None),
        (applied, None),
    ],
)
def test_windows_with_a_fixed_begin_can_be_recreated(query: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        expected = Recreation(*(1_000_000 * seconds for seconds in expected))
    assert Recreation.of(query().node) == expected


def test_the_switch_is_the_first_begin_after_the_newest_time() -> None:
    """::

    windows of 6 s every 2 s      newest 5.3 s
      │ 0 ─────── 6 │                 the old cell's: begins at 0, 2 and 4 s, the last ends at 10 s
          … 4 ─────── 10 │
              6 ─────── 12 │          the new cell's
    """
    epoch = CellEpoch(0, first_mapping(2))
    found = Recreation(2_000_000, 4_000_000, 1_000_000).handover(epoch, 5_300_000)
    assert (found.switch, found.last, found.over) == (6_000_000, 10_000_000, 11_000_000)
    assert found.previous == epoch.mapping


def handing_over(most: int = 3) -> tuple[CellPlan, Directory]:
    """A step with three cells, whose shards are asked to come to the first one while windows are recreated."""
    plan = CellPlan(1, most, recreation=Recreation(1_000, 0))
    directory = Directory("f", 500, {"calls": 1_500}, epoch=CellEpoch(0, first_mapping(3)), cells=plan.range)
    directory.following = directory.epoch.next(first_mapping(1), RECREATE)
    return plan, directory


def test_cells_that_are_gone_with_a_restart_keep_nothing() -> None:
    plan, directory = handing_over()
    found = plan.after(directory)
    assert found.handover is not None and (found.handover.switch, found.handover.over) == (2_000, 2_000)
    assert CellPlan(1, 1, recreation=plan.recreation).after(directory).handover is None, "what they had is adopted"


def test_other_cells_that_change_no_mapping_do_not_end_a_handover() -> None:
    plan, directory = handing_over()
    directory.epoch, directory.following = plan.after(directory), None
    directory.chunks = [Chunk("0000000001-ab", 0, 2, 5, 50, shards=directory.epoch.owned_before(2))]
    more = CellPlan(1, 4, recreation=plan.recreation)
    before = list(directory.chunks)
    assert more.after(directory) == directory.epoch
    assert switch(directory, directory.epoch, more, 2, lambda cell: pytest.fail("nothing is adopted")) is None
    assert (directory.chunks, directory.cells) == (before, (1, 4))


def test_a_handover_that_is_cut_short_is_adopted_up_to_its_switch() -> None:
    plan, directory = handing_over()
    directory.epoch, directory.following = plan.after(directory), None
    leaving = directory.epoch.owned_before(2)
    old = Chunk("0000000001-ab", 0, 2, 5, 50, shards=leaving, written=leaving)
    new = Chunk("0000000002-cd", 2, 3, 5, 50, shards=leaving, written=leaving)
    others = {
        2: replace(directory, chunks=[old]),
        1: replace(directory, chunks=[]),
        0: replace(directory, chunks=[new]),
    }
    one = CellPlan(1, 1)
    mine = replace(directory, chunks=[new])
    adopted = switch(mine, one.after(directory), one, 0, others.__getitem__)
    # What the third cell had from before the switch, and what the first has had since.
    assert mine.chunks == [replace(old, until=2_000), new]
    assert adopted is not None and (adopted.shards, adopted.chunks) == (682, 1)


def test_a_handover_ends_when_the_watermark_has_passed_its_windows() -> None:
    plan, directory = handing_over()
    directory.epoch, directory.following = plan.after(directory), None
    for watermark, over in ((1_999, False), (2_000, True)):
        directory.watermark = watermark
        assert (plan.after(directory).handover is None) == over
    directory.chunks = [Chunk("0000000001-ab", 0, 2, 5, 50, shards=directory.epoch.owned_before(2))]
    assert switch(directory, plan.after(directory), plan, 2, lambda cell: pytest.fail("nothing is adopted")) is None
    assert directory.chunks == []
