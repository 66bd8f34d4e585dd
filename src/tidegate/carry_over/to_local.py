"""From a checkpoint on Spark to a snapshot in process.

The state is that after the newest batch whose results are out. Shards of all cells are gathered as they are when a run is
started again with one cell, and read by its cell; gates hold nothing, as cells take in all that came.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tidegate.carry_over import finished_error, operator_of, refuse_sources, require_run_on, same_steps
from tidegate.compile.compiler import compile_query
from tidegate.compile.lower_to_aggregates import Operators
from tidegate.compile.plan import OUTPUT, Feed, Plan, Subquery
from tidegate.errors import CheckpointError, UnsupportedError
from tidegate.operators.carried_state import cut_of_cell
from tidegate.operators.fingerprint import check_fingerprint
from tidegate.operators.joins.near import pair_grid_of
from tidegate.query.names import unique_names
from tidegate.query.nodes import Node, Source, sources
from tidegate.runtime.local.checkpoint import FIRST, LocalCheckpoint, gate_step, state_step
from tidegate.runtime.local.graph import spec_of
from tidegate.runtime.spark.checkpoint import PATIENCE_SECONDS, Checkpoint, CheckpointInfo
from tidegate.runtime.spark.continued import Continued, last_batch, query_id, read_links, unread
from tidegate.runtime.spark.epochs import CellPlan, switch
from tidegate.runtime.spark.sources import SUFFIXES, FileVersions, link_name
from tidegate.runtime.spark.stages import fingerprints
from tidegate.sources.files import Files
from tidegate.sources.growing import GrowingFiles, known_from
from tidegate.sources.in_memory import TableOrigin
from tidegate.sources.positions import NOTHING, ReadPosition, absolute_paths
from tidegate.state.chunks import ChunkMemory, ChunkStore, Directory
from tidegate.state.run_lock import lock_for_reading
from tidegate.state.step_folder import StepFolder
from tidegate.state.storage import Storage, open_storage
from tidegate.watermark import START, has_ended, is_finite


def bring_to_local(
    of: Path, query: Node, operators: Operators, plan: Plan, checkpoint: LocalCheckpoint
) -> tuple[ReadPosition, ...]:
    """Bring over what a stopped run on Spark has, as the first snapshot of a plan in process; how far sources were read."""
    require_run_on(of, "spark")
    with lock_for_reading(of, PATIENCE_SECONDS):
        refuse_sources(plan)
        before = Checkpoint(of)
        info = before.read()
        assert info is not None
        if info.finished:
            raise finished_error(of)
        spark = _same_query(query, operators, info, of)
        steps = same_steps(plan, spark)
        batch = last_batch(before, info)
        storage, identity = open_storage(str(before.state)), query_id(before)
        stores = {mine.number: gathered(storage, identity, other, batch) for mine, other in steps}
        if any(has_ended(store.directory.watermark) for store in stores.values()):
            raise finished_error(of)
        positions = _positions(query, plan, before, info, batch, [store.directory for store in stores.values()])
        write_snapshot(plan, stores, positions, checkpoint)
        return tuple(positions[source.name] for source in plan.sources)


def write_snapshot(
    plan: Plan, stores: Mapping[int, ChunkStore], positions: Mapping[str, ReadPosition], checkpoint: LocalCheckpoint
) -> None:
    """Write what the first snapshot has of gates and steps; ``stores`` are those of steps by number."""
    for subquery in plan.subqueries:
        store = stores.get(subquery.number)
        watermark = START if store is None else store.directory.watermark
        _write_gate(plan, subquery.number, subquery.feeds, watermark, positions, checkpoint)
        if store is not None:
            held = checkpoint.write_to(state_step(subquery.number), FIRST)
            cut_of_cell(operator_of(subquery), store).write(held)
            held.chunks.commit(0)
    _write_gate(plan, OUTPUT, plan.outputs, START, positions, checkpoint)


def _same_query(query: Node, operators: Operators, info: CheckpointInfo, of: Path) -> Plan:
    """The plan of the run on Spark; refused if it was another query's."""
    read = len(sources(query))
    if info.sources != read:
        raise CheckpointError(
            f"{of} was written by a query that reads {info.sources} streams, and this one reads {read}, so how far each was "
            "read is not known. Restore the query"
        )

    def compiled(late: bool, hot: bool) -> Plan:
        return compile_query(query, "spark", late, cells=info.cells, operators=operators, hot_keys=hot)

    # Where late tuples or hot keys made a step keep something else, it is refused by its name and not as another query.
    for late, hot in ((False, False), (True, False), (False, True), (True, True)):
        with suppress(UnsupportedError):
            plan = compiled(late, hot)
            if _fingerprint(plan) == info.fingerprint:
                return plan
    plan = compiled(late=False, hot=False)
    check_fingerprint(info.fingerprint, _fingerprint(plan), str(of))
    return plan


def _fingerprint(plan: Plan) -> str:
    return " | ".join(fingerprints(plan)) or "no stateful step"


def gathered(storage: Storage, query: str, step: Subquery, batch: int) -> ChunkStore:
    """What all cells of a step hold after a batch, as one cell that has all shards; for reading."""
    folder = StepFolder(storage, f"{query}/step-{step.number}", step.name, "", retain=0)
    directory = folder.before(0, batch + 1)
    assert directory is not None
    assert step.operator is not None
    one = CellPlan(1, 1, pair_grid_of(step.operator))
    as_it_was = replace(directory)
    switch(directory, one.after(directory), one, 0, lambda donor: folder.beside(as_it_was, donor, batch))
    return ChunkStore(directory, folder, batch + 1, ChunkMemory())


def _write_gate(
    plan: Plan,
    target: int,
    feeds: tuple[Feed, ...],
    watermark: int,
    positions: Mapping[str, ReadPosition],
    checkpoint: LocalCheckpoint,
) -> None:
    """A gate that has come to a watermark, and whose sources have come as far as they were read."""
    held = checkpoint.write_to(gate_step(target), FIRST)
    reached = {}
    for feed in feeds:
        if isinstance(feed.origin, Source) and is_finite(newest := positions[feed.origin.name].newest):
            reached[spec_of(plan, feed, feed.origin).name] = max(watermark, newest - feed.origin.disorder_us)
    held.chunks.directory.watermark, held.chunks.directory.newest = watermark, reached
    held.chunks.commit(0)


def _positions(
    query: Node, plan: Plan, before: Checkpoint, info: CheckpointInfo, batch: int, directories: list[Directory]
) -> dict[str, ReadPosition]:
    """How far each source was read, by name."""
    read = read_links(before, batch)
    continued = Continued.read(before).positions if info.continues is not None else {}
    numbers = {source.name: number for number, source in enumerate(sources(unique_names(query)))}
    found = {}
    for source in plan.sources:
        name, number = source.name, numbers[source.name]
        known = continued.get(name, ReadPosition(START, START))
        newest = max([known.newest, *(each.newest.get(name, START) for each in directories)])
        links = {link for folder, link in read if folder == number}
        position = _position(source, known, links, before.inputs(number))
        found[name] = replace(position, newest=newest)
    return found


def _position(source: Source, known: ReadPosition, links: set[str], folder: Path) -> ReadPosition:
    """How far a source was read, given where the run began with it and the names of the links that were read."""
    match source.origin:
        case Files() as files:
            return _left(absolute_paths(files), known, links)
        case GrowingFiles() as growing:
            left, versions = _left(absolute_paths(growing.files), known, links), FileVersions.of(folder)
            noted = {path: versions.version(path) for path in (*left.files, *left.done) if Path(path).is_file()}
            # As Spark would have read them, and first the one that was begun.
            waiting = sorted(left.files, key=lambda path: (path != left.file, noted[path][1], path))
            return replace(left, files=tuple(waiting), done=(), known=known_from(noted))
        case TableOrigin(table=table):
            return replace(known, last=table.num_rows - 1) if links else known
        case _:
            return known


def _left(files: Files, known: ReadPosition, links: set[str]) -> ReadPosition:
    """The files that are left, and those that were read."""
    suffix = SUFFIXES[files.format]
    listed = unread(files, known).paths
    read = {path for path in listed if link_name(path, suffix) in links}
    left = tuple(path for path in listed if path not in read)
    done = (*known.done, *(path for path in listed if path in read))
    if known.file in left:
        return replace(known, files=left, done=done)
    return replace(known, files=left, done=done, file=None, last=NOTHING, size=0)
