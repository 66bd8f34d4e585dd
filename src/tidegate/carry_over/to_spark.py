"""From a snapshot in process to a checkpoint on Spark.

State goes to one cell of each step, as it is after the batch before the first one; with the first batch cells take their
shards from there, as they do from the cells of an earlier run. Gates hold tuples that were not ready, and cells keep no such
thing: these are added to the cells here, and what that gives, with results that waited for their turn, leaves with the
first batch.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tidegate.carry_over import finished_error, operator_of, refuse_sources, require_run_on, same_steps
from tidegate.compile.compiler import compile_query
from tidegate.compile.lower_to_aggregates import Operators
from tidegate.compile.plan import OUTPUT, Feed, Plan, Subquery, apply_all
from tidegate.errors import CheckpointError
from tidegate.operators.carried_state import add_to_cell, delta_of, fill_cell
from tidegate.operators.fingerprint import fingerprint
from tidegate.query.nodes import Node, Source, detached
from tidegate.runtime.local.checkpoint import RESULTS, LocalCheckpoint, state_step
from tidegate.runtime.local.durable_folder import FOLDERS, publish_left
from tidegate.runtime.spark.checkpoint import Checkpoint
from tidegate.runtime.spark.continued import Continued, new_query
from tidegate.sources.files import Files
from tidegate.sources.growing import FolderReader, GrowingFiles, known_paths
from tidegate.sources.positions import ReadPosition, absolute_paths, files_from
from tidegate.state.chunks import ChunkMemory, ChunkStore, Directory
from tidegate.state.run_lock import lock_for_reading
from tidegate.state.step_folder import BEFORE_FIRST, CONTINUED, StepFolder
from tidegate.state.storage import Storage, open_storage
from tidegate.watermark import END, is_finite

Arrived = list[tuple[Feed, pa.Table]]
"""Tuples, each with the feed that they came by, after its steps."""


def bring_to_spark(of: Path, query: Node, operators: Operators, plan: Plan, checkpoint: Checkpoint) -> Continued:
    """Bring over what a stopped run in process has, to a checkpoint of a plan on Spark that is new."""
    require_run_on(of, "local")
    with lock_for_reading(of):
        local = compile_query(query, "local", operators=operators)
        refuse_sources(local)
        before = LocalCheckpoint.of_stopped(of, local)
        last = before.newest
        if last.finished:
            raise finished_error(of)
        steps = {mine.number: other for mine, other in same_steps(local, plan)}
        read = zip(local.sources, last.positions, strict=True)
        positions = {source.name: _position(source, position) for source, position in read}
        publish_results(before)
        checkpoint.continued.mkdir(parents=True)
        state = SparkState(local, before, steps, positions, open_storage(str(checkpoint.state)), new_query(checkpoint))
        found = Continued(str(of), positions, tuple(state.write()))
        found.write(checkpoint)
        return found


def _position(source: Source, position: ReadPosition) -> ReadPosition:
    """How far a source was read: the files that are left, and those that are done; refused if they are not as they were."""
    match source.origin:
        case Files() as files:
            files_from(absolute_paths(files), position, source.name)
            at = 0 if position.file is None else position.files.index(position.file)
            return replace(position, files=position.files[at:], done=(*position.done, *position.files[:at]))
        case GrowingFiles() as growing:
            FolderReader.at(growing, position, source.name)
            done = (path for path in known_paths(growing, position) if path not in position.files)
            return replace(position, done=tuple(done))
        case _:
            return position


def publish_results(before: LocalCheckpoint) -> None:
    """See to it that the results which belong to the snapshot are out."""
    last = before.newest
    folders = last.sink_state.get(FOLDERS)
    if folders is not None:
        publish_left([Path(folder) for folder in folders], last.parts)
    elif any(next((before.folder / RESULTS).rglob(part.draft), None) for part in last.parts):
        raise CheckpointError(
            f"{before.folder}: the run was killed before the last results were committed to {last.sink}; start it once more "
            "with the same call, and stop it again"
        )


class SparkState:
    """Writes the state of the steps of a snapshot as that of one cell each; ``steps`` are those on Spark by number."""

    def __init__(
        self,
        plan: Plan,
        before: LocalCheckpoint,
        steps: dict[int, Subquery],
        positions: dict[str, ReadPosition],
        storage: Storage,
        query: str,
    ) -> None:
        self.plan, self.before, self.steps, self.positions = plan, before, steps, positions
        self.storage, self.query = storage, query
        self._passed: dict[int, Arrived] = {}

    def write(self) -> list[tuple[int, pa.Table]]:
        """Write all of it; the results that are not out, each after the number of the result that it belongs to."""
        for subquery in self.plan.subqueries:
            arrived = [*self._unready(subquery.number, subquery.feeds), *self._passed.pop(subquery.number, [])]
            stateless = subquery.operator is None
            results = [table for _, table in arrived] if stateless else self._write_step(subquery, arrived)
            onward = [feed for feed in self.plan.feeds_from(subquery.number) if feed.late_side is None]
            for table in results:
                for feed, made in apply_all(onward, table):
                    self._passed.setdefault(feed.target, []).append((feed, made))
        leaving = [*self._unready(OUTPUT, self.plan.outputs), *self._passed.pop(OUTPUT, [])]
        return [(feed.side, table) for feed, table in leaving if table.num_rows]

    def _unready(self, target: int, feeds: tuple[Feed, ...]) -> Arrived:
        """What was not ready in front of a subquery or the output."""
        if target in self.before.newest.ended:
            return []
        found = []
        for unready in self.before.read_gate(target).unready:
            feed, table = feeds[unready.input], pa.Table.from_batches([unready.batch])
            # A subquery applies the steps to its own results; a source passes on what it reads.
            found.append((feed, feed.apply(table) if isinstance(feed.origin, Source) else table))
        return found

    def _write_step(self, subquery: Subquery, arrived: Arrived) -> list[pa.Table]:
        """Write the state of a step with what has arrived; the results that this gives."""
        node, step = operator_of(subquery), self.steps[subquery.number]
        names = [source.name for source in self.plan.sources_before(subquery.number)]
        newest = {name: self.positions[name].newest for name in names if is_finite(self.positions[name].newest)}
        directory = Directory(fingerprint(detached(node)), newest=newest, run=CONTINUED)
        folder = StepFolder(self.storage, f"{self.query}/step-{step.number}", step.name, CONTINUED, 0)
        store = ChunkStore(directory, folder, 0, ChunkMemory())
        results: list[pa.Table] = []
        if subquery.number in self.before.newest.ended:
            directory.watermark = END
        else:
            directory.watermark = self.before.read_gate(subquery.number).watermark
            held = self.before.read_from(state_step(subquery.number))
            directory.last_time = max([held.chunks.directory.last_time, *newest.values()])
            fill_cell(node, held, store)
            results = add_to_cell(node, [delta_of(node, feed.side, table) for feed, table in arrived], store)
        store.commit(0, BEFORE_FIRST)
        return results
