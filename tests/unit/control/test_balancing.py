"""A balancer beside a controller: when it is asked, what it sees, and that it gives up what does not help."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tidegate.control.balancers.greedy import Greedy
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.balancing import RESTS, Balancing, balances_itself, without_balancing
from tidegate.control.controller import Action, ChangeOutcome, Decision, Limits, hold, resize
from tidegate.control.controllers.fixed import Fixed
from tidegate.control.controllers.saso import Saso
from tidegate.control.controllers.steady import Steady
from tidegate.control.controllers.thresholds import Thresholds
from tidegate.control.events import Event, Stepped
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import HotKey, Observation
from tidegate.control.rules import Rule, Rules
from tidegate.control.rules_file import parse_rules, rules_text
from tidegate.elastic.options import Elastic
from tidegate.errors import UserError


def seen(loads: tuple[float, ...], mapping: tuple[int, ...], time: float = 1.0, instances: int = 2) -> Observation:
    """A period of a second in which an instance completes 1,000 tuples/s: busy shares are loads over that, at most 1."""
    carried = np.bincount(mapping, weights=loads, minlength=instances) / 1_000
    busy = tuple(min(1.0, each) for each in carried.tolist())
    return Observation("q", time, 1.0, instances, mapping=mapping, busy=busy, shard_loads=loads)


def asked(balancing: Balancing, observation: Observation) -> Decision:
    balancing.see(observation)
    return balancing.balanced(hold(observation, "held"), observation)


def looked_twice(observation: Observation, balancer: Greedy | MinimalMovement) -> tuple[Balancing, Decision]:
    """The first look at a mapping is not trusted: shards may have moved in that period."""
    balancing = Balancing(balancer)
    assert not asked(balancing, observation).changes
    return balancing, asked(balancing, replace(observation, time_seconds=observation.time_seconds + 1))


def test_shards_move_from_the_busy_to_the_idle_instance() -> None:
    """0.9 against 0.2: δ = 0.9/0.55. The shard of 400 is nearest to half the gap; after it 0.5 against 0.6."""
    _, decision = looked_twice(seen((400.0, 500.0, 200.0, 0.0), (0, 0, 1, 1)), MinimalMovement(1.2))
    assert (decision.action, decision.instances, decision.mapping) == (Action.BALANCE, 2, (1, 0, 1, 1))
    assert decision.expected.deviation == pytest.approx(0.05)
    assert "moving 1 shards (minimal-movement)" in decision.why
    assert decision.why.endswith("held")


def test_the_upper_imbalance_threshold_is_in_busy_shares() -> None:
    observation = seen((400.0, 500.0, 200.0, 0.0), (0, 0, 1, 1))
    assert looked_twice(observation, Greedy(upper_imbalance=0.36))[1].action is Action.HOLD, "0.35 is within 0.36"
    assert looked_twice(observation, Greedy(upper_imbalance=0.34))[1].action is Action.BALANCE


def test_nothing_moves_where_nobody_is_busy_or_any_instance_does_any_shard() -> None:
    idle = seen((400.0, 50.0, 20.0, 0.0), (0, 0, 1, 1))
    assert looked_twice(idle, MinimalMovement())[1].action is Action.HOLD
    pooled = replace(seen((400.0, 500.0, 200.0, 0.0), (0, 0, 1, 1)), pooled=True)
    assert looked_twice(pooled, MinimalMovement())[1].action is Action.HOLD


def test_one_key_is_named_in_the_reason() -> None:
    observation = replace(seen((900.0, 50.0, 50.0), (0, 1, 1)), hot_key=HotKey(0, "'ann'", 0.88))
    _, decision = looked_twice(observation, MinimalMovement())
    assert decision.action is Action.HOLD
    named = "shard 0 alone carries 90% of the load (key 'ann', 88% of all tuples): more than 1 instances will not help"
    assert named in decision.why
    assert any(named in each.why_not for each in decision.rejected)


def test_a_new_number_of_instances_gets_a_mapping_by_load() -> None:
    observation = seen((400.0, 300.0, 200.0, 100.0), (0, 0, 0, 0), instances=1)
    balancing = Balancing(MinimalMovement())
    balancing.see(observation)
    balancing.see(observation)
    decision = balancing.balanced(resize(observation, 2, "more"), observation)
    assert decision.action is Action.PROVISION
    assert decision.mapping is not None
    carried = np.bincount(decision.mapping, weights=(400, 300, 200, 100))
    assert carried.max() <= 1.2 * 500


def test_a_mapping_that_the_controller_gives_is_left_alone() -> None:
    observation = seen((400.0, 500.0, 200.0, 0.0), (0, 0, 1, 1))
    balancing, _ = looked_twice(observation, MinimalMovement())
    own = resize(observation, 3, "more", mapping=(2, 1, 0, 0))
    assert balancing.balanced(own, observation) is own


def test_a_move_that_does_not_help_is_not_tried_again_soon() -> None:
    """Whatever is moved, the first instance stays the busy one: its work has nothing to do with shards."""
    balancing, mapping, moves = Balancing(MinimalMovement()), (0,) * 32 + (1,) * 32, []
    for time in range(64):
        observation = Observation("q", time, 1.0, 2, mapping=mapping, busy=(0.9, 0.2), shard_loads=(100.0,) * 64)
        decision = asked(balancing, observation)
        if decision.changes and decision.mapping is not None:
            moves.append(time)
            balancing.moved(observation)
            mapping = decision.mapping
    assert 2 <= len(moves) <= 6, "after 2, 4, 8, 16, 32 periods"
    gaps = np.diff(moves)
    assert (gaps[1:] > gaps[:-1]).all()


def test_a_move_that_helps_may_be_followed_by_the_next() -> None:
    balancing, first = looked_twice(seen((400.0, 500.0, 200.0, 0.0), (0, 0, 1, 1)), MinimalMovement())
    assert first.mapping is not None
    balancing.moved(seen((400.0, 500.0, 200.0, 0.0), (0, 0, 1, 1), 2.0))
    for time in range(3, 3 + RESTS):
        assert not asked(balancing, seen((400.0, 500.0, 200.0, 0.0), first.mapping, time)).changes
    shuffled = (0.0, 100.0, 500.0, 500.0)  # other keys are popular now
    decisions = [asked(balancing, seen(shuffled, first.mapping, time)) for time in range(6, 9)]
    assert any(each.action is Action.BALANCE for each in decisions)


@dataclass
class Mapped:
    """An actuator that keeps the last mapping."""

    mapping: tuple[int, ...]
    calls: list[tuple[int, ...] | None] = field(default_factory=list)

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        self.calls.append(mapping)
        self.mapping = mapping or self.mapping
        return ChangeOutcome(True, "", 0.0, 0)


@pytest.mark.parametrize("balancer", [Greedy(), MinimalMovement()])
def test_a_loop_evens_out_loads_and_records_what_it_expected_and_what_came_of_it(
    balancer: Greedy | MinimalMovement,
) -> None:
    random = np.random.default_rng(3)
    loads = tuple(random.zipf(1.8, 64).clip(1, 60).astype(float).tolist())
    loads = tuple(each * 3_000 / sum(loads) for each in loads)
    actuator, events = Mapped(tuple(shard % 4 for shard in range(64))), list[Event]()
    loop = ControlLoop(Rule(Fixed(), Limits(1, 4), balancer=balancer), actuator, events.append)
    before = seen(loads, actuator.mapping, instances=4)
    for time in range(1, 12):
        loop.step(seen(loads, actuator.mapping, time, instances=4))
    after = seen(loads, actuator.mapping, instances=4)
    assert actuator.calls
    assert np.std(after.busy or ()) < np.std(before.busy or ())
    effects = [effect for event in events if isinstance(event, Stepped) for effect in event.effects]
    assert effects
    assert all(effect.seen is not None and effect.seen.deviation is not None for effect in effects)


def test_a_loop_that_cools_down_moves_nothing() -> None:
    actuator = Mapped((0, 0, 1, 1))
    loop = ControlLoop(Rule(Fixed(), Limits(1, 4), cooldown_seconds=100.0, balancer=MinimalMovement()), actuator)
    for time in range(1, 8):
        loads = (400.0, 500.0, 200.0, 0.0) if time < 5 else (0.0, 0.0, 500.0, 500.0)
        loop.step(seen(loads, actuator.mapping, time))
    assert len(actuator.calls) == 1


def test_a_controller_that_balances_by_itself_leaves_it_to_a_balancer_that_is_given() -> None:
    assert without_balancing(Steady()) == Steady(balances=False)
    assert without_balancing(Thresholds()) == Thresholds(balancer=None)
    assert without_balancing(Saso()) == Saso()
    assert [balances_itself(each) for each in (Steady(), Thresholds(), Saso(), Fixed())] == [True, True, False, False]


def test_what_may_be_asked_for_as_balance() -> None:
    here = MinimalMovement()

    def rule(elastic: Elastic | None) -> Rule:
        assert elastic is not None
        return elastic.resolved(4, Steady(), here).default

    assert Elastic.of(None, None) is None
    assert Elastic.of(None, False) is None
    alone = rule(Elastic.of(None, True))
    assert (alone.controller, alone.balancer) == (Fixed(), here)
    assert rule(Elastic.of(True)).balancer is None, "steady balances by itself"
    assert rule(Elastic.of("saso")).balancer == here
    assert rule(Elastic.of("saso", False)).balancer is None
    assert rule(Elastic.of(True, False)).controller == Steady(balances=False)
    assert rule(Elastic.of(True, "greedy")).balancer == Greedy()
    assert rule(Elastic.of(Elastic(ledger="a"), Greedy(0.2))).balancer == Greedy(0.2)
    assert Elastic("saso").resolved(4, Steady()).default.balancer is None, "where the runtime cannot move shards"
    with pytest.raises(UserError, match="there is no balancer 'gready'; choose one of 'greedy'"):
        Elastic(balance="gready")


def test_a_rules_file_names_balancers() -> None:
    rules = parse_rules('[default]\ncontroller = "saso"\nbalancer = "greedy"\n[subquery.a]\nbalancer = "none"\n')
    assert (rules.default.balancer, rules.of("a").balancer) == (Greedy(), None)
    tuned = Rules(Rule(Fixed(), balancer=MinimalMovement(1.1)))
    assert parse_rules(rules_text(tuned)) == tuned
