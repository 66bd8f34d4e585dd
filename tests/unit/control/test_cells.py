"""Instances for cells and nodes for their instances, against cases worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.cells import (
    CellInstances,
    CellLoad,
    ShareInstances,
    allocate_cells,
    place_cells,
    subqueries_as_cells,
)
from tidegate.control.controller import Action
from tidegate.control.erlang import mean_sojourn
from tidegate.control.observation import DataflowEdge, Observation, Station, with_demand
from tidegate.errors import UserError

A0, A1 = CellLoad("a", 0, 1, 10.0, 10.0), CellLoad("a", 1, 1, 5.0, 10.0)


def test_a_cell_gets_the_instance_that_takes_most_off_the_mean_time() -> None:
    """10/s and 5/s at 10/s an instance: 2 and 1 are stable.

    With two servers at a load of 1, C = 1/3, so E[T] = (1/3)/(20 - 10) + 1/10 = 4/30 s; one at a half: 1/(10 - 5) = 1/5 s.
    (1/15)·(10·4/30 + 5·1/5) = 7/45 s = 0.1556. A third for the first: C(3, 1) = 1/11, E = 1/11/20 + 1/10 = 23/220;
    10·(4/30 - 23/220) = 0.288. A second for the other: C(2, 1/2) = 1/10, E = 1/10/15 + 1/10 = 0.10667, and
    5·(1/5 - 0.10667) = 0.467, which is more. Then (1/15)·(4/3 + 0.5333) = 0.12444 s.
    """
    few = allocate_cells([A0, A1], 15.0, 0.16, 8)
    assert few.instances == {("a", 0): 2, ("a", 1): 1}
    assert few.seconds == pytest.approx(7 / 45)
    more = allocate_cells([A0, A1], 15.0, 0.13, 8)
    assert more.instances == {("a", 0): 2, ("a", 1): 2}
    assert more.seconds == pytest.approx(0.124444, rel=1e-4)
    assert more.of_step("a") == {0: 2, 1: 2}
    assert "cell 0 of 'a' has most to do, 1.00 instances' worth" in more.why


def test_cells_of_one_step_get_different_numbers() -> None:
    skewed = [CellLoad("join", cell, 2, rate, 100.0) for cell, rate in enumerate((350.0, 90.0, 10.0))]
    made = allocate_cells(skewed, 450.0, 0.02, 16)
    counts = list(made.of_step("join").values())
    assert counts == sorted(counts, reverse=True)
    assert counts[0] >= 4
    assert counts[2] == 1
    times = [mean_sojourn(count, each.arrival_rate, 100.0) for each, count in zip(skewed, counts, strict=True)]
    by_hand = sum(each.arrival_rate * seconds for each, seconds in zip(skewed, times, strict=True)) / 450.0
    assert made.seconds == pytest.approx(by_hand)
    assert by_hand <= 0.02


def test_what_is_enough_by_a_margin_is_kept() -> None:
    """At 19/s one instance of 20/s is stable; with a tenth more it is not, so the second is kept, and not asked for."""
    lone = CellLoad("a", 0, 1, 19.0, 20.0)
    assert allocate_cells([lone], 19.0, 10.0, 8).instances == {("a", 0): 1}
    assert allocate_cells([replace(lone, instances=2)], 19.0, 10.0, 8).instances == {("a", 0): 2}
    assert allocate_cells([replace(lone, instances=5)], 19.0, 10.0, 8).instances == {("a", 0): 2}


def test_no_more_instances_than_cores() -> None:
    overloaded = [CellLoad("a", 0, 4, 60.0, 10.0), CellLoad("b", 0, 4, 20.0, 10.0)]
    made = allocate_cells(overloaded, 60.0, 1.0, 4)
    assert made.instances == {("a", 0): 3, ("b", 0): 1}
    assert math.isinf(made.seconds)
    assert "too few" in made.why
    with pytest.raises(UserError, match="1 cores for 2 cells"):
        allocate_cells(overloaded, 60.0, 1.0, 1)


@given(
    rates=st.lists(st.floats(0.0, 500.0), min_size=1, max_size=6),
    present=st.integers(1, 8),
    spare=st.integers(0, 20),
)
def test_every_cell_has_an_instance_and_cores_are_never_exceeded(rates: list[float], present: int, spare: int) -> None:
    cells = [CellLoad("a", cell, present, rate, 50.0) for cell, rate in enumerate(rates)]
    cores = max(len(cells) + spare, 1)
    made = allocate_cells(cells, sum(rates), 0.05, cores)
    assert all(count >= 1 for count in made.instances.values())
    assert sum(made.instances.values()) <= max(cores, len(cells))


def test_nothing_arrives() -> None:
    assert allocate_cells([replace(A0, instances=4)], 0.0, 0.1, 8).instances == {("a", 0): 1}


def test_subqueries_in_process_are_steps_of_one_cell() -> None:
    """'a' gets 100/s and makes two of each; 'b' gets them. Each does what its busy share says."""
    seen = with_demand(
        [
            Observation("a", 1.0, 1.0, 2, offered=100.0, processed=100.0, busy=(0.5, 0.5)),
            Observation("b", 1.0, 1.0, 1, processed=200.0, busy=(0.5,)),
        ],
        [DataflowEdge(None, "a"), DataflowEdge("a", "b", 2.0)],
    )
    cells = subqueries_as_cells(seen)
    assert cells == (CellLoad("a", 0, 2, 100.0, 100.0), CellLoad("b", 0, 1, 200.0, 400.0))
    made = allocate_cells(cells, 100.0, 0.05, 8)
    assert set(made.instances) == {("a", 0), ("b", 0)}
    assert subqueries_as_cells([Observation("a", 1.0, 1.0, 1)]) == ()


HELD = {("a", 0): {0: 1}, ("a", 1): {1: 1}}


def test_a_free_core_at_hand_is_taken_before_another_nodes() -> None:
    """Two nodes of two cores, a cell on each; the first wants two, and its own node has one left."""
    cells = [replace(A0, state_bytes=1_000, home=0), replace(A1, state_bytes=1_000, home=1)]
    wanted = CellInstances({("a", 0): 2, ("a", 1): 1}, 0.0, "")
    placed = place_cells(cells, wanted, (2, 2), HELD)
    assert placed.of_cell("a", 0) == {0: 2}
    assert placed.of_cell("a", 1) == {1: 1}
    assert (placed.handed_over, placed.unused) == (1, ())


def test_a_cell_with_much_data_stays_at_home() -> None:
    """It needs two cores for 4 MB/s: more than 512 KB/s each, so both must be at home, where another cell gives one up."""
    busy = replace(A0, bytes_per_second=4e6, home=0)
    quiet = replace(A1, home=0)
    wanted = CellInstances({("a", 0): 2, ("a", 1): 1}, 0.0, "")
    placed = place_cells([busy, quiet], wanted, (2, 2), {("a", 0): {0: 1}, ("a", 1): {0: 1}})
    assert placed.of_cell("a", 0) == {0: 2}
    assert placed.of_cell("a", 1) == {1: 1}


def test_nodes_that_no_cell_needs_may_be_released_the_emptiest_first() -> None:
    """A cell with much data, at home on the first node, gives up what it has on the second; nothing was on the third."""
    cells = [replace(A0, state_bytes=900, bytes_per_second=4e6, home=0), replace(A1, state_bytes=100, home=0)]
    wanted = CellInstances({("a", 0): 2, ("a", 1): 1}, 0.0, "")
    placed = place_cells(cells, wanted, (4, 4, 4), {("a", 0): {0: 1, 1: 1}, ("a", 1): {0: 1}})
    assert placed.of_cell("a", 0) == {0: 2}
    assert placed.unused == (2, 1)


def working(seconds: tuple[float, ...], instances: tuple[int, ...], cores: int, period: float = 2.0) -> Observation:
    """Cells that worked for so long, added up over their instances, on 100 rows each."""
    slowest = max(each / count for each, count in zip(seconds, instances, strict=True))
    stations = tuple(
        Station(str(cell), count, 100 / slowest, 100 / each)
        for cell, (each, count) in enumerate(zip(seconds, instances, strict=True))
    )
    busy = tuple(each / count / period for each, count in zip(seconds, instances, strict=True))
    return Observation("1:a, instances", period, period, len(seconds), busy=busy, network=stations, cores=cores)


def test_instances_are_shared_out_by_what_cells_have_to_do() -> None:
    """4 s and 1 s of work on two instances each: the slowest takes 2 s; with three it takes 4/3 s, and the other 1 s."""
    decision = ShareInstances().decide(working((4.0, 1.0), (2, 2), 4))
    assert (decision.action, decision.mapping, decision.instances) == (Action.BALANCE, (0, 0, 0, 1), 2)
    assert "instances by cell 0: 3, 1: 1: the slowest takes 67% as long" in decision.why
    assert "cell 0 of '1:a, instances' has most to do, 2.00 instances' worth" in decision.why


@pytest.mark.parametrize(
    ("seconds", "instances", "cores", "why"),
    [
        ((4.0, 4.0), (2, 2), 4, "would make the slowest take 100% as long"),
        ((4.0, 1.0), (3, 1), 4, "would make the slowest take 100% as long"),
        ((0.4, 0.1), (2, 2), 4, "no cell works 25% of the time"),
        ((4.0, 1.0), (1, 1), 1, "1 cores for 2 cells"),
    ],
)
def test_instances_stay_where_another_share_would_not_help(
    seconds: tuple[float, ...], instances: tuple[int, ...], cores: int, why: str
) -> None:
    decision = ShareInstances().decide(working(seconds, instances, cores))
    assert not decision.changes
    assert why in decision.why


def test_shares_settle_and_use_what_there_is() -> None:
    instances, work = (4, 4), (4.0, 1.0)
    for _ in range(5):
        decision = ShareInstances().decide(working(work, instances, 8))
        if decision.mapping is None:
            break
        instances = decision.mapping.count(0), decision.mapping.count(1)
    assert instances == (6, 2)
    assert not ShareInstances().decide(Observation("a", 1.0, 1.0, 2)).changes, "what is not known is not acted on"
