"""What the compiler hands to a runtime: the query cut into subqueries, and every choice with its reason.

A plan is a value. Passes fill it in one after the other, so a field that a later pass owns is None or empty until then.
Its nodes are those of the rewritten query (`Plan.query`), not the ones the user built.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from tidegate.errors import InternalError
from tidegate.query.nodes import Node, Stateful

Statefulness = Literal["stateless", "partitioned"]
Selectivity = Literal["exactly one", "at most one", "any"]


class Place(Enum):
    """Where a step runs."""

    NATIVE = "native Spark"
    KERNEL = "Arrow kernel"
    PYTHON = "Python"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step, where it runs and why there."""

    node: Node
    place: Place
    why: str


@dataclass(frozen=True, slots=True)
class Region:
    """What must hold for a subquery to run on many instances at once (Gedik §2.2).

    ``state`` chooses how tuples are dealt to instances: at will, or by key. ``ordered`` says whether what reads the
    region needs its results merged in order. ``selectivity`` is how many tuples leave for one that enters: unless it is
    exactly one, silence says nothing about progress and watermarks must be passed on without output.
    """

    state: Statefulness
    ordered: bool
    selectivity: Selectivity
    why: str


@dataclass(frozen=True, slots=True)
class Slices:
    """How the windows of an aggregate share work.

    A tuple updates one slice where it would otherwise update each of at most ``windows_per_tuple`` windows; a window
    combines ``per_window`` slices when it ends.
    """

    per_advance: int
    per_window: int
    windows_per_tuple: int


@dataclass(frozen=True, slots=True)
class Subquery:
    """A stateful operator and the stateless ones after it, or the stateless prefix of the query.

    A subquery is what is spread over instances as a whole: one exchange at its entry, none inside. ``nodes`` holds its
    steps, inputs before what reads them, with the sources that feed it first. ``combine`` says whether tuples are
    combined before the exchange; it and ``slices`` are None where there is nothing to choose.
    """

    name: str
    nodes: tuple[Node, ...]
    stateful: Stateful | None
    region: Region | None = None
    stages: tuple[Stage, ...] = ()
    slices: Slices | None = None
    combine: bool | None = None
    combine_why: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled query for one runtime."""

    query: Node
    runtime: str
    subqueries: tuple[Subquery, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every step with its place, inputs before what reads them within a subquery."""
        return tuple(stage for subquery in self.subqueries for stage in subquery.stages)

    def place(self, node: Node) -> Place:
        """Where a node of `Plan.query` runs; nodes are told apart by identity."""
        for stage in self.stages:
            if stage.node is node:
                return stage.place
        raise InternalError(f"step '{node.name}' has no place in this plan; ask for nodes of plan.query")
