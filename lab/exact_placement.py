"""The cheapest assignment there is, for cases small enough to try them all.

The integer programme of Elasticutor (§4.2, equation 2) is NP-hard; this solves it by going through the cells one by one
and keeping, for every number of cores left on each node, the cheapest way to get there. With c cores on each of n nodes
and m cells that is m·(c + 1)^2n steps: good for a handful of nodes and cells, and for judging `assign_cores`.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tidegate.control.placement import Assignment, Cells, PlacementProblem, Real, Whole
from tidegate.errors import UserError

Left = tuple[int, ...]

MOST_STATES = 5_000


def exact(problem: PlacementProblem, threshold: float) -> Assignment | None:
    """An assignment that moves the fewest bytes at this locality threshold, or None if there is none."""
    states = int(np.prod(problem.cores + 1))
    if states > MOST_STATES:
        raise UserError(
            f"exact placement: {len(problem.cores)} nodes give {states} states, more than {MOST_STATES}; use assign_cores"
        )
    reached: dict[Left, tuple[float, tuple[Left, ...]]] = {tuple(problem.cores.tolist()): (0.0, ())}
    for cell in range(len(problem.cells)):
        options = _options(problem, cell, threshold)
        further: dict[Left, tuple[float, tuple[Left, ...]]] = {}
        for left, (cost, chosen) in reached.items():
            for taken, price in options:
                rest = tuple(have - take for have, take in zip(left, taken, strict=True))
                if min(rest) < 0:
                    continue
                if rest not in further or cost + price < further[rest][0]:
                    further[rest] = (cost + price, (*chosen, taken))
        reached = further
    if not reached:
        return None
    _, best = min(reached.values())
    return np.array(best, dtype=np.int64).reshape(len(problem.cells), len(problem.cores)).T


def _options(problem: PlacementProblem, cell: int, threshold: float) -> list[tuple[Left, float]]:
    """Every way to give one cell its cores, with the bytes that it moves."""
    home = int(problem.cells.home[cell])
    local = bool(problem.intensive(threshold)[cell])
    ranges = [range(int(cores) + 1 if not local or node == home else 1) for node, cores in enumerate(problem.cores)]
    found = []
    for taken in product(*ranges):
        if sum(taken) >= problem.needed[cell]:
            after = problem.before.copy()
            after[:, cell] = taken
            found.append((taken, bytes_moved(problem.before, after, problem.cells)))
    return found


def bytes_moved(before: Assignment, after: Assignment, cells: Cells) -> float:
    """The state that has to leave a node, over all nodes and cells: Elasticutor's migration cost C(X | X̃).

    The paper prints X_j under both fractions; the old share is over the old number of cores, which is also what its own
    C⁺ and C⁻ follow from.
    """
    changed = np.flatnonzero((before != after).any(axis=0))
    home = cells.home[changed]
    leaving = np.maximum(_shares(before[:, changed], home) - _shares(after[:, changed], home), 0.0)
    return float((leaving.sum(axis=0) * cells.state_bytes[changed]).sum())


def _shares(assignment: Assignment, home: Whole) -> Real:
    """The part of each cell's state on each node."""
    assigned = assignment.sum(axis=0)
    parts: Real = assignment / np.maximum(assigned, 1)
    idle = np.flatnonzero(assigned == 0)
    parts[home[idle], idle] = 1.0
    return parts
