"""Balancers: hand-traced plans, and what holds for any mapping."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.effort import examples
from tidegate.control.balancers import BALANCERS
from tidegate.control.balancers.balance import Balance, Balancer, Verdict, one_key, onto_rest, shard_use
from tidegate.control.balancers.consistent_hashing import GOLDEN, ConsistentHashing, mixed
from tidegate.control.balancers.greedy import Greedy
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.balancers.offload import Offload
from tidegate.errors import UserError

ALL: list[Balancer] = [Greedy(), Greedy(0, 0), MinimalMovement(), MinimalMovement(1.0), ConsistentHashing(8), Offload()]
MOVING: list[Balancer] = [Greedy(), Greedy(0, 0), Greedy(2.0, 0.3), MinimalMovement(), MinimalMovement(1.0)]


@st.composite
def cases(draw: st.DrawFn, shards: int = 24, instances: int = 6) -> tuple[list[int], list[int], int]:
    """A mapping, whole loads so that sums are exact, and a number of instances that may differ from the mapping's."""
    loads = draw(st.lists(st.integers(0, 40), min_size=1, max_size=shards))
    before = draw(st.integers(1, instances))
    mapping = draw(st.lists(st.integers(0, before - 1), min_size=len(loads), max_size=len(loads)))
    return mapping, loads, draw(st.integers(1, instances))


def carried(mapping: tuple[int, ...] | list[int], loads: list[int], instances: int) -> list[int]:
    return [sum(load for owner, load in zip(mapping, loads, strict=True) if owner == each) for each in range(instances)]


def spread(loads: list[int]) -> float:
    mean = sum(loads) / len(loads)
    return math.sqrt(sum((load - mean) ** 2 for load in loads) / len(loads))


def no_move_to_the_least_loaded_helps(plan: Balance, loads: list[int], instances: int, sources: list[int]) -> bool:
    piles = carried(plan.mapping, loads, instances)
    return not any(
        0 < load < piles[owner] - min(piles)
        for owner, load in zip(plan.mapping, loads, strict=True)
        if owner in sources
    )


def best_maximum(loads: list[int], instances: int) -> int:
    """The least maximum any mapping has, by trying them all."""
    mappings = itertools.product(range(instances), repeat=len(loads))
    return min(max(carried(list(mapping), loads, instances)) for mapping in mappings)


@pytest.mark.parametrize("balancer", ALL, ids=repr)
@given(case=cases())
def test_every_shard_has_an_instance_and_the_plan_tells_what_moves(
    balancer: Balancer, case: tuple[list[int], list[int], int]
) -> None:
    mapping, loads, instances = case
    plan = balancer.balance(mapping, loads, instances)
    assert len(plan.mapping) == len(mapping)
    assert all(0 <= owner < instances for owner in plan.mapping)
    differing = [shard for shard in range(len(mapping)) if mapping[shard] != plan.mapping[shard]]
    assert list(plan.moved) == differing
    assert plan.deviation_before == pytest.approx(spread(carried(mapping, loads, max(instances, max(mapping) + 1))))
    assert plan.deviation_after == pytest.approx(spread(carried(plan.mapping, loads, instances)))
    assert plan == balancer.balance(mapping, loads, instances)


@pytest.mark.parametrize("balancer", MOVING, ids=repr)
@given(case=cases())
def test_balancing_never_makes_loads_less_even(balancer: Balancer, case: tuple[list[int], list[int], int]) -> None:
    mapping, loads, instances = case
    emptied = onto_rest(np.array(mapping), np.array(loads, float), instances).tolist()
    plan = balancer.balance(emptied, loads, instances)
    assert plan.deviation_after <= plan.deviation_before + 1e-9
    assert max(carried(plan.mapping, loads, instances)) <= max(carried(emptied, loads, instances))


@pytest.mark.parametrize("balancer", MOVING, ids=repr)
@given(case=cases())
def test_a_plan_carried_out_is_not_followed_by_another(
    balancer: Balancer, case: tuple[list[int], list[int], int]
) -> None:
    mapping, loads, instances = case
    once = balancer.balance(mapping, loads, instances)
    assert balancer.balance(once.mapping, loads, instances).moved == ()


@given(case=cases(), bound=st.integers(0, 8), least=st.sampled_from([0.0, 0.1, 0.3]))
def test_greedy_ends_under_its_bound_or_where_no_move_helps(
    case: tuple[list[int], list[int], int], bound: int, least: float
) -> None:
    mapping, loads, instances = case
    plan = Greedy(bound, least).balance(mapping, loads, instances)
    stuck = no_move_to_the_least_loaded_helps(plan, loads, instances, list(range(instances)))
    match plan.verdict:
        case Verdict.EVEN | Verdict.BALANCED:
            assert plan.deviation_after <= bound + 1e-9
        case Verdict.STUCK:
            assert plan.deviation_after > bound and stuck
        case Verdict.ONE_KEY:
            assert plan.deviation_after > bound and stuck
            assert max(loads) * instances > 1.2 * sum(loads) + 1e-9
        case Verdict.NOT_WORTH:
            patient = Greedy(bound, 0).balance(plan.mapping, loads, instances)
            assert patient.deviation_after > (1 - least) * plan.deviation_after


@given(case=cases(), theta=st.sampled_from([1.0, 1.2, 1.5]))
def test_minimal_movement_reaches_theta_or_no_move_lowers_the_maximum(
    case: tuple[list[int], list[int], int], theta: float
) -> None:
    mapping, loads, instances = case
    plan = MinimalMovement(theta).balance(mapping, loads, instances)
    piles = carried(plan.mapping, loads, instances)
    even = max(piles) <= theta * sum(piles) / instances + 1e-9
    assert even == (plan.verdict in (Verdict.EVEN, Verdict.BALANCED))
    if not even:
        highest = [piles.index(max(piles))]
        assert no_move_to_the_least_loaded_helps(plan, loads, instances, highest)
        assert (plan.verdict is Verdict.ONE_KEY) == (max(loads) * instances > theta * sum(loads) + 1e-9)


@settings(max_examples=examples(20))
@given(case=cases(shards=6, instances=3))
def test_against_every_mapping_of_a_few_shards(case: tuple[list[int], list[int], int]) -> None:
    """A mapping that no single move improves has a maximum within 2 − 2/(n + 1) of the best (Finn and Horowitz)."""
    mapping, loads, instances = case
    best = best_maximum(loads, instances)
    for balancer in (Greedy(0, 0), MinimalMovement(1.0)):
        reached = max(carried(balancer.balance(mapping, loads, instances).mapping, loads, instances))
        assert best <= reached <= (2 - 2 / (instances + 1)) * best + 1e-9


def test_greedy_moves_the_heaviest_shard_that_helps() -> None:
    """Loads (.9, .1): the .5 goes over, to (.4, .6); then .5 back would not help but .1 does, to (.5, .5)."""
    plan = Greedy(upper_imbalance=0.15, minimum_improvement=0.1).balance((0, 0, 0, 1), (0.5, 0.3, 0.1, 0.1), 2)
    assert plan.mapping == (1, 0, 0, 0)
    assert plan.moved == (0, 3)
    assert plan.deviation_before == pytest.approx(0.4)
    assert plan.deviation_after == pytest.approx(0)
    assert plan.verdict is Verdict.BALANCED


def test_greedy_stops_under_its_bound_when_a_move_gains_little() -> None:
    """(.9, .02) → (.4, .52) takes .44 to .06, by 86 %; the .02 moved back would take it to .04, by 33 %."""
    mapping, loads = (0, 0, 0, 1), (0.5, 0.3, 0.1, 0.02)
    assert Greedy(upper_imbalance=0.15, minimum_improvement=0.3).balance(mapping, loads, 2).mapping == (1, 0, 0, 0)
    assert Greedy(upper_imbalance=0.15, minimum_improvement=0.5).balance(mapping, loads, 2).mapping == (1, 0, 0, 1)
    assert Greedy(upper_imbalance=0.05, minimum_improvement=0.5).balance(mapping, loads, 2).mapping == (1, 0, 0, 0)
    dropped = Greedy(upper_imbalance=0.15, minimum_improvement=0.9).balance(mapping, loads, 2)
    assert (dropped.mapping, dropped.verdict) == (mapping, Verdict.NOT_WORTH)


def test_greedy_fills_a_new_instance_even_under_its_bound() -> None:
    """A hundred instances of .9 and a new one deviate by .09 only, but a new instance is there to be used."""
    mapping = [instance for instance in range(100) for _ in range(18)]
    plan = Greedy(upper_imbalance=0.1, minimum_improvement=0.1).balance(mapping, [0.05] * 1800, 101)
    assert plan.deviation_before < 0.1
    assert plan.mapping.count(100) == 17  # Another would leave its giver at .85 and it at .9: nothing gained.
    assert len(plan.moved) == 17


def test_greedy_says_when_one_shard_is_the_reason() -> None:
    plan = Greedy(upper_imbalance=0.1).balance((0, 1, 2), (0.9, 0.1, 0.1), 3)
    assert plan.verdict is Verdict.ONE_KEY
    assert plan.moved == ()
    assert plan.limit is not None
    assert plan.limit.shard == 0


def test_minimal_movement_round_by_round() -> None:
    """(10, 2, 0): the 5 goes to the third, (5, 2, 5); then a 1 to the second, (4, 3, 5); the 5 cannot be split."""
    plan = MinimalMovement(1.2).balance((0, 0, 0, 0, 1), (5, 3, 1, 1, 2), 3)
    assert plan.mapping == (2, 0, 1, 0, 1)
    assert plan.moved == (0, 2)
    assert plan.verdict is Verdict.ONE_KEY
    assert plan.limit is not None
    assert (plan.limit.shard, plan.limit.useful_instances) == (0, 2)


def test_minimal_movement_leaves_alone_what_is_within_theta() -> None:
    plan = MinimalMovement(1.2).balance((0, 0, 1), (4, 2, 4), 2)
    assert (plan.moved, plan.verdict) == ((), Verdict.EVEN)
    assert MinimalMovement(1.1).balance((0, 0, 1), (4, 2, 4), 2).verdict is Verdict.STUCK
    assert MinimalMovement(1.1).balance((0, 0, 1), (4, 1, 2), 2).mapping == (0, 1, 1)


def test_of_equal_loads_the_first_shards_move() -> None:
    for balancer in (Greedy(0, 0), MinimalMovement(1.0)):
        assert balancer.balance((0, 0, 0, 0), (1, 1, 1, 1), 2).moved == (0, 1)


def test_offload_empties_the_least_loaded() -> None:
    """Instance 1 carries least: its shards go to 0 and 2, and 2 becomes 1 as numbers have no gaps."""
    plan = Offload().balance((0, 1, 1, 2), (5, 2, 1, 4), 2)
    assert plan.mapping == (0, 1, 0, 1)  # 2 onto the 4, making 6; then 1 onto the 5.
    assert plan.moved == (2, 3)


def test_offload_of_the_last_leaves_the_others_alone() -> None:
    after = onto_rest(np.array((0, 1, 1, 2, 2)), np.array((5.0, 2, 1, 4, 1)), 2)
    assert after.tolist() == [0, 1, 1, 1, 0]  # 4 onto the 3, making 7; then 1 onto the 5.


@given(case=cases())
def test_offload_moves_least_load_when_any_instance_may_go(case: tuple[list[int], list[int], int]) -> None:
    mapping, loads, instances = case
    before = max(instances, max(mapping) + 1)
    by_load = sorted(carried(mapping, loads, before))
    plan = Offload().balance(mapping, loads, instances)
    staying = carried(plan.mapping, loads, instances)
    assert sum(staying) == sum(by_load)
    # Every instance that stays keeps what it had, so the loads dominate those of the heaviest `instances` of before.
    heaviest = by_load[before - instances :]
    assert all(now >= then for now, then in zip(sorted(staying), heaviest, strict=True))


@pytest.mark.parametrize("instances", [1, 2, 3, 7, 16, 40])
def test_another_instance_moves_its_share_and_nothing_else(instances: int) -> None:
    """Gedik §6.2: monotone, and M/N shards move on average. Four standard deviations of ring and shards are allowed."""
    shards, ring = 4096, ConsistentHashing(virtual_nodes=128)
    fewer, more = ring.first(shards, instances), ring.first(shards, instances + 1)
    grown = ring.balance(fewer, [1.0] * shards, instances + 1)
    assert grown.mapping == more
    assert {more[shard] for shard in grown.moved} == {instances}
    shrunk = ring.balance(more, [1.0] * shards, instances)
    assert shrunk.mapping == fewer
    assert {more[shard] for shard in shrunk.moved} == {instances}
    due = shards / (instances + 1)
    allowed = 4 * (due / math.sqrt(128) + math.sqrt(due))
    assert all(abs(more.count(each) - due) <= allowed for each in range(instances + 1))
    assert len(grown.moved) == len(shrunk.moved) == more.count(instances)


def test_the_ring_is_the_same_everywhere() -> None:
    """The first outputs of SplitMix64 from seed 0, as published with it."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mixed(np.arange(1, 4, dtype=np.uint64) * GOLDEN).tolist() == expected


@pytest.mark.parametrize(
    ("loads", "instances", "useful"),
    [
        ((6, 2, 2), 2, 2),  # 60 % is exactly θ/n for two instances.
        ((6, 2, 2), 3, 2),
        ((9, 1), 4, 1),
        ((2, 2, 1), 3, 3),  # 40 % is exactly θ/n for three.
    ],
)
def test_one_key_limits(loads: tuple[float, ...], instances: int, useful: int) -> None:
    found = one_key(np.array(loads, float), instances)
    if instances <= useful:
        assert found is None
    else:
        assert found is not None
        assert (found.shard, found.useful_instances) == (0, useful)
        assert "will not help" in str(found)


def test_no_load_has_no_limit() -> None:
    assert one_key(np.zeros(2), 5) is None
    assert one_key(np.zeros(0), 5) is None


def test_shard_use_adds_up_to_busy_shares() -> None:
    use = shard_use(np.array((0, 0, 1)), np.array((30, 10, 20), float), (0.8, 0.5))
    assert use.tolist() == pytest.approx([0.6, 0.2, 0.5])


def test_shard_use_counts_what_a_saturated_instance_could_not_do() -> None:
    """Instance 0 received 300 and was busy all the time; the other did 100 in half of it: 1.5 busy for 400 tuples."""
    use = shard_use(np.array((0, 1)), np.array((300, 100), float), (1.0, 0.5))
    assert use.tolist() == pytest.approx([300 * 1.5 / 400, 0.5])
    assert shard_use(np.array((0, 1)), np.array((0, 0), float), (0.1, 0.0)).tolist() == [0, 0]


@pytest.mark.parametrize("balancer", ALL, ids=repr)
def test_what_contradicts_itself_is_refused(balancer: Balancer) -> None:
    with pytest.raises(UserError, match="one entry per shard"):
        balancer.balance((0, 1), (1.0,), 2)
    with pytest.raises(UserError, match="at least one instance"):
        balancer.balance((0,), (1.0,), 0)
    with pytest.raises(UserError, match="numbered from 0"):
        balancer.balance((-1,), (1.0,), 2)
    with pytest.raises(UserError, match="finite"):
        balancer.balance((0,), (math.nan,), 2)
    assert balancer.balance((), (), 3).mapping == ()


def test_settings_are_checked() -> None:
    for wrong in (
        lambda: Greedy(-1),
        lambda: Greedy(0.1, 1.0),
        lambda: Greedy(math.nan),
        lambda: MinimalMovement(0.9),
        lambda: ConsistentHashing(0),
    ):
        with pytest.raises(UserError):
            wrong()


@pytest.mark.parametrize("name", BALANCERS)
def test_the_registry_makes_what_it_names(name: str) -> None:
    assert BALANCERS[name]().name == name


@pytest.mark.parametrize("balancer", ALL, ids=repr)
def test_ten_thousand_shards_on_a_thousand_instances(balancer: Balancer) -> None:
    """A size at which a scan per move would not end within the test's time limit."""
    rng = np.random.default_rng(7)
    loads = rng.zipf(1.8, 10_000).clip(max=50).astype(float)
    mapping = rng.integers(0, 1200, 10_000)
    plan = balancer.balance(mapping, loads, 1_000)
    assert sum(carried_loads(plan.mapping, loads)) == loads.sum()
    assert max(plan.mapping) < 1_000


def carried_loads(mapping: tuple[int, ...], loads: np.ndarray) -> list[float]:
    return np.bincount(mapping, weights=loads).tolist()
