"""Cores for cells: always feasible, local where it must be, and close to the cheapest there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.exact_placement import bytes_moved, exact
from tests.kit.effort import examples
from tidegate.control.placement import DEFAULT_THRESHOLD, Cells, PlacementProblem, assign_cores
from tidegate.errors import UserError

QUIET, BUSY = 1_000.0, 10_000_000.0  # bytes per second, far below and far above the threshold


def cells(state: list[int], home: list[int], rates: list[float] | None = None) -> Cells:
    return Cells(np.array(state), np.array(rates or [QUIET] * len(state)), np.array(home))


def problem(cores: list[int], of: Cells, before: list[list[int]], needed: list[int]) -> PlacementProblem:
    return PlacementProblem(np.array(cores), of, np.array(before), np.array(needed))


def random_problem(rng: np.random.Generator, nodes: int, count: int, cores: int) -> PlacementProblem:
    """Any assignment, any need that there are cores for, some cells that are data-intensive."""
    capacity = rng.integers(1, cores + 1, nodes)
    before = np.zeros((nodes, count), dtype=np.int64)
    for node in range(nodes):
        np.add.at(before[node], rng.integers(0, count, rng.integers(0, capacity[node] + 1)), 1)
    needed = np.bincount(rng.integers(0, count, rng.integers(0, capacity.sum() + 1)), minlength=count)
    rates = rng.choice([0.0, 1e5, 1e6, 1e7], count)
    return PlacementProblem(
        capacity, Cells(rng.integers(0, 1_000, count), rates, rng.integers(0, nodes, count)), before, needed
    )


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 12), st.integers(1, 40), st.integers(1, 8))
@settings(max_examples=examples(50), deadline=None)
def test_every_assignment_is_valid(seed: int, nodes: int, count: int, cores: int) -> None:
    given_problem = random_problem(np.random.default_rng(seed), nodes, count, cores)
    untouched = given_problem.before.copy()
    placed = assign_cores(given_problem)
    found = placed.assignment
    assert found.min() >= 0
    assert (found.sum(axis=1) <= given_problem.cores).all()
    assert (found.sum(axis=0) >= given_problem.needed).all()
    local = np.flatnonzero(given_problem.intensive(placed.threshold))
    assert (found[given_problem.cells.home[local], local] == found[:, local].sum(axis=0)).all()
    assert (given_problem.before == untouched).all()
    assert (assign_cores(given_problem).assignment == found).all()


@given(SEEDS, st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=examples(40), deadline=None)
def test_no_assignment_is_cheaper_than_the_exact_one_and_none_exists_at_a_lower_threshold(
    seed: int, nodes: int, count: int
) -> None:
    given_problem = random_problem(np.random.default_rng(seed), nodes, count, 3)
    placed = assign_cores(given_problem)
    best = exact(given_problem, placed.threshold)
    assert best is not None
    cheapest = bytes_moved(given_problem.before, best, given_problem.cells)
    assert bytes_moved(given_problem.before, placed.assignment, given_problem.cells) >= cheapest - 1e-6
    if placed.threshold > DEFAULT_THRESHOLD:
        assert exact(given_problem, placed.threshold / 2) is None


def test_over_many_small_cases_it_moves_little_more_than_must_be() -> None:
    rng = np.random.default_rng(11)
    cases = [random_problem(rng, int(rng.integers(2, 4)), int(rng.integers(2, 6)), 4) for _ in range(200)]
    moved, least = 0.0, 0.0
    optimal = 0
    for case in cases:
        placed = assign_cores(case)
        best = exact(case, placed.threshold)
        assert best is not None
        cost, cheapest = (
            bytes_moved(case.before, placed.assignment, case.cells),
            bytes_moved(case.before, best, case.cells),
        )
        moved, least, optimal = moved + cost, least + cheapest, optimal + (cost <= cheapest + 1e-6)
    assert least > 0
    assert moved <= 1.2 * least
    assert optimal >= 0.8 * len(cases)


def test_the_cost_of_one_core_more_and_one_less_is_the_papers() -> None:
    one = cells([1_000], [0])
    before = np.array([[2], [1]])  # X = 3, x = 2 and 1
    first, second = np.array([[1], [0]]), np.array([[0], [1]])
    gained = [bytes_moved(before, before + core, one) for core in (first, second)]
    assert gained == pytest.approx([1_000 * (3 - 2) / (3 * 4), 1_000 * (3 - 1) / (3 * 4)])
    lost = [bytes_moved(before, before - core, one) for core in (first, second)]
    assert lost == pytest.approx([1_000 * (3 - 2) / (3 * 2), 1_000 * (3 - 1) / (3 * 2)])


def test_a_cell_without_cores_has_its_state_at_home() -> None:
    one = cells([500], [1])
    assert bytes_moved(np.array([[0], [0]]), np.array([[0], [1]]), one) == 0
    assert bytes_moved(np.array([[0], [0]]), np.array([[1], [0]]), one) == 500
    assert bytes_moved(np.array([[1], [0]]), np.array([[0], [0]]), one) == 500


def test_nothing_moves_where_nothing_is_needed() -> None:
    before = [[2, 1], [0, 3]]
    placed = assign_cores(problem([4, 4], cells([100, 100], [0, 1]), before, [1, 4]))
    assert (placed.assignment == before).all()
    assert placed.handed_over == 0


def test_a_free_core_is_taken_before_a_donor_of_the_same_cost() -> None:
    # Cell 1 could give up one of its three cores on node 0 without moving anything; cell 0 has no state to move either.
    placed = assign_cores(problem([4, 1], cells([0, 100], [0, 0]), [[1, 3], [0, 0]], [2, 1]))
    assert placed.assignment.tolist() == [[1, 3], [1, 0]]


def test_without_a_free_core_the_over_provisioned_give() -> None:
    placed = assign_cores(problem([4], cells([100, 100], [0, 0]), [[1, 3]], [2, 1]))
    assert placed.assignment.tolist() == [[2, 2]]


def test_a_cheap_donor_at_hand_beats_a_free_core_far_away() -> None:
    # A core on node 1 would move half of cell 0's 1,000 bytes; cell 1 loses nothing by giving one up on node 0.
    placed = assign_cores(problem([4, 4], cells([1_000, 10], [0, 0]), [[1, 3], [0, 0]], [2, 1]))
    assert placed.assignment.tolist() == [[2, 2], [0, 0]]


def test_the_donor_that_moves_least_gives() -> None:
    # Cells 1 and 2 have a core too many and are spread alike over the nodes; cell 2 has a hundredth of the state.
    of = cells([10, 1_000, 10], [0, 0, 0])
    placed = assign_cores(problem([3, 2], of, [[1, 1, 1], [0, 1, 1]], [2, 1, 1]))
    assert placed.assignment[:, 1].tolist() == [1, 1]
    assert placed.assignment[:, 2].sum() == 1


def test_the_more_intensive_cell_is_served_first() -> None:
    # One free core is at the home of both; the busier cell gets it, the other has to look elsewhere.
    of = cells([100, 100], [0, 0], [200_000.0, 400_000.0])
    placed = assign_cores(problem([3, 1], of, [[1, 1], [0, 0]], [2, 2]))
    assert placed.assignment.tolist() == [[1, 2], [1, 0]]


def test_an_intensive_cell_comes_home() -> None:
    placed = assign_cores(problem([4, 4], cells([100], [0], [BUSY]), [[1], [2]], [3]))
    assert placed.assignment.tolist() == [[3], [0]]
    assert placed.threshold == DEFAULT_THRESHOLD


def test_an_intensive_cell_displaces_a_quiet_one() -> None:
    # Node 0 is full and nobody has too many; the quiet cell moves to the free node.
    of = cells([100, 100], [0, 0], [BUSY, QUIET])
    placed = assign_cores(problem([2, 2], of, [[1, 1], [0, 0]], [2, 1]))
    assert placed.assignment.tolist() == [[2, 0], [0, 1]]


def test_the_threshold_doubles_until_the_intensive_cells_fit_at_home() -> None:
    # Three busy cells call a node with two cores home: only the busiest two can be local.
    of = cells([100] * 3, [0] * 3, [3_000_000.0, 2_500_000.0, 600_000.0])
    placed = assign_cores(problem([2, 2], of, [[0] * 3, [0] * 3], [1, 1, 1]))
    assert placed.threshold == 2 * DEFAULT_THRESHOLD
    assert placed.assignment.tolist() == [[1, 1, 0], [0, 0, 1]]


def test_it_ends_when_no_cell_is_intensive_any_more() -> None:
    of = cells([100], [0], [BUSY])
    placed = assign_cores(problem([1, 9], of, [[0], [0]], [10]))
    assert placed.assignment.tolist() == [[1], [9]]
    assert not problem([1, 9], of, [[0], [0]], [10]).intensive(placed.threshold).any()


def test_a_small_matrix_type_is_kept() -> None:
    compact = PlacementProblem(
        np.array([4, 4]), cells([1, 1], [0, 1]), np.zeros((2, 2), dtype=np.int8), np.array([4, 4])
    )
    assert assign_cores(compact).assignment.dtype == np.int8


def test_without_cells_there_is_nothing_to_place() -> None:
    nothing = np.array([], dtype=np.int64)
    empty = PlacementProblem(
        np.array([4]), Cells(nothing, np.array([]), nothing), np.zeros((1, 0), dtype=np.int64), nothing
    )
    assert assign_cores(empty).assignment.shape == (1, 0)


@pytest.mark.parametrize(
    ("cores", "before", "needed", "message"),
    [
        ([2], [[1, 2]], [1, 1], r"\[3\] cores are assigned on nodes with \[2\]"),
        ([2], [[1, 1]], [2, 1], "3 cores are needed and there are 2"),
        ([2], [[1]], [1, 1], "a row for each node and a column for each cell"),
        ([2], [[1, -1]], [1, 1], "must be at least 0"),
    ],
)
def test_problems_that_cannot_be_are_refused(
    cores: list[int], before: list[list[int]], needed: list[int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        problem(cores, cells([1, 1], [0, 0]), before, needed)


def test_cells_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match="a column for each cell"):
        problem([2], Cells(np.array([1]), np.array([1.0, 2.0]), np.array([0])), [[0]], [1])
    with pytest.raises(UserError, match="must be at least 0"):
        problem([2], cells([-1], [0]), [[0]], [1])
    with pytest.raises(UserError, match="homes must be nodes, 0 to 0"):
        problem([2], cells([1], [3]), [[0]], [1])


def test_the_exact_search_refuses_what_it_cannot_finish() -> None:
    with pytest.raises(UserError, match="use assign_cores"):
        exact(problem([8] * 6, cells([1], [0]), [[0]] * 6, [1]), DEFAULT_THRESHOLD)
