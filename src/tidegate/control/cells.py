"""Instances for each cell of each step, and the nodes they should be on: Elasticutor's two decisions as values.

First how many: every cell is an M/M/k queue of one network, and instances go where they take most off the mean time
through the query (§4.1, `queueing.allocate`). Then where: algorithm 1 moves little state and keeps cells with much data on
their own node (§4.2, `placement.assign_cores`). Both are pure; a runtime carries out as much as it can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tidegate.control.controller import Action, Decision, Limits, hold
from tidegate.control.controllers.queueing import ATTAINABLE, Allocation, allocate, kept_or_changed
from tidegate.control.observation import Observation, Station
from tidegate.control.placement import DEFAULT_THRESHOLD, Cells, PlacementProblem, assign_cores
from tidegate.errors import UserError

MARGIN = 0.1
"""How much more load must be borne with fewer instances before any is given up."""
BEST_SECONDS = 1e-9
"""A target below any service time: instances are given as long as they take something off the mean time."""


@dataclass(frozen=True, slots=True)
class CellLoad:
    """One cell of one step: what arrives there, what one busy instance completes, and how many instances it has.

    `state_bytes`, `bytes_per_second` (in and out) and `home`, the node where its data arrive, matter for placement alone.
    A subquery in process is a step of one cell.
    """

    step: str
    cell: int
    instances: int
    arrival_rate: float
    service_rate: float
    state_bytes: int = 0
    bytes_per_second: float = 0.0
    home: int = 0

    @property
    def station(self) -> Station:
        """The cell as a queue of the network."""
        return Station(f"{self.step}/{self.cell}", self.instances, self.arrival_rate, self.service_rate)


@dataclass(frozen=True, slots=True)
class CellInstances:
    """How many instances each cell of each step should have, and the mean time through the query that this gives."""

    instances: Mapping[tuple[str, int], int]
    seconds: float
    why: str

    def of_step(self, step: str) -> dict[int, int]:
        """The cells of one step and their instances: what a row of the control stream says."""
        return {cell: count for (name, cell), count in self.instances.items() if name == step}


def allocate_cells(
    cells: Sequence[CellLoad], arrival_rate: float, target_seconds: float, cores: int, margin: float = MARGIN
) -> CellInstances:
    """The fewest instances, cell by cell, whose mean time meets the target; what is enough by a margin is not changed.

    ``arrival_rate`` is what enters the query per second, ``cores`` what all cells may use. As with `Queueing`, the model is
    asked with the rates as measured and with ``margin`` more: below the first a cell gets more, above the second fewer.
    The cores are a limit for all: where keeping would exceed it, cells get what they need.
    """
    if cores < len(cells):
        raise UserError(f"cells: {cores} cores for {len(cells)} cells; each needs at least one")
    if not cells or arrival_rate <= 0:
        return CellInstances({(each.step, each.cell): 1 for each in cells}, 0.0, "nothing arrives")
    stations = [each.station for each in cells]
    floor = math.fsum(each.arrival_rate / each.service_rate for each in stations) / arrival_rate
    target = max(target_seconds, ATTAINABLE * floor)
    needed = allocate(stations, arrival_rate, target, cores)
    busier = [replace(each, arrival_rate=each.arrival_rate * (1 + margin)) for each in stations]
    kept = allocate(busier, arrival_rate * (1 + margin), target, cores)
    counts = [
        kept_or_changed(each.instances, least, most)
        for each, least, most in zip(cells, needed.instances, kept.instances, strict=True)
    ]
    if sum(counts) > cores:
        counts = list(needed.instances)
    named = {(each.step, each.cell): count for each, count in zip(cells, counts, strict=True)}
    return CellInstances(named, needed.seconds, _why(cells, needed, target, cores))


@dataclass(frozen=True, slots=True)
class ShareInstances:
    """Shares the instances of a step out to its cells by what each has to do: a controller of one step.

    gain
        the share by which the slowest cell must become faster for anything to change.
    least_busy
        the busy share of the slowest cell below which nothing does.

    To it the network of an observation are the cells, each a station by its number, with the rates of the time in which
    cells were at work: a batch gives them all of their rows at once, and is done when the slowest is. `mapping` of its
    decisions names the cell of each instance.
    """

    gain: float = 0.1
    least_busy: float = 0.25
    name: ClassVar[str] = "share instances"

    def start(self, limits: Limits) -> ShareInstances:
        """It remembers nothing, and what cells may use is observed."""
        return self

    def decide(self, observation: Observation) -> Decision:
        if missing := observation.missing(("network", "busy", "cores")):
            return hold(observation, missing=missing)
        assert observation.network is not None and observation.busy is not None and observation.cores is not None
        if max(observation.busy) < self.least_busy:
            return hold(observation, f"no cell works {self.least_busy:.0%} of the time")
        cells = [
            CellLoad(observation.subquery, int(each.subquery), each.instances, each.arrival_rate, each.service_rate)
            for each in observation.network
        ]
        if observation.cores < len(cells):
            return hold(observation, f"{observation.cores} cores for {len(cells)} cells: each has one instance")
        arriving = math.fsum(each.arrival_rate for each in cells)
        wanted = allocate_cells(cells, arriving, BEST_SECONDS, observation.cores)
        counts = wanted.of_step(observation.subquery)
        before = max(each.arrival_rate / each.service_rate / each.instances for each in cells)
        after = max(each.arrival_rate / each.service_rate / counts[each.cell] for each in cells)
        shown = ", ".join(f"{cell}: {count}" for cell, count in counts.items())
        if after > (1 - self.gain) * before:
            return hold(
                observation, f"instances by cell {shown} would make the slowest take {after / before:.0%} as long"
            )
        why = f"instances by cell {shown}: the slowest takes {after / before:.0%} as long; {wanted.why}"
        mapping = tuple(cell for cell, count in counts.items() for _ in range(count))
        return Decision(observation.subquery, Action.BALANCE, observation.instances, why, mapping)


def subqueries_as_cells(observations: Sequence[Observation]) -> tuple[CellLoad, ...]:
    """The subqueries of a query in process as cells, with the rates that were measured; without those that get nothing.

    Empty where the network is not known.
    """
    network = next((each.network for each in observations if each.network is not None), None) or ()
    return tuple(CellLoad(each.subquery, 0, each.instances, each.arrival_rate, each.service_rate) for each in network)


@dataclass(frozen=True, slots=True)
class CellPlaces:
    """On which nodes the instances of each cell should be.

    ``places`` are (step, cell, node, cores). ``threshold`` is the data intensity, in bytes per second and core, above which
    a cell stays at home. ``unused`` are the nodes that no cell needs, the one that held least state first: it is the first
    to be released.
    """

    places: tuple[tuple[str, int, int, int], ...]
    threshold: float
    handed_over: int
    unused: tuple[int, ...]

    def of_cell(self, step: str, cell: int) -> dict[int, int]:
        """The nodes of one cell and its cores on each."""
        return {node: cores for name, number, node, cores in self.places if (name, number) == (step, cell)}


def place_cells(
    cells: Sequence[CellLoad],
    wanted: CellInstances,
    cores: Sequence[int],
    before: Mapping[tuple[str, int], Mapping[int, int]],
    threshold: float = DEFAULT_THRESHOLD,
) -> CellPlaces:
    """Algorithm 1 for the instances that cells should have, on nodes with so many cores; ``before`` is where they are."""
    assignment = np.zeros((len(cores), len(cells)), dtype=np.int64)
    for place, each in enumerate(cells):
        for node, count in before.get((each.step, each.cell), {}).items():
            assignment[node, place] = count
    columns = Cells(
        np.array([each.state_bytes for each in cells], dtype=np.int64),
        np.array([each.bytes_per_second for each in cells], dtype=np.float64),
        np.array([each.home for each in cells], dtype=np.int64),
    )
    needed = np.array([wanted.instances[each.step, each.cell] for each in cells], dtype=np.int64)
    placed = assign_cores(PlacementProblem(np.array(cores), columns, assignment, needed), threshold)
    nodes, numbers = np.nonzero(placed.assignment)
    places = tuple(
        (cells[number].step, cells[number].cell, node, int(placed.assignment[node, number]))
        for node, number in zip(nodes.tolist(), numbers.tolist(), strict=True)
    )
    held = assignment @ columns.state_bytes
    idle = [node for node in range(len(cores)) if not placed.assignment[node].any()]
    return CellPlaces(
        places, placed.threshold, placed.handed_over, tuple(sorted(idle, key=lambda node: (held[node], node)))
    )


def _why(cells: Sequence[CellLoad], needed: Allocation, target: float, cores: int) -> str:
    busiest = max(cells, key=lambda each: each.arrival_rate / each.service_rate)
    most = busiest.arrival_rate / busiest.service_rate
    named = f"cell {busiest.cell} of '{busiest.step}' has most to do, {most:.2f} instances' worth"
    if math.isinf(needed.seconds):
        return f"{cores} cores are too few for what arrives; {named}"
    return f"the mean time is {needed.seconds:.4g} s for a target of {target:.4g} s; {named}"
