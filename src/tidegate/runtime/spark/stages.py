"""The two sides of a stateful step's exchange, made from a plan; nothing here touches a Spark session."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import cloudpickle

from tidegate.compile.plan import Place, Plan
from tidegate.compile.prune_columns import prune_columns
from tidegate.errors import InternalError
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import (
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
from tidegate.runtime.spark import processor as light
from tidegate.runtime.spark.cell_frames import CellFrames
from tidegate.runtime.spark.cells import cell_keys
from tidegate.runtime.spark.combine_stage import CombineStage
from tidegate.runtime.spark.fingerprint import fingerprint
from tidegate.state.cache import ChunkCache


@dataclass(frozen=True, slots=True)
class Feed:
    """One branch into a stateful step: what Spark computes natively, whose time sets the watermark, and the kernel.

    ``source`` is None if another stateful step makes the tuples: then the watermark is already set.
    """

    native: Node
    source: Source | None
    stage: CombineStage


def delay_ms(source: Source) -> int:
    """The delay to ask of Spark: 1 ms more than the disorder, because Spark drops ties with its watermark."""
    return -(-source.disorder_us // 1000) + 1


def feeds(plan: Plan, node: WindowAggregate, cells: int) -> tuple[Feed, ...]:
    """The branches of a stateful step up to the exchange."""
    branches = node.input.inputs if isinstance(node.input, Union) else (node.input,)
    return tuple(_feed(plan, node, branch, cells) for branch in branches)


def processor(
    node: WindowAggregate, cells: int, cache: ChunkCache | None, instances: int, run: str
) -> light.CellProcessor:
    """The stateful step behind the exchange, with so many instances in each cell; ``run`` names the run.

    Its class travels by value, so that the process Spark starts on the driver need not import tidegate.
    """
    cloudpickle.register_pickle_by_value(light)  # type: ignore[no-untyped-call] # pyspark has no types for it
    shipped = _shipped(node)
    cell = CellFrames(Panes(shipped), fingerprint(shipped, cells), cache, cell_keys(cells), instances, run)
    return light.CellProcessor(cloudpickle.dumps(cell))  # type: ignore[no-untyped-call] # pyspark has no types for it


def step_fingerprint(node: WindowAggregate, cells: int) -> str:
    """What a checkpoint of this step holds."""
    return fingerprint(_shipped(node), cells)


def detached(step: Stateless) -> Stateless:
    """A stateless step as workers get it: without what lies before it."""
    return replace(step, input=_bare(step.input.name, step.input.schema, step.time))


def _feed(plan: Plan, node: WindowAggregate, branch: Node, cells: int) -> Feed:
    steps: list[Stateless] = []
    while not isinstance(branch, Source | Stateful) and plan.place(branch) is Place.KERNEL:
        if isinstance(branch, Union):
            raise InternalError(f"step '{branch.name}' cannot be fused into a kernel")
        steps.insert(0, branch)
        branch = branch.input
    pruned = prune_columns(branch.schema, steps, node)
    shipped = tuple(detached(step) for step in pruned.steps)
    made = any(is_stateful(upstream) for upstream in walk(branch))
    stage = CombineStage(pruned.columns, shipped, Panes(_shipped(node)), cell_keys(cells), made)
    return Feed(branch, None if made else sources(branch)[0], stage)


def _shipped(node: WindowAggregate) -> WindowAggregate:
    """A stateful step as workers get it: over the columns it needs, without what lies before it."""
    tuples = prune_columns(node.input.schema, (), node).tuples
    return replace(node, input=_bare(node.input.name, tuples, node.time))


def _bare(name: str, schema: pa.Schema, time: str) -> Source:
    return Source(name, schema, time, 0)
