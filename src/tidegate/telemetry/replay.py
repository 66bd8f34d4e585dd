"""A recorded run through another controller: what it would have decided at each step, given what was observed there.

The observations are those of the run as it was. A controller that would have had more instances is told at the next step how
things went without them; so a replay answers what it would have done here, not how the run would have gone on.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.control.controller import Controller, Decision, Limits
from tidegate.control.observation import HotKey, Observation, Station, WindowInput
from tidegate.errors import UserError
from tidegate.telemetry.ledger import AS_OBSERVED
from tidegate.telemetry.schema import open_to_read


def recorded_observations(path: str | Path, *, run: int | None = None) -> tuple[Observation, ...]:
    """The observations of a run, the last unless one is given, in the order in which they were made.

    The bytes of shards are not in a ledger, and their loads only every few seconds: they are taken to stay as they are
    until the next ones, or until there are other instances.
    """
    with closing(open_to_read(path)) as connection:
        number = _run(connection, path, run)
        rows = connection.execute(
            "SELECT * FROM observations LEFT JOIN shards USING (run, subquery, step) WHERE run = ? ORDER BY observation",
            (number,),
        ).fetchall()
    shards: dict[str, Observation] = {}
    seen = []
    for row in rows:
        columns = {name: row[name] for name in AS_OBSERVED}
        details = json.loads(row["details"]) | {"instances": row["instances"]}
        if row["mapping"] is not None:
            details |= {"mapping": json.loads(row["mapping"]), "shard_loads": json.loads(row["loads"] or "null")}
        observation = _observation(columns | details)
        last = shards.get(observation.subquery)
        if observation.mapping is not None:
            shards[observation.subquery] = observation
        elif last is not None and last.instances == observation.instances:
            observation = replace(observation, mapping=last.mapping, shard_loads=last.shard_loads)
        seen.append(observation)
    return tuple(seen)


def replay_run(
    path: str | Path, controller: Controller, *, run: int | None = None, limits: Limits | None = None
) -> Iterator[tuple[Observation, Decision]]:
    """Each observation of a run, and what a controller decides on it; each subquery has a controller of its own.

    Without ``limits`` a subquery may have from one instance to the most that it had or was to have in the run.
    """
    with closing(open_to_read(path)) as connection:
        wanted = connection.execute(
            "SELECT subquery, max(instances_before, wanted_instances) FROM explained WHERE run = ?",
            (_run(connection, path, run),),
        ).fetchall()
    most = {subquery: 1 for subquery, _ in wanted}
    for subquery, instances in wanted:
        most[subquery] = max(most[subquery], instances)
    started = {subquery: controller.start(limits or Limits(1, count)) for subquery, count in most.items()}
    observations = recorded_observations(path, run=run)
    for seen in observations:
        yield seen, started[seen.subquery].decide(seen)


def _run(connection: sqlite3.Connection, path: str | Path, run: int | None) -> int:
    """The number of a run that is there, the last unless one is given."""
    found = connection.execute("SELECT max(run) FROM runs WHERE run = ? OR ? IS NULL", (run, run)).fetchone()[0]
    if found is None:
        raise UserError(f"ledger {path}: there is no run{'' if run is None else f' {run}'} to replay")
    return int(found)


def _observation(given: dict[str, Any]) -> Observation:
    """The observation of these fields, as the ledger holds them."""
    for name, kind in (("network", Station), ("window_inputs", WindowInput)):
        if name in given:
            given[name] = tuple(kind(*each) for each in given[name])
    if "hot_key" in given:
        given["hot_key"] = HotKey(*given["hot_key"])
    for name in ("busy", "mapping", "shard_loads"):
        if given.get(name) is not None:
            given[name] = tuple(given[name])
    return Observation(**given)
