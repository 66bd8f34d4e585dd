"""A run that was stopped goes on on the other runtime: its state, and how far sources were read, become those of a new run.

`to_spark` brings over what a snapshot in process has, `to_local` what cells on Spark had after their last batch. Its
checkpoint is only read, under its lock; what cannot be brought over is refused before anything is written.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.compile.plan import Plan, Subquery
from tidegate.errors import CheckpointError, QueryError, UnsupportedError
from tidegate.operators.fingerprint import fingerprint
from tidegate.query.nodes import Stateful, detached
from tidegate.results import local_folder
from tidegate.sources.files import Files
from tidegate.sources.growing import GrowingFiles
from tidegate.sources.in_memory import TableOrigin
from tidegate.sources.kafka import TopicOrigin

OTHER = {"spark": "local", "local": "spark"}


def stopped_run(continue_from: str | Path, checkpoint: Path | None, on: str) -> Path:
    """The folder of the run that is gone on from; refused if the new run has no checkpoint of its own."""
    if not isinstance(continue_from, str | Path):
        raise QueryError(f"continue_from is the checkpoint of a run that was stopped, a folder; got {continue_from!r}")
    folder = local_folder(continue_from, "continue_from")
    if on not in OTHER:
        raise QueryError(
            f"continue_from={str(continue_from)!r} is for on='spark' and on='local'; on={on!r} begins anew, so leave it out"
        )
    if checkpoint is None and on == "local":
        raise QueryError(
            f"continue_from={str(continue_from)!r}: the run that goes on needs a checkpoint of its own: checkpoint='a new "
            "folder'"
        )
    if checkpoint is not None and checkpoint.resolve() == folder.resolve():
        raise QueryError(
            f"checkpoint and continue_from are both {folder}; a run goes on from its own checkpoint without continue_from, "
            "and on the other runtime with a new one"
        )
    return folder


def require_run_on(folder: Path, runtime: str) -> None:
    """Refuse a folder that is no checkpoint of a run on this runtime."""
    kinds = {"spark": (folder / "tidegate.json").exists(), "local": (folder / "snapshots").is_dir()}
    if kinds[runtime]:
        return
    if kinds[OTHER[runtime]]:
        raise UnsupportedError(
            f"continue_from: {folder} is of a run on={OTHER[runtime]!r}, and so is this one; name it as checkpoint=..., "
            "with the same folder for results, or go on on the other runtime"
        )
    raise CheckpointError(
        f"continue_from: {folder} is no checkpoint of a run that was stopped, or that run ended before its first snapshot "
        "and is to be started anew; name the folder that was its checkpoint=..., on Spark by default _checkpoint in its "
        "results"
    )


def refuse_sources(plan: Plan) -> None:
    """Refuse what a run on the other runtime cannot read on."""
    for source in plan.sources:
        match source.origin:
            case Files() | GrowingFiles() | TableOrigin():
                continue
            case TopicOrigin():
                why = "a topic, which is read in process: there are no connector jars beside Spark"
            case origin:
                why = f"a {type(origin).__name__}, of which only its own runtime knows how far it was read"
        raise UnsupportedError(
            f"continue_from: stream '{source.name}' reads {why}; what can be read on elsewhere are files and tables. Go on "
            "where it was, with checkpoint=..."
        )


def same_steps(local: Plan, spark: Plan) -> list[tuple[Subquery, Subquery]]:
    """The stateful steps of one query on both runtimes; refused if they do not keep the same."""
    mine, others = ([each for each in plan.subqueries if each.operator is not None] for plan in (local, spark))
    if len(mine) != len(others):
        raise UnsupportedError(
            f"continue_from: the query has {len(mine)} stateful steps in process and {len(others)} on Spark, where hot_keys "
            "spreads single keys over steps of their own; leave hot_keys out"
        )
    for one, other in zip(mine, others, strict=True):
        texts = [fingerprint(detached(operator_of(each))) for each in (one, other)]
        if texts[0] != texts[1]:
            raise UnsupportedError(
                f"continue_from: step '{one.name}' keeps «{texts[0]}» in process and «{texts[1]}» on Spark, so its state "
                "cannot be brought over; leave out what changes that: late_to, hot_keys"
            )
    return list(zip(mine, others, strict=True))


def operator_of(subquery: Subquery) -> Stateful:
    """The operator of a stateful step."""
    assert subquery.operator is not None
    return subquery.operator


def finished_error(folder: Path) -> CheckpointError:
    """Why there is nothing to go on from."""
    return CheckpointError(
        f"{folder} is finished: all of its input was read and all results are out, so there is nothing to go on from"
    )
