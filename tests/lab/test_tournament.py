"""The tournament in small: what is claimed of the recommended controller, on every fifth load and one seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from figures.tournament import claims, save_picture, summary, write_csv
from lab.contests import REPORTED, REPORTED_SEEDS, TUNING, TUNING_SEEDS, Contest
from lab.matches import ENTRANTS, OURS, PUBLISHED, Result, Total, fitted, play
from lab.network import one
from tidegate.control.controller import Limits
from tidegate.control.controllers import CONTROLLERS, RECOMMENDED
from tidegate.control.controllers.ds2 import Ds2
from tidegate.simulate.loads import ConstantLoad
from tidegate.simulate.model import SubqueryModel

PLAYED = {contest.name: contest for contest in REPORTED}


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Every fifth of the reported loads, the day among them, with the first of the reported seeds."""
    every_fifth = REPORTED[::5]
    assert "day" in {each.name for each in every_fifth}
    return [play(name, ENTRANTS[name], each, REPORTED_SEEDS[0]) for each in every_fifth for name in (OURS, PUBLISHED)]


def test_the_recommended_controller_is_late_for_less_than_half_as_long_as_ds2_and_leaves_nothing_undone(
    results: list[Result],
) -> None:
    ours, peer = Total.of(OURS, results), Total.of(PUBLISHED, results)
    assert ours.undrained == 0
    assert ours.late_seconds < peer.late_seconds / 2
    assert ours.instance_seconds < 1.03 * peer.instance_seconds


@pytest.mark.xfail(
    strict=True,
    reason="could: 2.9 % dearer on all loads; Ds2 leaves work undone in 16 of 40 matches",
)
def test_the_recommended_controller_is_less_dear_than_ds2(results: list[Result]) -> None:
    ours, peer = Total.of(OURS, results), Total.of(PUBLISHED, results)
    assert ours.instance_seconds < peer.instance_seconds


def test_the_recommended_controller_never_oscillates_and_ds2_does(results: list[Result]) -> None:
    assert RECOMMENDED == OURS
    assert all(each.oscillations == 0 for each in results if each.entrant == OURS)
    assert any(each.oscillations > 0 for each in results if each.entrant == PUBLISHED)


def test_all_who_get_to_the_end_have_done_the_same_work() -> None:
    """A load of 100/s for 50 s is 3/s from then on, for the quiet time; and a tuple that waits at the end is shown."""
    contest = Contest("short", one(SubqueryModel("q", 0.002), ConstantLoad(100.0)), 50.0)
    (source,) = contest.ending.sources
    assert source.load.rate(np.array([0.0, 49.5, 50.5, 949.5])).tolist() == [100.0, 100.0, 3.0, 3.0]
    assert contest.whole_seconds == 950
    assert play(OURS, ENTRANTS[OURS], contest, 1).drained
    slow = replace(contest, network=one(SubqueryModel("q", 5.0), ConstantLoad(100.0)), limits=Limits(1, 1))
    assert not play(OURS, ENTRANTS[OURS], slow, 1).drained


def test_every_controller_takes_part_and_what_is_reported_was_not_tuned_on() -> None:
    assert {each.name for each in ENTRANTS.values()} == set(CONTROLLERS) - {"fixed"}
    assert not {each.name for each in REPORTED} & {each.name for each in TUNING}
    assert not set(REPORTED_SEEDS) & set(TUNING_SEEDS)


def test_ds2_waits_as_long_as_a_change_takes() -> None:
    """10 s until instances are there and 1 s of pause are three periods of 5 s; 45 s and 1 s are ten."""
    assert fitted(Ds2(warm_up_periods=1), PLAYED["ramp"]) == Ds2(warm_up_periods=3)
    assert fitted(Ds2(warm_up_periods=1), PLAYED["late executors"]) == Ds2(warm_up_periods=10)
    assert fitted(Ds2(), PLAYED["ramp"]) == Ds2()


def result(entrant: str, contest: str, **more: float) -> Result:
    given = {"seconds": 100.0, "late": 0.5, "instance_seconds": 300.0, "needed_instance_seconds": 200.0}
    counted = {"changes": 2, "oscillations": 1, "reversals": 3, "drained": contest != "y"}
    return Result(entrant, contest, 1, overshoot=0.0, settling_seconds=None, **(given | counted | more))


def test_totals_are_sums_of_a_round_and_means_over_loads() -> None:
    total = Total.of("a", [result("a", "x"), result("a", "y", late=0.1, seconds=1_000.0), result("b", "x")])
    assert total.late == pytest.approx(0.3)
    assert total.late_seconds == pytest.approx(150.0)
    assert total.cost == pytest.approx(1.5)
    assert total.instance_seconds == pytest.approx(600.0)
    assert (total.changes, total.oscillations, total.reversals, total.undrained) == (4, 2, 6, 1)


def test_the_page_and_the_picture_are_made_of_any_results(tmp_path: Path) -> None:
    made = [result(name, "x", late=0.01 * place) for place, name in enumerate(ENTRANTS, 1)]
    totals = {name: Total.of(name, made) for name in ENTRANTS}
    rows = summary(totals).rows
    assert rows[0][0] == OURS
    assert claims(totals, made).rows[0][:3] == (PUBLISHED, "-50.0%", "+0.0%")
    assert save_picture(totals.values(), tmp_path / "t.png").stat().st_size > 0
    lines = write_csv(made, tmp_path / "t.csv").read_text().splitlines()
    assert len(lines) == 1 + len(made)
