"""Give cells the cores they need, moving little state: Elasticutor's algorithm 1.

Under-provisioned cells are served in descending order of data intensity. A data-intensive one accepts cores at home
alone; the others take the core that is cheapest to hand over, counting what both cells have to move:

    C⁺ = s·(X − x)/(X·(X + 1))   to get a core on a node where it has x of its X
    C⁻ = s·(X − x)/(X·(X − 1))   to give one up

A free core has no cell to give it up and costs C⁺ alone. Three things the listing leaves open are settled so that an
assignment is found whenever one exists at a threshold (`PlacementProblem.fits`). Intensive cells first let go of the cores
they have away from home. An intensive cell that finds neither a free core nor a donor at home displaces a cell that is not
intensive, which is served afterwards like the other under-provisioned ones. And a cell without cores has its state at
home.

C⁺ is the same on all nodes where a cell has no core. So the best node is either the cheapest of all, or one of the few on
which the cell already is, and a step costs a look at those instead of a scan of the whole matrix.

An assignment is a matrix of whole numbers: row i, column j is how many cores of node i cell j has. A cell's state lies
where its cores are, in proportion; the state of a cell without cores lies at its home.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InternalError, UserError


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise UserError(f"placement: {rule}")


Assignment = npt.NDArray[np.integer[Any]]
Whole = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """All cells, as columns: bytes of state, bytes per second in and out, and the node each cell calls home.

    Its receiver and emitter run at home, so tuples for a core elsewhere cross the network twice.
    """

    state_bytes: Whole
    bytes_per_second: Real
    home: Whole

    def __len__(self) -> int:
        return len(self.home)


@dataclass(frozen=True, slots=True, eq=False)
class HeldCores:
    """The entries of an assignment that are not zero, by node: far fewer than the matrix has, which is mostly empty."""

    node: Whole
    cell: Whole
    cores: Whole

    def of_nodes(self, nodes: int) -> Whole:
        """Cores in use on each node."""
        return np.bincount(self.node, self.cores, minlength=nodes).astype(np.int64)

    def of_cells(self, cells: int) -> Whole:
        """Cores that each cell has."""
        return np.bincount(self.cell, self.cores, minlength=cells).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PlacementProblem:
    """What is to be placed: cores of each node, the cells, their assignment so far, and how many cores each needs.

    `needed` may be 0: there may be more cells than cores, and a cell without load needs none. `held` is the assignment
    again, without its zeros.
    """

    cores: Whole
    cells: Cells
    before: Assignment
    needed: Whole
    held: HeldCores = field(init=False)

    def __post_init__(self) -> None:
        cells, nodes, count = self.cells, len(self.cores), len(self.cells)
        columns = (cells.state_bytes, cells.bytes_per_second, cells.home, self.needed)
        shapes = self.before.shape == (nodes, count) and {len(column) for column in columns} == {count}
        _require(shapes, "the assignment must have a row for each node and a column for each cell, as has each column")
        # One pass over the matrix, which is mostly empty.
        node, cell = np.divmod(np.flatnonzero(self.before != 0), max(count, 1))
        object.__setattr__(self, "held", HeldCores(node, cell, self.before[node, cell].astype(np.int64)))
        negative = any((column < 0).any() for column in (*columns, self.held.cores))
        _require(not negative, "cores, needs, state, rates and homes must be at least 0")
        _require(not (cells.home >= nodes).any(), f"homes must be nodes, 0 to {nodes - 1}")
        used = self.held.of_nodes(nodes)
        _require(
            not (used > self.cores).any(), f"{used.tolist()} cores are assigned on nodes with {self.cores.tolist()}"
        )
        needed, there = self.needed.sum(), self.cores.sum()
        _require(needed <= there, f"{needed} cores are needed and there are {there}; ask for fewer")

    @property
    def intensity(self) -> Real:
        """Bytes per second in and out of each cell for each core it needs, Elasticutor's data intensity (§4.2)."""
        return self.cells.bytes_per_second / np.maximum(self.needed, 1)

    def intensive(self, threshold: float) -> npt.NDArray[np.bool_]:
        """The cells whose data intensity is above a threshold in bytes per second: they accept cores at home alone."""
        return self.intensity > threshold

    def fits(self, threshold: float) -> bool:
        """Whether any assignment exists at this threshold: each node must bear the intensive cells at home on it.

        That is all there is to it. The rest may go anywhere, and the cores suffice in all.
        """
        local = self.intensive(threshold)
        at_home = np.bincount(self.cells.home[local], self.needed[local], minlength=len(self.cores))
        return bool((at_home <= self.cores).all())


DEFAULT_THRESHOLD = 512 * 1024.0
"""Bytes per second and core below which it hardly matters where a core is: the paper's φ̄."""

_FREE = -1.0  # a byte better than a donor that moves nothing, so that at equal cost no cell is disturbed


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """An assignment, the locality threshold (bytes per second and core) it keeps, and how many cores were handed over.

    Cells may keep more cores than they need: no other cell wanted them, and giving them up would move state.
    """

    assignment: Assignment
    threshold: float
    handed_over: int


def assign_cores(problem: PlacementProblem, threshold: float = DEFAULT_THRESHOLD) -> Placement:
    """The assignment at the lowest threshold that has one: `threshold`, doubled until it fits.

    It ends at the latest when no cell is data-intensive any more, because then every core will do. Feasibility is known
    beforehand, so the algorithm runs once. The problem's own matrix is left as it is.
    """
    while not problem.fits(threshold):
        threshold *= 2
    work = _CoreHandover(problem, threshold)
    work.serve()
    return Placement(work.assignment, threshold, work.handed_over)


class _CoreHandover:
    """The assignment in the making, with what it costs to get a core on each node."""

    def __init__(self, problem: PlacementProblem, threshold: float) -> None:
        self._home: list[int] = problem.cells.home.tolist()
        self._state: list[float] = problem.cells.state_bytes.astype(np.float64).tolist()
        self._needed: list[int] = problem.needed.tolist()
        self._intensity = problem.intensity
        self._intensive = problem.intensive(threshold)
        self.assignment = problem.before.copy()
        kept = self._let_go_away_from_home(problem)
        self._assigned: list[int] = kept.of_cells(len(self._home)).tolist()
        self._free: list[int] = (problem.cores - kept.of_nodes(len(problem.cores))).tolist()
        self._nodes_of: list[dict[int, int]] = self._by_cell(kept)
        self._donors: list[list[tuple[float, int, int]]] = [[] for _ in self._free]
        self._price: Real = np.zeros(len(self._free))
        self._offer_surplus()
        self.handed_over = 0

    def serve(self) -> None:
        """Serve the intensive cells, then the rest, among which there may be cells that were displaced by them."""
        for intensive in (True, False):
            for cell in self._under_provisioned(intensive):
                while self._assigned[cell] < self._needed[cell]:
                    node = self._home[cell] if intensive else self._cheapest_node(cell)
                    self._hand_over(node, cell)

    def _let_go_away_from_home(self, problem: PlacementProblem) -> HeldCores:
        before = problem.held
        away = self._intensive[before.cell] & (problem.cells.home[before.cell] != before.node)
        self.assignment[before.node[away], before.cell[away]] = 0
        return HeldCores(before.node[~away], before.cell[~away], before.cores[~away])

    def _by_cell(self, kept: HeldCores) -> list[dict[int, int]]:
        nodes_of: list[dict[int, int]] = [{} for _ in self._home]
        for node, cell, count in zip(kept.node.tolist(), kept.cell.tolist(), kept.cores.tolist(), strict=True):
            nodes_of[cell][node] = count
        return nodes_of

    def _offer_surplus(self) -> None:
        surplus = np.flatnonzero(np.asarray(self._assigned) > np.asarray(self._needed))
        for cell in surplus.tolist():
            self._offer(cell)
        for node in range(len(self._free)):
            self._set_price(node)

    def _under_provisioned(self, intensive: bool) -> list[int]:
        lacking = (np.asarray(self._assigned) < np.asarray(self._needed)) & (self._intensive == intensive)
        cells = np.flatnonzero(lacking)
        ordered: list[int] = cells[np.argsort(-self._intensity[cells], kind="stable")].tolist()
        return ordered

    def _giving_up(self, cell: int, node: int) -> float:
        """C⁻: the state that leaves this node when the cell gives up a core on it."""
        total = self._assigned[cell]
        if total == 1:  # the state goes home
            return 0.0 if node == self._home[cell] else self._state[cell]
        return self._state[cell] * (total - self._nodes_of[cell][node]) / (total * (total - 1))

    def _offer(self, cell: int) -> None:
        """Put a donor's price on each of its nodes. Older entries differ from this one in the number of cores."""
        for node in self._nodes_of[cell]:
            heapq.heappush(self._donors[node], (self._giving_up(cell, node), cell, self._assigned[cell]))

    def _donor(self, node: int) -> tuple[float, int] | None:
        """The cheapest donor on a node, after dropping entries that no longer hold."""
        donors = self._donors[node]
        while donors:
            cost, cell, assigned = donors[0]
            if assigned == self._assigned[cell] > self._needed[cell] and node in self._nodes_of[cell]:
                return cost, cell
            heapq.heappop(donors)
        return None

    def _set_price(self, node: int) -> None:
        if self._free[node]:
            self._price[node] = _FREE
        else:
            donor = self._donor(node)
            self._price[node] = math.inf if donor is None else donor[0]

    def _cheapest_node(self, cell: int) -> int:
        """The node with the least C⁻ + C⁺; the cheapest of all, unless one on which the cell already is does better."""
        total, state, price = self._assigned[cell], self._state[cell], self._price
        near = self._nodes_of[cell] if total else {self._home[cell]: 1}
        per_core = state / (total * (total + 1)) if total else state
        best = int(price.argmin())
        best_cost = float(price[best]) - per_core * near.get(best, 0)
        for node, count in near.items():
            cost = float(price[node]) - per_core * count
            if cost < best_cost:
                best, best_cost = node, cost
        return best

    def _hand_over(self, node: int, cell: int) -> None:
        if self._free[node]:
            self._free[node] -= 1
            self._set_price(node)
        else:
            donor = self._donor(node)
            self._take(node, donor[1] if donor else self._displaced(node))
        self._assigned[cell] += 1
        self._nodes_of[cell][node] = self._nodes_of[cell].get(node, 0) + 1
        self.assignment[node, cell] += 1
        self.handed_over += 1

    def _take(self, node: int, donor: int) -> None:
        """Take a core from a donor and price anew the nodes on which it has cores, for all of them have changed."""
        touched = tuple(self._nodes_of[donor])
        self._assigned[donor] -= 1
        self.assignment[node, donor] -= 1
        if self._nodes_of[donor][node] == 1:
            del self._nodes_of[donor][node]
        else:
            self._nodes_of[donor][node] -= 1
        if self._assigned[donor] > self._needed[donor]:
            self._offer(donor)
        for each in touched:
            self._set_price(each)

    def _displaced(self, node: int) -> int:
        """The cell on a node that is cheapest to displace, of those that may go elsewhere."""
        present = np.flatnonzero(self.assignment[node])
        movable: list[int] = present[~self._intensive[present]].tolist()
        if not movable:
            raise InternalError(f"placement: node {node} has no core left for the data-intensive cells at home there")
        return min(movable, key=lambda cell: (self._giving_up(cell, node), cell))
