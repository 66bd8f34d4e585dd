"""The declared table of what controllers need is what they do."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.kit.needs import NEEDS
from tidegate.control.controller import Action, ChangeOutcome, Controller, Limits
from tidegate.control.controllers import CONTROLLERS, RECOMMENDED
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation, Station, WindowInput
from tidegate.control.rules import Rule

OBSERVED = tuple(field.name for field in fields(Observation))[4:]  # the fields that may be absent
SETTINGS = {"queueing": {"target_seconds": 0.5}}
DERIVED = {
    "due": ("demand", "offered"),
    "waiting": ("backlog",),
    "utilisation": ("busy",),
    "busy_instances": ("busy",),
    "service_rate": ("processed", "busy"),
}
FULL = Observation(
    "q",
    5.0,
    5.0,
    2,
    mapping=(0, 1, 0, 1),
    offered=2_000.0,
    admitted=1_500.0,
    processed=1_500.0,
    demand=2_000.0,
    backlog=500.0,
    congestion=0.4,
    busy=(1.0, 0.9),
    shard_loads=(600.0, 400.0, 300.0, 200.0),
    shard_state_bytes=(100, 100, 100, 100),
    watermark_lag_seconds=1.0,
    latency_seconds=0.3,
    window_inputs=(WindowInput(100.0, 500.0, 10.0), WindowInput(100.0, 500.0, 10.0)),
    comparisons=100_000.0,
    network=(Station("q", 2, 2_000.0, 900.0),),
    network_arrival_rate=2_000.0,
)


class Watched:
    """An observation that notes which of its optional fields are looked at."""

    def __init__(self, observation: Observation) -> None:
        self._observation, self.looked_at = observation, set[str]()

    def __getattr__(self, name: str) -> object:
        self.looked_at.update(DERIVED.get(name, (name,) if name in OBSERVED else ()))
        return getattr(self._observation, name)


def made(name: str) -> Controller:
    controller: Controller = CONTROLLERS[name](**SETTINGS.get(name, {}))
    return controller


def test_every_controller_is_in_the_table() -> None:
    assert set(NEEDS) == set(CONTROLLERS)
    assert RECOMMENDED in CONTROLLERS


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_has_the_name_it_is_registered_under(name: str) -> None:
    assert made(name).name == name


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_looks_at_nothing_that_the_table_does_not_name(name: str) -> None:
    needs = NEEDS[name]
    allowed = {*needs.required, *needs.optional, *(field for group in needs.either for field in group)}
    for options in ({}, {"window_inputs": None}, {"shard_loads": None}):
        run = made(name).start(Limits(1, 8))
        for time, instances in ((5.0, 2), (10.0, 3)):
            busy = (0.9,) * instances
            watched = Watched(replace(FULL, time_seconds=time, instances=instances, busy=busy, **options))
            run.decide(watched)  # type: ignore[arg-type]
            assert watched.looked_at <= allowed


@pytest.mark.parametrize(("name", "field"), [(name, field) for name in NEEDS for field in NEEDS[name].required])
@pytest.mark.parametrize("looped", [True, False], ids=["in a loop", "alone"])
def test_a_controller_holds_without_what_it_needs_and_names_it(name: str, field: str, looped: bool) -> None:
    class Never:
        def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
            raise AssertionError("acted on missing data")

    observation = replace(FULL, **{field: None})
    if looped:
        decision = ControlLoop(Rule(made(name), Limits(1, 8)), Never()).step(observation)
    else:
        decision = made(name).start(Limits(1, 8)).decide(observation)
    assert decision.action is Action.HOLD
    assert field in decision.missing


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_rate_next_to_nothing_stays_within_the_limits(name: str) -> None:
    tiny = 1e-6
    seen = replace(FULL, processed=tiny, comparisons=tiny, window_inputs=None, network=(Station("q", 2, 2e3, 1e-9),))
    for observation in (seen, replace(seen, shard_loads=None), replace(FULL, processed=tiny, comparisons=tiny)):
        assert 1 <= made(name).start(Limits(1, 8)).decide(observation).instances <= 8


def test_the_table_names_what_is_observed_and_each_field_once() -> None:
    for needs in NEEDS.values():
        named = (*needs.required, *needs.optional, *(field for group in needs.either for field in group))
        assert set(named) <= set(OBSERVED)
        assert len(set(named)) == len(named)
    assert set(OBSERVED) <= {field.name for field in fields(Observation)}
