"""Nodes with cores, cells with state, and how much state a new assignment of cores moves over the network.

An assignment is a matrix of whole numbers: row i, column j is how many cores of node i cell j has. A cell's state lies
where its cores are, in proportion; the state of a cell without cores lies at its home.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import UserError

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

    def __post_init__(self) -> None:
        lengths = {len(self.state_bytes), len(self.bytes_per_second), len(self.home)}
        if len(lengths) > 1:
            raise UserError(
                f"cells: state_bytes ({len(self.state_bytes)}), bytes_per_second ({len(self.bytes_per_second)}) and home "
                f"({len(self.home)}) must have one entry for each cell"
            )
        if len(self) and min(self.state_bytes.min(), self.bytes_per_second.min(), self.home.min()) < 0:
            raise UserError("cells: state_bytes, bytes_per_second and home must be at least 0; measure them again")

    def __len__(self) -> int:
        return len(self.home)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
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


def held(assignment: Assignment) -> Held:
    """The entries that are not zero; one pass over the matrix."""
    places = np.flatnonzero(assignment != 0)
    node, cell = np.divmod(places, max(assignment.shape[1], 1))
    return Held(node, cell, assignment[node, cell].astype(np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What is to be placed: cores of each node, the cells, their assignment so far, and how many cores each needs.

    `needed` may be 0: there may be more cells than cores, and a cell without load needs none. `held` is the assignment
    again, without its zeros.
    """

    cores: Whole
    cells: Cells
    before: Assignment
    needed: Whole
    held: Held = field(init=False)

    def __post_init__(self) -> None:
        nodes, count = len(self.cores), len(self.cells)
        if self.before.shape != (nodes, count) or self.needed.shape != (count,):
            raise UserError(
                f"placement: the assignment is {self.before.shape} and the need {self.needed.shape}, for {nodes} nodes and "
                f"{count} cells; the assignment has a row for each node and a column for each cell"
            )
        if count and self.cells.home.max() >= nodes:
            raise UserError(f"placement: a cell's home is node {self.cells.home.max()}; nodes are 0 to {nodes - 1}")
        object.__setattr__(self, "held", held(self.before))
        if (self.held.cores < 0).any() or (self.needed < 0).any():
            raise UserError("placement: cores assigned and cores needed must be at least 0")
        used = self.held.of_nodes(nodes)
        if (used > self.cores).any():
            node = int(np.argmax(used > self.cores))
            raise UserError(
                f"placement: node {node} has {self.cores[node]} cores and {used[node]} are assigned; give the assignment "
                "that is in force"
            )
        if self.needed.sum() > self.cores.sum():
            raise UserError(
                f"placement: {self.needed.sum()} cores are needed and there are {self.cores.sum()}; ask for fewer"
            )

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
