"""A tidegate query on a Spark worker with a core to spare, told in JSON: its cell gets another instance first.

A process of its own, as there is one Spark in each. The controller of the story asks for all there may be, and then for
as little, so that nothing depends on how fast the machine is.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidegate as tg
from benchmarks.elastic_spark import Answers, Load, session, tidegate_query, wait_for
from tests.kit.stories import told
from tidegate.autoscale import autoscale
from tidegate.control.controller import Decision, Limits, resize
from tidegate.control.observation import Observation

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Asked:
    """A controller that goes to the most instances there may be, or to the least, as it is told from outside."""

    wish: list[str]
    name: str = "asked"

    def start(self, limits: Limits) -> AskedRun:
        return AskedRun(self, limits)


@dataclass(frozen=True)
class AskedRun:
    asked: Asked
    limits: Limits

    def decide(self, observation: Observation) -> Decision:
        wanted = getattr(self.limits, self.asked.wish[0])
        return resize(observation, wanted, f"the {self.asked.wish[0]} is asked for")


def story(root: Path) -> dict[str, Any]:
    folder, control, ledger = root / "in", root / "control", root / "run.ledger"
    folder.mkdir()
    control.mkdir()
    spark = session("tidegate", master="local-cluster[1,2,1024]", cores=2, partitions=1)
    answers, load = Answers(), Load(folder, lambda _: 60.0)
    query = tidegate_query(spark, folder, root / "checkpoint", control, answers)
    load.write(999_999, 40)
    query.processAllAvailable()
    load.start()
    wish = ["most"]
    went: list[bool] = []
    with autoscale(query, Asked(wish), most=1, ledger=ledger, period_seconds=1.0, control=control) as scaling:
        for wanted, cores in (("most", 2), ("least", 1)):
            wish[0] = wanted
            went.append(
                wait_for(
                    lambda cores=cores: any(each.observation.instances == cores for each in scaling.latest.values()),  # type: ignore[misc]
                    PATIENCE_SECONDS,
                )
            )
        load.end()
        query.processAllAvailable()
        tg.end_input(control)
        query.processAllAvailable()
        query.processAllAvailable()
    right = dict(load.counts) == answers.counts
    query.stop()
    spark.stop()
    return {"went": went, "right": right, **told(ledger, scaling, "note")}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tidegate-story-", ignore_cleanup_errors=True) as made:
        json.dump(story(Path(made)), sys.stdout)
