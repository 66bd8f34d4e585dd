"""Recorded runs through other controllers: they decide as they did in the shadow of the run itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.control.controller import Limits
from tidegate.control.controllers import CONTROLLERS
from tidegate.control.rules import Rule
from tidegate.errors import UserError
from tidegate.simulate.loads import SineLoad
from tidegate.simulate.model import SimulatedQuery, SubqueryModel, ZipfKeys
from tidegate.simulate.run import SimulationSettings, simulate
from tidegate.telemetry.ledger import Ledger
from tidegate.telemetry.read import decisions
from tidegate.telemetry.replay import recorded_observations, replay_run

LIMITS = Limits(1, 12)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes under a load that swings, with keys that are not uniform, and every controller in the shadow."""
    path = tmp_path_factory.mktemp("replay") / "run.ledger"
    shadows = tuple(kind() for kind in CONTROLLERS.values())
    model = SubqueryModel("q", 0.01, keys=ZipfKeys(exponent=0.8, seed=1), shards=64)
    with Ledger.open(path) as ledger:
        simulate(
            SimulatedQuery(model, SineLoad(400.0, 300.0, 200.0)),
            Rule(limits=LIMITS, shadows=shadows),
            SimulationSettings(600.0, 1, period_seconds=5.0, seed=3),
            record=ledger,
        )
    return path


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_replayed_controller_decides_as_it_did_in_the_shadow(recorded: Path, name: str) -> None:
    asked = decisions(recorded, controller=name).to_pylist()
    was = [(row["action"], row["instances"]) for row in asked if row["role"] == "shadow"]
    replayed = [decision for _, decision in replay_run(recorded, CONTROLLERS[name](), limits=LIMITS)]
    assert [(decision.action.value, decision.instances) for decision in replayed] == was
    if name != "fixed":
        assert any(decision.changes for decision in replayed), "the load gives it reasons"


def test_observations_are_those_of_the_run(recorded: Path) -> None:
    seen = recorded_observations(recorded)
    table = decisions(recorded, shadows=False)
    assert [each.instances for each in seen] == table["instances_before"].to_pylist()
    assert [each.utilisation for each in seen] == pytest.approx(table["utilisation"].to_pylist())
    assert all(each.shard_loads is not None and len(each.shard_loads) == 64 for each in seen)


def test_a_run_that_is_not_there_is_refused(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run 9 to replay"):
        recorded_observations(recorded, run=9)
    Ledger.open(tmp_path / "empty.ledger").close()
    assert list(replay_run(tmp_path / "empty.ledger", CONTROLLERS["ds2"]())) == []
