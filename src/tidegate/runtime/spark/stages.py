"""The two sides of a stateful step's exchange, made from a plan; nothing here touches a Spark session."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import cloudpickle

from tidegate.compile.plan import Feed, Place, Subquery
from tidegate.errors import InternalError
from tidegate.operators.cell_logic import CellLogic
from tidegate.operators.exchange import RouteByKeys, Router
from tidegate.operators.joins.join_cell import JoinLogic
from tidegate.operators.joins.route_join import Grid, RouteByEqualKeys, RouteOnGrid
from tidegate.operators.keyed_apply_cell import KeyedApplyLogic
from tidegate.operators.window_cell import WindowCellLogic
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import (
    Join,
    KeyedApply,
    Source,
    Stateful,
    Stateless,
    WindowAggregate,
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
class FeedBranch:
    """One feed of a stateful step up to the exchange: what Spark computes natively, then the kernel."""

    feed: Feed
    native: tuple[Stateless, ...]
    stage: CombineStage | TupleStage


def delay_ms(source: Source) -> int:
    """The delay to ask of Spark: 1 ms more than the disorder, because Spark drops ties with its watermark."""
    return -(-source.disorder_us // 1000) + 1


def branches(subquery: Subquery, cells: int) -> tuple[FeedBranch, ...]:
    """The feeds of a stateful step up to the exchange."""
    return tuple(_branch(subquery, feed, cells) for feed in subquery.feeds)


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


def _branch(subquery: Subquery, feed: Feed, cells: int) -> FeedBranch:
    assert subquery.operator is not None
    native = tuple(step.node for step in feed.steps if step.place is not Place.KERNEL)
    kernel = tuple(detached(step.node) for step in feed.steps if step.place is Place.KERNEL)
    intake = Intake(native[-1].schema if native else feed.entering, kernel)
    return FeedBranch(feed, native, _stage(subquery, _shipped(subquery.operator), feed, intake, cells))


def _stage(subquery: Subquery, node: Stateful, feed: Feed, intake: Intake, cells: int) -> CombineStage | TupleStage:
    """What runs before the exchange: aggregates combine there, other steps partition whole tuples."""
    keys, side = cell_keys(cells), feed.side
    derived = not isinstance(feed.origin, Source)
    if subquery.combine is not None and subquery.combine.before_exchange and isinstance(node, WindowAggregate):
        return CombineStage(intake, Panes(node), keys, derived)
    match node, subquery.safety().partitioning:
        case KeyedApply(), "keys":
            router: Router = RouteByKeys(node.keys[side], cells)
        case Join(), "keys":
            router = RouteByEqualKeys(tuple(names[side] for names in node.on), cells)
        case Join(), "pairs":
            router = RouteOnGrid(LEFT if side == 0 else RIGHT, Grid.of(cells))
        case _:
            raise InternalError(f"no exchange is known for {type(node).__name__}")
    below = node.inputs[side]
    return TupleStage(intake, below.schema, node.name, below.time, side, router, keys, derived)


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
    """A stateful step as workers get it: without what lies before it."""
    bare = tuple(_bare(below.name, below.schema, below.time) for below in node.inputs)
    match node:
        case WindowAggregate():
            return replace(node, input=bare[0])
        case KeyedApply():
            return replace(node, inputs=bare)
        case _:
            return replace(node, left=bare[0], right=bare[1])


def _bare(name: str, schema: pa.Schema, time: str) -> Source:
    return Source(name, schema, time, 0)
