"""From a plan to stages: what runs in workers, where its rows come from, and between which stages they are exchanged.

::

    one cell        inputs, control ─▶ WholeQuery
    several cells   input ─▶ FeedStage ═╗
                    control ─▶ Pulse ═══╬═ exchange ═▶ CellStage ═ exchange ═▶ CellStage ─▶ results

A tree of values without DataFrames: `dataframe` has Spark execute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from tidegate.compile.plan import Feed, Plan, Subquery
from tidegate.compile.read_used_columns import columns_read_by
from tidegate.operators.cell_kinds import logic_of
from tidegate.operators.fingerprint import fingerprint
from tidegate.operators.joins.near import pair_grid_of
from tidegate.query.nodes import Source, detached
from tidegate.runtime.spark.cell_batch import StateRoot, StepLogic
from tidegate.runtime.spark.codec import DELTA_ROWS
from tidegate.runtime.spark.control import SteeredStep, step_label
from tidegate.runtime.spark.epochs import CellPlan, Recreation
from tidegate.runtime.spark.inputs import FrameRows, Inputs, NamedFiles, without_paths
from tidegate.runtime.spark.operator import CellStage, FeedStage, PulseStage, WholeQuery
from tidegate.runtime.spark.output import Output, PartOutput, RowOutput
from tidegate.runtime.spark.sources import FileNames
from tidegate.state.epochs import ADOPT, PROTOCOLS


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a plan runs: where its state and its control stream are, and the instances of each cell to begin with.

    ``late_to`` is the folder for late tuples. ``parts`` is the folder to which workers write results, in a ``format``;
    without one they leave as rows.
    """

    root: StateRoot
    control: str
    instances: int = 1
    late_to: str | None = None
    parts: str | None = None
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class InputBranch:
    """The rows of one input: some columns of a source, or the names of its files."""

    number: int
    source: Source
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OneStage:
    """A whole plan, or its stateless part, over its inputs; with state, the control stream comes after some of them."""

    function: WholeQuery
    inputs: tuple[InputBranch, ...]
    before_control: int = 0

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows it gives."""
        return self.function.output.columns


@dataclass(frozen=True, slots=True)
class FeedBranch:
    """What an input of a step gives to its exchange."""

    function: FeedStage
    input: InputBranch


@dataclass(frozen=True, slots=True)
class PulseBranch:
    """What the control stream gives to the exchange of a step."""

    function: PulseStage


@dataclass(frozen=True, slots=True)
class ExchangedStage:
    """The cells of a step, behind the exchange of all that comes ``before``."""

    function: CellStage
    before: tuple[BeforeExchange, ...]
    cells: int

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows it gives."""
        return self.function.output.columns if self.function.following is None else DELTA_ROWS


BeforeExchange: TypeAlias = FeedBranch | PulseBranch | ExchangedStage


def stages_of(plan: Plan, options: RunOptions) -> tuple[OneStage | ExchangedStage, ...]:
    """The last stages of a plan, whose results together are those of the query."""
    builder = _Builder(plan, shipped(plan), options)
    stateful = any(subquery.operator is not None for subquery in plan.subqueries)
    return tuple(builder.exchanged()) if plan.cells[1] > 1 and stateful else (builder.one_stage(),)


def fingerprints(plan: Plan) -> list[str]:
    """What the state of a plan holds, by stateful step."""
    operators = [subquery.operator for subquery in plan.subqueries if subquery.operator is not None]
    return [fingerprint(detached(operator)) for operator in operators]


def steered_steps(plan: Plan) -> list[SteeredStep]:
    """The stateful steps of a plan, for those who steer the query."""
    found = []
    for subquery in plan.subqueries:
        if subquery.operator is not None:
            recreation, label = Recreation.of(subquery.operator), step_label(subquery.number, subquery.name)
            step = SteeredStep(label, subquery.name, plan.cells[1], (ADOPT,))
            if recreation is not None:
                every, lasts = recreation.every, recreation.every + recreation.reach + recreation.lateness
                step = replace(step, protocols=PROTOCOLS, window_seconds=lasts / 1e6, advance_seconds=every / 1e6)
            found.append(step)
    return found


def shipped(plan: Plan) -> Plan:
    """A plan as workers get it: without DataFrames, and each step without what lies before it."""
    bare = plan.reading(lambda source: replace(source, origin=None))
    # A step of several feeds stays one, so that it runs once where they begin at one place.
    steps = {id(step.node): detached(step.node) for feed in bare.feeds for step in feed.steps}

    def lean(feeds: tuple[Feed, ...]) -> tuple[Feed, ...]:
        return tuple(
            replace(feed, steps=tuple(replace(step, node=steps[id(step.node)]) for step in feed.steps))
            for feed in feeds
        )

    subqueries = tuple(
        replace(
            subquery,
            operator=None if subquery.operator is None else detached(subquery.operator),
            feeds=lean(subquery.feeds),
        )
        for subquery in bare.subqueries
    )
    return replace(bare, query=bare.sources[0], subqueries=subqueries, outputs=lean(bare.outputs))


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds the stages of a plan; ``lean`` is the plan as workers get it."""

    plan: Plan
    lean: Plan
    options: RunOptions

    @property
    def output(self) -> Output:
        """Where results go."""
        names, parts = self.plan.names, self.options.parts
        schema = self.plan.query.schema if names else self.plan.outputs[0].schema
        if parts is None:
            return RowOutput(schema, names=names)
        return PartOutput(schema, parts, self.options.format, names=names)

    def one_stage(self) -> OneStage:
        """The whole plan in one task."""
        inputs, branches = self._inputs([feed for feed in self.plan.feeds if isinstance(feed.origin, Source)])
        steps = {each.number: each for each in map(self._step, self.lean.subqueries) if each is not None}
        whole = WholeQuery(self.lean, steps, inputs, self.options.root, self.output)
        if not steps:
            return OneStage(whole, branches)
        # Spark knows the sources of a checkpoint by their order: the same as with several cells.
        order = list(dict.fromkeys(name for stage in self.exchanged() for name in _leaves(stage)))
        ordered = sorted(branches, key=lambda branch: order.index(branch.source.name))
        before = sum(order.index(branch.source.name) < order.index(None) for branch in branches)
        return OneStage(whole, tuple(ordered), before)

    def exchanged(self) -> Iterator[OneStage | ExchangedStage]:
        """Each stateful step behind an exchange of its own."""
        for origin in dict.fromkeys(feed.origin for feed in self.lean.outputs):
            assert isinstance(origin, int)
            subquery = self.lean.subqueries[origin]
            if subquery.operator is not None:
                yield self._cells(subquery, None, tuple(feed for feed in self.lean.outputs if feed.origin == origin))
            else:
                yield from self._passed(subquery)

    def _passed(self, subquery: Subquery) -> Iterator[OneStage | ExchangedStage]:
        """What reaches the output past every stateful step, and what is merged with it."""
        for origin in dict.fromkeys(feed.origin for feed in subquery.feeds if isinstance(feed.origin, int)):
            feeds = tuple(feed for feed in subquery.feeds if feed.origin == origin)
            yield self._cells(self.lean.subqueries[origin], None, feeds)
        for feed in self.plan.subqueries[subquery.number].feeds:
            if isinstance(feed.origin, Source):
                inputs, branches = self._inputs([feed])
                yield OneStage(WholeQuery(self.lean, {}, inputs, self.options.root, self.output), branches)

    def _step(self, subquery: Subquery) -> StepLogic | None:
        """A stateful step as workers run it."""
        if subquery.operator is None:
            return None
        return StepLogic(
            subquery.number,
            subquery.name,
            logic_of(subquery.operator),
            fingerprint(subquery.operator),
            tuple((source.name, source.disorder_us) for source in self.plan.sources_before(subquery.number)),
            CellPlan(*self.plan.cells, pair_grid_of(subquery.operator), Recreation.of(subquery.operator)),
            self.options.instances,
            self.options.late_to,
            any(feed.late_side is not None for feed in self.plan.feeds_from(subquery.number)),
            tuple((source.name, source.disorder_us, source.idle_us) for source in self.plan.idling_with),
        )

    def _cells(self, subquery: Subquery, following: Subquery | None, feeds: tuple[Feed, ...]) -> ExchangedStage:
        """The cells of a step, whose results go on to another step or out."""
        step = self._step(subquery)
        assert step is not None
        first = self.lean.feeds_from(subquery.number)[0]
        onward = self._step(following) if following is not None else None
        then = None if following is None or onward is None else (following, onward)
        stage = CellStage(subquery, step, self.options.root, first in feeds, then, feeds, self.output)
        return ExchangedStage(stage, tuple(self._before_exchange(subquery, step)), step.cells)

    def _before_exchange(self, subquery: Subquery, step: StepLogic) -> Iterator[BeforeExchange]:
        """All that feeds a step; one that no other step feeds gets the pulse."""
        upstream = sorted({feed.origin for feed in subquery.feeds if isinstance(feed.origin, int)})
        for origin in upstream:
            feeds = tuple(feed for feed in subquery.feeds if feed.origin == origin)
            yield self._cells(self.lean.subqueries[origin], subquery, feeds)
        direct = [feed for feed in self.plan.subqueries[subquery.number].feeds if isinstance(feed.origin, Source)]
        for group in _by_input(direct):
            inputs, (branch,) = self._inputs(group)
            yield FeedBranch(FeedStage(subquery, step, inputs, self.options.root), branch)
        if not upstream:
            yield PulseBranch(PulseStage(step.cells))

    def _inputs(self, feeds: Sequence[Feed]) -> tuple[Inputs, tuple[InputBranch, ...]]:
        """The inputs of some feeds from sources, as workers read them and as Spark provides them."""
        inputs: list[NamedFiles | FrameRows] = []
        branches: list[InputBranch] = []
        for number, group in enumerate(_by_input(feeds)):
            source = group[0].origin
            assert isinstance(source, Source)
            lean = tuple(self.lean.subqueries[feed.target].feeds[feed.input] for feed in group)
            bare = replace(source, origin=None)
            # Of several inputs that read one source, in this stage or in others, one counts.
            counted = any(feed is self.plan.feeds_from(source)[0] for feed in group)
            if isinstance(source.origin, FileNames):
                origin = source.origin
                inputs.append(NamedFiles(bare, without_paths(origin.files), lean, counted, origin.begun))
                branches.append(InputBranch(number, source, ()))
                continue
            columns = _read_by(group, source)
            inputs.append(FrameRows(bare, columns, lean, counted))
            branches.append(InputBranch(number, source, tuple(columns.names)))
        return Inputs(tuple(inputs)), tuple(branches)


def _leaves(stage: OneStage | BeforeExchange) -> Iterator[str | None]:
    """The names of the sources that a stage reads, in the order in which Spark meets them; None for the control stream."""
    match stage:
        case OneStage():
            yield from (branch.source.name for branch in stage.inputs)
        case FeedBranch():
            yield stage.input.source.name
        case PulseBranch():
            yield None
        case ExchangedStage():
            for branch in stage.before:
                yield from _leaves(branch)


def _read_by(feeds: Sequence[Feed], source: Source) -> pa.Schema:
    """The columns of a source that some of its feeds read, and its event time, by which it moves the watermark."""
    read = {source.time}.union(*map(columns_read_by, feeds))
    return pa.schema([field for field in source.schema if field.name in read])


def _by_input(feeds: Sequence[Feed]) -> list[list[Feed]]:
    """Feeds that read one input: those of one source."""
    found: dict[int, list[Feed]] = {}
    for feed in feeds:
        found.setdefault(id(feed.origin), []).append(feed)
    return list(found.values())
