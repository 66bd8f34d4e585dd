"""A query on a real cluster of Spark workers, told in JSON; a process of its own, as there is one Spark in each.

The load does not follow the clock but what has happened: high until there is something to go by, none until one executor
is left, high until there are two, none until there is one again. Then that one is killed, and rows come once more. So a
slow machine makes the story longer, not another.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.elastic_spark import Answers, Load, plain_query, session, wait_for
from tests.kit.stories import told
from tidegate.autoscale import autoscale
from tidegate.control.controllers.steady import Steady
from tidegate.control.events import Notice
from tidegate.elastic.scaling import Scaling
from tidegate.errors import TidegateError

HIGH = 520.0
MOST_WAITING = 1_500
PATIENCE_SECONDS = 75.0


def refusal(query: Any) -> str:
    """What is said to more executors than the query has partitions."""
    try:
        autoscale(query, most=3).stop()
    except TidegateError as error:
        return str(error)
    return ""


def has_observed(scaling: Scaling) -> bool:
    """Whether rows were seen to be processed."""
    return any(each.observation.processed for each in scaling.latest.values())


def lost(scaling: Scaling) -> list[str]:
    return [each.text for each in scaling.notices if each.notice is Notice.INSTANCES_LOST]


def kill_executors() -> None:
    """Kill the processes of our executors; one that was released may still be on its way out."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                child.kill()


def story(root: Path) -> dict[str, Any]:
    folder, ledger = root / "in", root / "run.ledger"
    folder.mkdir()
    spark = session("plain")
    ids = spark.sparkContext._jsc.sc().getExecutorIds
    rate = [HIGH]
    answers = Answers()
    # No more than some seconds of work wait, however slow the machine is.
    load = Load(folder, lambda _: rate[0] if load.rows - sum(answers.counts.values()) < MOST_WAITING else 0.0)
    query = plain_query(spark, folder, root / "checkpoint", answers)
    load.write(999_999, 40)
    query.processAllAvailable()
    refused = refusal(query)
    controller = Steady(target_seconds=5.0, patience_seconds=1.0, drain_seconds=5.0, horizon_seconds=5.0)
    load.start()
    went: list[bool] = []
    with autoscale(query, controller, most=2, ledger=ledger, period_seconds=1.0) as scaling:
        went.append(wait_for(lambda: has_observed(scaling), PATIENCE_SECONDS))
        for executors, following in ((1, 0.0), (2, HIGH), (1, 0.0)):
            rate[0] = following
            went.append(wait_for(lambda count=executors: ids().size() == count, PATIENCE_SECONDS))  # type: ignore[misc]
        kill_executors()
        went.append(wait_for(lambda: bool(lost(scaling)), PATIENCE_SECONDS))
        rate[0] = HIGH / 4
        rows = load.rows
        went.append(wait_for(lambda: load.rows > rows + 50, PATIENCE_SECONDS))
        load.end()
        query.processAllAvailable()
    right = dict(load.counts) == answers.counts
    query.stop()
    spark.stop()
    return {"refused": refused, "went": went, "right": right, "rows": load.rows, **told(ledger, scaling, "why")}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tidegate-story-", ignore_cleanup_errors=True) as made:
        json.dump(story(Path(made)), sys.stdout)
