"""Merits on histories made by hand. One period is five ticks of one second."""

from __future__ import annotations

import numpy as np
import pytest

from lab.keys import UniformKeys
from lab.merits import Merits, least_instances, merits, oscillations, settle
from lab.network import ContendedSubquery, Run, one
from tidegate.control.controller import Limits
from tidegate.control.erlang import mean_sojourn
from tidegate.errors import UserError
from tidegate.simulate.fluid import SubqueryHistory
from tidegate.simulate.loads import ConstantLoad, StepLoad
from tidegate.simulate.model import SubqueryModel
from tidegate.simulate.run import SimulationSettings

TICKS = 5


def levels(*parts: tuple[int, float]) -> np.ndarray:
    """Values held for so many ticks each."""
    return np.concatenate([np.full(ticks, float(value)) for ticks, value in parts])


def loads(*parts: tuple[int, float]) -> np.ndarray:
    """Values held for so many periods each."""
    return levels(*parts)


def judged(
    offered: np.ndarray,
    instances: np.ndarray,
    *,
    latency: np.ndarray | float = 0.0,
    waits: bool = True,
    admitted: np.ndarray | None = None,
    target: float = 1.0,
    backlog: np.ndarray | float = 0.0,
    service_rate: np.ndarray | float = 100.0,
) -> Merits:
    """The merits of a history of one subquery at 10 ms a tuple."""
    ticks = len(offered)
    made = SubqueryHistory.empty("q", ticks)
    made.offered[:] = offered
    made.admitted[:] = offered if admitted is None else admitted
    made.processed[:] = made.admitted
    made.instances[:] = made.paid[:] = instances
    made.latency[:] = latency
    made.service_rate[:] = service_rate
    made.backlog[:] = backlog
    network = one(SubqueryModel("q", 0.01), ConstantLoad(1), waits=waits)
    run = Run(network, "by hand", SimulationSettings(1_000), np.arange(ticks) + 1.0, {"q": made}, ())
    return merits(run, target, Limits(1, 50))


def test_settling_is_counted_from_the_change_of_load() -> None:
    #  load      100 for 50 s,   300 for 50 s
    #  instances 2,              2 for 10 s, 3 for 5 s, 5 for 35 s
    found = settle(loads((10, 100), (10, 300)), levels((60, 2), (5, 3), (35, 5)), TICKS)
    assert [(each.start, each.end) for each in found] == [(0, 50), (50, 100)]
    assert [each.settling_ticks for each in found] == [0, 15]
    assert all(each.settled for each in found)
    assert [each.overshoot for each in found] == [0, 0]


def test_instances_that_still_change_have_not_settled() -> None:
    (found,) = settle(loads((10, 100)), levels((38, 2), (12, 3)), TICKS)
    assert not found.settled
    assert found.settling_ticks == 50


@pytest.mark.parametrize(
    ("instances", "overshoot"),
    [
        (levels((10, 2), (10, 6), (30, 4)), 0.5),  # up past what is kept, and back
        (levels((10, 9), (10, 3), (30, 4)), 0.25),  # down past it
        (levels((10, 9), (40, 4)), 0.0),  # where it began does not count
        (levels((10, 4), (10, 5), (30, 4)), 0.25),  # away and back
    ],
)
def test_overshoot_is_past_the_level_that_is_kept(instances: np.ndarray, overshoot: float) -> None:
    (found,) = settle(loads((10, 100)), instances, TICKS)
    assert found.overshoot == pytest.approx(overshoot)


def test_a_load_that_never_stays_has_no_stretches() -> None:
    assert settle(np.linspace(100, 1_000, 20), levels((100, 4)), TICKS) == []


@pytest.mark.parametrize(
    ("load", "instances", "count"),
    [
        (loads((20, 100)), levels((20, 2), (20, 4), (60, 6)), 0),  # one direction
        (loads((20, 100)), levels((20, 2), (20, 4), (60, 2)), 1),  # there and back
        (loads((20, 100)), levels((20, 2), (20, 4), (20, 2), (20, 4), (20, 2)), 3),
        (loads((8, 100), (12, 50)), levels((20, 2), (25, 4), (55, 2)), 0),  # the load fell in between
        (loads((8, 100), (12, 97)), levels((20, 2), (25, 4), (55, 2)), 1),  # by so little that it is the same
        (loads((3, 100), (1, 200), (16, 100)), levels((20, 2), (20, 4), (60, 2)), 0),  # a spike led to it
        (loads((2, 100), (1, 200), (17, 100)), levels((20, 2), (20, 4), (60, 2)), 1),  # long before
    ],
)
def test_an_oscillation_is_a_reversal_without_a_change_of_load(
    load: np.ndarray, instances: np.ndarray, count: int
) -> None:
    assert oscillations(load, instances, TICKS) == count


def test_coming_down_once_what_waited_is_done_is_no_oscillation_and_going_back_up_is_one() -> None:
    """Up at tick 20, down at tick 40; late until tick 30, that is, in the periods 0 to 5."""
    load, instances = loads((20, 100)), levels((20, 2), (20, 4), (60, 2))
    worked_off, waits_still = loads((6, 1), (14, 0)) > 0, loads((20, 1)) > 0
    assert oscillations(load, instances, TICKS, worked_off) == 0
    assert oscillations(load, instances, TICKS, waits_still) == 1
    assert oscillations(load, instances, TICKS, ~waits_still) == 1
    assert oscillations(load, levels((20, 4), (20, 2), (60, 4)), TICKS, worked_off) == 1


def test_what_led_to_a_change_is_the_period_before_it_was_ordered() -> None:
    """The load fell at tick 10; four instances are there from tick 20 to tick 40, ordered at tick 5 or at tick 17."""
    load, instances = loads((2, 200), (18, 100)), levels((20, 2), (20, 4), (60, 2))
    assert oscillations(load, instances, TICKS) == 1
    assert oscillations(load, instances, TICKS, paid=levels((5, 2), (35, 4), (60, 2))) == 0
    assert oscillations(load, instances, TICKS, paid=levels((5, 2), (12, 3), (23, 4), (60, 2))) == 1


def test_reversals_are_counted_whatever_waited_and_whatever_a_tuple_cost() -> None:
    """600 wait at first, which 150 a second make late, and are done by tick 30; instances go up at 20, down at 40."""
    offered, instances = levels((100, 150)), levels((20, 2), (20, 4), (60, 2))
    found = judged(offered, instances, backlog=levels((30, 600), (70, 0)))
    assert (found.oscillations, found.reversals) == (0, 1)
    dearer = judged(offered, instances, service_rate=levels((25, 100), (75, 90)))
    assert (dearer.oscillations, dearer.reversals) == (0, 1)
    plain = judged(offered, instances)
    assert (plain.oscillations, plain.reversals) == (1, 1)


def test_load_is_what_the_next_accepts() -> None:
    """100 a second are offered; from tick 50 on 30 are accepted, for which one instance at 100 a second is enough."""
    offered, instances = levels((100, 150)), levels((60, 2), (40, 1))
    made = SubqueryHistory.empty("q", 100)
    made.offered[:] = made.admitted[:] = made.processed[:] = offered
    made.instances[:] = made.paid[:] = instances
    made.service_rate[:] = 100.0
    limit = StepLoad(((50, 1_000), (50, 30)))
    network = one(ContendedSubquery("q", 0.01, downstream_limit=limit), ConstantLoad(1))
    run = Run(network, "by hand", SimulationSettings(1_000), np.arange(100) + 1.0, {"q": made}, ())
    # Ten ticks of one hundred have two instances where one is needed.
    assert merits(run, 1.0, Limits(1, 50)).accuracy == pytest.approx(0.1)


def test_the_least_instances_meet_the_target_and_one_fewer_do_not() -> None:
    limits = Limits(1, 50)
    for rate in (10.0, 480.0, 1_730.0):
        least = least_instances(SubqueryModel("q", 0.01), rate, 100.0, 0.012, limits)
        assert mean_sojourn(least, rate, 100.0) <= 0.012
        assert least == 1 or mean_sojourn(least - 1, rate, 100.0) > 0.012


def test_the_least_instances_with_keys_are_queues_of_their_own() -> None:
    """With λ = 480, μ = 100 and a target of 50 ms: 100 − 480/n ≥ 20, so n = 6."""
    keyed = SubqueryModel("q", 0.01, keys=UniformKeys())
    assert least_instances(keyed, 480.0, 100.0, 0.05, Limits(1, 50)) == 6


def test_what_cannot_be_met_needs_the_most() -> None:
    assert least_instances(SubqueryModel("q", 0.01), 480.0, 100.0, 0.001, Limits(1, 50)) == 50


def test_accuracy_is_the_relative_distance_from_the_least() -> None:
    """250/s at 100/s each and a generous target need 3; there were 3 for one half, 6 for the other: 50 % on average."""
    found = judged(levels((100, 250)), levels((50, 3), (50, 6)))
    assert found.accuracy == pytest.approx(0.5)
    assert found.changes == 1
    assert found.instance_seconds == 3 * 50 + 6 * 50


def test_late_time_and_late_tuples_differ_when_the_load_does() -> None:
    offered = levels((80, 100), (20, 400))
    found = judged(offered, levels((100, 5)), latency=levels((80, 0.1), (20, 3.0)))
    assert found.late_time == pytest.approx(0.2)
    assert found.late_tuples == pytest.approx(0.5)
    assert found.refused == 0


def test_what_slowed_sources_did_not_make_is_refused() -> None:
    offered = levels((100, 100))
    found = judged(offered, levels((100, 1)), waits=False, admitted=0.75 * offered)
    assert found.refused == pytest.approx(0.25)


def test_a_target_must_be_positive() -> None:
    with pytest.raises(UserError, match="more than 0"):
        judged(levels((10, 1)), levels((10, 1)), target=0)
