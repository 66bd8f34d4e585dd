"""The two sides of a stateful step's exchange, made from a plan; nothing here touches a Spark session."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import cloudpickle

from tidegate.compile.plan import Place, Plan
from tidegate.compile.prune_columns import prune_columns, tuples_read
from tidegate.errors import InternalError
from tidegate.operators.cell_logic import CellLogic
from tidegate.operators.exchange import RouteByKeys, Router
from tidegate.operators.joins.join_cell import JoinLogic
from tidegate.operators.joins.route_join import router_of
from tidegate.operators.keyed_apply_cell import KeyedApplyLogic
from tidegate.operators.window_cell import WindowCellLogic
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import (
    Join,
    KeyedApply,
    Node,
    Source,
    Stateful,
    Stateless,
    Union,
    WindowAggregate,
    is_stateful,
    sources,
    walk,
)
from tidegate.query.predicates.tree import LEFT, RIGHT
from tidegate.runtime.spark import processor as light
from tidegate.runtime.spark.cell_frames import CellFrames
from tidegate.runtime.spark.cells import cell_keys
from tidegate.runtime.spark.combine_stage import CombineStage
from tidegate.runtime.spark.delta_rows import Intake
from tidegate.runtime.spark.fingerprint import fingerprint
from tidegate.runtime.spark.tuple_stage import TupleStage
from tidegate.state.cache import ChunkCache


@dataclass(frozen=True, slots=True)
class Feed:
    """One branch into a stateful step: what Spark computes natively, whose time sets the watermark, and the kernel.

    ``source`` is None if another stateful step makes the tuples: then the watermark is already set.
    """

    native: Node
    source: Source | None
    stage: CombineStage | TupleStage


def delay_ms(source: Source) -> int:
    """The delay to ask of Spark: 1 ms more than the disorder, because Spark drops ties with its watermark."""
    return -(-source.disorder_us // 1000) + 1


def feeds(plan: Plan, node: Stateful, cells: int) -> tuple[Feed, ...]:
    """The branches of a stateful step up to the exchange."""
    return tuple(
        _feed(plan, node, side, branch, cells)
        for side, below in enumerate(node.inputs)
        for branch in (below.inputs if isinstance(below, Union) else (below,))
    )


def processor(node: Stateful, cells: int, cache: ChunkCache | None, instances: int, run: str) -> light.CellProcessor:
    """The stateful step behind the exchange, with so many instances in each cell; ``run`` names the run.

    Its class travels by value, so that the process Spark starts on the driver need not import tidegate.
    """
    cloudpickle.register_pickle_by_value(light)  # type: ignore[no-untyped-call] # pyspark has no types for it
    shipped = _shipped(node)
    logic = _logic(shipped, cells)
    cell = CellFrames(logic, fingerprint(shipped, cells), cache, cell_keys(cells), instances, run)
    return light.CellProcessor(cloudpickle.dumps(cell))  # type: ignore[no-untyped-call] # pyspark has no types for it


def step_fingerprint(node: Stateful, cells: int) -> str:
    """What a checkpoint of this step holds."""
    return fingerprint(_shipped(node), cells)


def detached(step: Stateless) -> Stateless:
    """A stateless step as workers get it: without what lies before it."""
    return replace(step, input=_bare(step.input.name, step.input.schema, step.time))


def _feed(plan: Plan, node: Stateful, side: int, branch: Node, cells: int) -> Feed:
    steps: list[Stateless] = []
    while not isinstance(branch, Source | Stateful) and plan.place(branch) is Place.KERNEL:
        if isinstance(branch, Union):
            raise InternalError(f"step '{branch.name}' cannot be fused into a kernel")
        steps.insert(0, branch)
        branch = branch.input
    pruned = prune_columns(branch.schema, steps, tuples_read(node, side))
    intake = Intake(pruned.columns, tuple(detached(step) for step in pruned.steps))
    made = any(is_stateful(upstream) for upstream in walk(branch))
    return Feed(branch, None if made else sources(branch)[0], _stage(_shipped(node), side, intake, cells, made))


def _stage(node: Stateful, side: int, intake: Intake, cells: int, made: bool) -> CombineStage | TupleStage:
    """What runs before the exchange: aggregates combine there, other steps deal out whole tuples."""
    keys = cell_keys(cells)
    match node:
        case WindowAggregate():
            return CombineStage(intake, Panes(node), keys, made)
        case KeyedApply():
            router: Router = RouteByKeys(node.keys[side], cells)
        case Join():
            router = router_of(node, LEFT if side == 0 else RIGHT, cells)
        case _:
            raise InternalError(f"no exchange is known for {type(node).__name__}")
    below = node.inputs[side]
    return TupleStage(intake, below.schema, node.name, below.time, side, router, keys, made)


def _logic(node: Stateful, cells: int) -> CellLogic:
    """What runs behind the exchange."""
    match node:
        case WindowAggregate():
            return WindowCellLogic(Panes(node))
        case Join():
            return JoinLogic(node)
        case KeyedApply():
            return KeyedApplyLogic(node, cells)
        case _:
            raise InternalError(f"no cells are known for {type(node).__name__}")


def _shipped(node: Stateful) -> Stateful:
    """A stateful step as workers get it: over the columns it needs, without what lies before it."""
    bare = tuple(_bare(below.name, tuples_read(node, side), below.time) for side, below in enumerate(node.inputs))
    match node:
        case WindowAggregate():
            return replace(node, input=bare[0])
        case KeyedApply():
            return replace(node, inputs=bare)
        case _:
            return replace(node, left=bare[0], right=bare[1])


def _bare(name: str, schema: pa.Schema, time: str) -> Source:
    return Source(name, schema, time, 0)
