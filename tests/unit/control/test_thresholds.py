"""StreamCloud's thresholds: decisions for given observations, and what holds under any constant load."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.effort import examples
from tidegate.control.balancers.greedy import Greedy
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.controller import Action, Decision, Limits
from tidegate.control.controllers.thresholds import Thresholds
from tidegate.control.observation import Observation
from tidegate.errors import UserError

PAPER = Thresholds()
ONE_BY_ONE = Thresholds(provisioning="individual")
WIDE = Limits(1, 100)


def seen(instances: int, use: float | tuple[float, ...], **more: Any) -> Observation:
    """An observation of `instances` instances that are all as busy, or as busy as listed."""
    busy = use if isinstance(use, tuple) else (use,) * instances
    return Observation("calls", 60.0, 5.0, instances, busy=busy, **more)


def decide(observation: Observation, controller: Thresholds = PAPER, limits: Limits = WIDE) -> Decision:
    return controller.start(limits).decide(observation)


@pytest.mark.parametrize(
    ("instances", "use", "wanted"),
    [
        (4, 0.7, 4),
        (4, 0.5, 4),  # The thresholds themselves are within.
        (4, 0.9, 4),
        (1, 0.95, 2),
        (3, 0.92, 5),  # 2.76 / 0.6 = 4.6
        (10, 0.95, 16),  # 9.5 / 0.6 = 15.8
        (10, 0.96, 16),  # 9.6 / 0.6 is 16, and rounding must not make it 17.
        (27, 0.4, 18),  # 10.8 / 0.6
        (2, 0.45, 2),  # One instance would be busy 0.9, above the target.
        (8, 0.0, 1),
    ],
)
def test_load_aware_goes_to_the_target_at_once(instances: int, use: float, wanted: int) -> None:
    decision = decide(seen(instances, use))
    assert decision.instances == wanted
    expected = Action.PROVISION if wanted > instances else Action.DECOMMISSION if wanted < instances else Action.HOLD
    assert decision.action is expected
    if decision.changes:
        assert decision.expected.utilisation == pytest.approx(use * instances / wanted)


@pytest.mark.parametrize(
    ("instances", "use", "wanted"), [(10, 0.95, 11), (10, 0.7, 10), (10, 0.4, 9), (2, 0.46, 2), (2, 0.44, 1), (1, 0, 1)]
)
def test_individual_goes_by_one_and_not_back(instances: int, use: float, wanted: int) -> None:
    decision = decide(seen(instances, use), ONE_BY_ONE)
    assert decision.instances == wanted
    if (instances, use) == (2, 0.46):  # One instance would be busy 0.92: above the upper threshold.
        assert [(each.instances, each.why_not) for each in decision.rejected] == [(1, "would be busy 0.92, above 0.90")]


def test_limits_hold_whatever_is_asked() -> None:
    decision = decide(seen(10, 0.95), limits=Limits(2, 12))
    assert (decision.action, decision.instances) == (Action.PROVISION, 12)
    assert [each.instances for each in decision.rejected] == [16]
    assert decide(seen(12, 1.0), limits=Limits(2, 12)).action is Action.HOLD
    assert decide(seen(4, 0.1), limits=Limits(3, 12)).instances == 3
    assert decide(seen(20, 0.9), limits=Limits(2, 12)).instances == 12  # Even if that is too few.
    assert decide(seen(1, 0.7), limits=Limits(3, 12)).instances == 3


def test_overload_is_measured_by_what_is_due() -> None:
    """Two busy instances complete 100 of the 500 that are due: 10 instances' worth, 16.7 for the target."""
    assert decide(seen(2, 1.0)).instances == 4
    assert decide(seen(2, 1.0, demand=500.0, processed=100.0)).instances == 17
    assert decide(seen(2, 1.0, offered=500.0, processed=100.0)).instances == 17
    assert decide(seen(2, 1.0, demand=100.0, offered=500.0, processed=100.0)).instances == 4
    assert decide(seen(2, 1.0, demand=500.0)).instances == 4
    assert decide(seen(2, 1.0, demand=math.nan, processed=100.0)).instances == 4
    assert "500 tuples/s due" in decide(seen(2, 1.0, demand=500.0, processed=100.0)).why


def test_a_backlog_that_drains_asks_for_no_more_instances() -> None:
    """Four instances complete 400 where 280 are due, so they will be busy 0.7 once the backlog is gone."""
    draining = seen(4, 1.0, demand=280.0, processed=400.0, backlog=5_000.0)
    assert decide(draining).action is Action.HOLD
    assert decide(replace(draining, backlog=0.0)).instances == 7
    assert decide(replace(draining, backlog=None)).instances == 7
    assert decide(replace(draining, demand=10.0)).action is Action.HOLD  # Nothing is taken away before it is gone.


def test_nothing_completed_tells_nothing() -> None:
    decision = decide(seen(4, 0.0, demand=100.0, processed=0.0))
    assert (decision.action, decision.instances) == (Action.HOLD, 4)
    assert decide(seen(4, 0.0, demand=0.0, processed=0.0)).instances == 1


def test_a_shard_that_needs_more_than_an_instance_gets_no_more_than_one() -> None:
    """Ten instances' worth is due, 8 of it in shard 0: that gets one instance, the other two get four at 0.6."""
    hot = seen(
        2,
        (1.0, 0.25),
        demand=800.0,
        processed=100.0,
        mapping=(0, 1, 1, 1, 1),
        shard_loads=(80.0, 5.0, 5.0, 5.0, 5.0),
    )
    decision = decide(hot)
    assert decision.instances == 1 + 4  # 2.0 / 0.6 = 3.3
    assert [each.instances for each in decision.rejected] == [17]
    assert "shard 0 alone needs 8.00 instances" in decision.rejected[0].why_not
    assert decision.mapping is not None
    assert decision.mapping.count(decision.mapping[0]) == 1
    alone = seen(1, 1.0, demand=300.0, processed=100.0, mapping=(0, 0), shard_loads=(100.0, 0.0))
    assert decide(alone).action is Action.HOLD
    two = seen(1, 1.0, demand=300.0, processed=100.0, mapping=(0, 0), shard_loads=(50.0, 50.0))
    assert decide(two).instances == 2


def test_uneven_busy_shares_are_balanced() -> None:
    """Deviation 0.2 is above 0.1; moving the 0.2 evens it out."""
    uneven = seen(2, (0.9, 0.5), mapping=(0, 0, 1), shard_loads=(70.0, 20.0, 50.0))
    decision = decide(uneven)
    assert decision.action is Action.BALANCE
    assert decision.instances == 2
    assert decision.mapping == (0, 1, 1)
    assert decision.expected.deviation == pytest.approx(0)
    assert decide(replace(uneven, busy=(0.72, 0.68))).action is Action.HOLD
    assert decide(uneven, Thresholds(balancer=None)).action is Action.HOLD
    assert decide(uneven, Thresholds(balancer=MinimalMovement())).mapping == (0, 1, 1)


def test_one_key_is_named_where_balancing_cannot_help() -> None:
    decision = decide(seen(3, (0.95, 0.3, 0.3), mapping=(0, 1, 2), shard_loads=(95.0, 30.0, 30.0)))
    assert decision.action is Action.HOLD
    assert "shard 0 alone carries 61% of the load" in decision.why


def test_new_instances_get_shards_and_those_that_go_lose_theirs() -> None:
    grown = decide(seen(1, 0.96, mapping=(0, 0, 0, 0), shard_loads=(24.0, 24.0, 24.0, 24.0)))
    assert grown.instances == 2
    assert sorted(grown.mapping or ()) == [0, 0, 1, 1]
    shrunk = decide(seen(3, (0.2, 0.2, 0.2), mapping=(0, 1, 2), shard_loads=(20.0, 20.0, 20.0)))
    assert (shrunk.instances, shrunk.mapping) == (1, (0, 0, 0))
    uneven = seen(3, (0.1, 0.3, 0.5), mapping=(0, 1, 2), shard_loads=(10.0, 30.0, 50.0))
    patient = Thresholds(balancer=Greedy(upper_imbalance=1.0))
    assert decide(uneven, patient).mapping == (0, 1, 0)  # The last goes, onto the lighter of the others.
    assert decide(uneven).mapping == (1, 1, 0)  # That leaves 0.6 and 0.3, so the 0.1 moves as well.
    # The first goes, onto the lighter of the others, and the last takes its number.
    assert decide(seen(1, 0.96, mapping=(0, 0)), Thresholds()).mapping is None
    assert decide(seen(1, 0.96, shard_loads=(1.0, 2.0)), Thresholds()).mapping is None
    assert decide(seen(1, 0.96, mapping=(0, 1), shard_loads=(1.0, 2.0)), Thresholds()).mapping is None


def test_what_is_missing_is_named_and_nothing_is_done() -> None:
    for busy in (None, (), (0.9, math.nan), (0.99,)):
        decision = decide(replace(seen(2, 0.95), busy=busy))
        assert (decision.action, decision.instances, decision.missing) == (Action.HOLD, 2, ("busy",))


def test_settings_are_checked() -> None:
    for wrong in ({"lower": 0.7}, {"upper": 0.6}, {"upper": 1.1}, {"lower": -0.1}, {"target": math.nan}):
        with pytest.raises(UserError, match="lower < target < upper"):
            Thresholds(**wrong)
    with pytest.raises(UserError, match="'load-aware', 'individual'"):
        Thresholds(provisioning="lazy")
    assert Thresholds() == Thresholds(0.5, 0.9, 0.6, "load-aware")


def test_load_aware_reconfigures_less_often_under_a_rising_load() -> None:
    """Fig. 21: a load that grows to 13.5 instances' worth; by one it cascades, load-aware it takes a few steps."""

    def changes(controller: Thresholds) -> list[int]:
        deciding, instances, sizes = controller.start(WIDE), 1, []
        for step in range(1, 151):
            work = 13.5 * step / 150
            decision = deciding.decide(seen(instances, min(1.0, work / instances)))
            if decision.changes:
                instances = decision.instances
                sizes.append(instances)
        return sizes

    assert changes(ONE_BY_ONE) == list(range(2, 16))
    assert len(changes(PAPER)) <= 7
    assert changes(PAPER) == sorted(changes(PAPER))


@dataclass
class Subquery:
    """A subquery under a constant load: what each shard needs, in instances' worth, and who holds it."""

    work: list[float]
    instances: int
    mapping: tuple[int, ...]
    tells_shards: bool
    tells_rates: bool

    def observe(self) -> Observation:
        asked = [sum(self.work) / self.instances] * self.instances
        if self.tells_shards:
            owned = list(zip(self.mapping, self.work, strict=True))
            asked = [sum(work for owner, work in owned if owner == each) for each in range(self.instances)]
        busy = tuple(min(1.0, each) for each in asked)
        observation = seen(self.instances, busy)
        if self.tells_shards:
            loads = tuple(100 * each for each in self.work)
            observation = replace(observation, mapping=self.mapping, shard_loads=loads)
        if self.tells_rates:
            observation = replace(observation, demand=100 * sum(self.work), processed=100 * sum(busy))
        return observation

    def carry_out(self, decision: Decision) -> None:
        self.instances = decision.instances
        if decision.mapping is not None:
            self.mapping = decision.mapping


@st.composite
def subqueries(draw: st.DrawFn) -> Subquery:
    heaviest = draw(st.sampled_from([8, 64, 200]))
    work = draw(st.lists(st.integers(0, heaviest).map(lambda part: part / 64), min_size=1, max_size=40))
    instances = draw(st.integers(1, 12))
    tells_shards = draw(st.booleans())
    owners = draw(st.lists(st.integers(0, instances - 1), min_size=len(work), max_size=len(work)))
    return Subquery(work, instances, tuple(owners), tells_shards, draw(st.booleans()))


@st.composite
def controllers(draw: st.DrawFn) -> Thresholds:
    lower, target, upper = sorted(draw(st.lists(st.integers(1, 19), min_size=3, max_size=3, unique=True)))
    provisioning = draw(st.sampled_from(["load-aware", "individual"]))
    balancer = draw(st.sampled_from([Greedy(), MinimalMovement()]))
    return Thresholds(lower / 20, upper / 20, target / 20, provisioning, balancer)


@settings(max_examples=examples(50))
@given(
    subquery=subqueries(),
    controller=controllers(),
    least=st.integers(1, 4),
    more=st.integers(0, 40),
)
def test_a_constant_load_settles_and_is_left_alone(
    subquery: Subquery, controller: Thresholds, least: int, more: int
) -> None:
    limits = Limits(least, least + more)
    deciding, again = controller.start(limits), controller.start(limits)
    sizes, resting = [subquery.instances], 0
    for _ in range(100):
        observation = subquery.observe()
        decision = deciding.decide(observation)
        assert decision == again.decide(observation)
        assert limits.least <= decision.instances <= limits.most
        if decision.mapping is not None:
            assert len(decision.mapping) == len(subquery.work)
            assert max(decision.mapping) < decision.instances
        resting = 0 if decision.changes else resting + 1
        subquery.carry_out(decision)
        sizes.append(decision.instances)
    assert resting >= 20, sizes
    steps = [after - before for before, after in itertools.pairwise(sizes) if after != before]
    turns = sum(1 for one, other in itertools.pairwise(steps) if (one > 0) != (other > 0))
    assert turns <= 1, sizes


@given(subquery=subqueries(), controller=controllers())
def test_nothing_known_but_busy_shares_is_enough(subquery: Subquery, controller: Thresholds) -> None:
    bare = seen(subquery.instances, subquery.observe().busy or ())
    decision = decide(bare, controller)
    assert decision.mapping is None
    assert decision.missing == ()
    if decision.action is Action.DECOMMISSION:
        assert decision.expected.utilisation is not None
        assert decision.expected.utilisation <= controller.upper + 1e-9
