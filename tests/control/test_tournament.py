"""The tournament in small: what is claimed of the recommended controller, on a few loads and one seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from figures.contests import REPORTED, REPORTED_SEEDS, TUNING, TUNING_SEEDS
from figures.matches import ENTRANTS, OURS, PUBLISHED, Result, Total, fitted, play
from figures.tournament import claims, save_picture, summary, write_csv
from tidegate.control.controllers.ds2 import Ds2
from tidegate.control.controllers.registry import CONTROLLERS, RECOMMENDED

NAMES = ("noisy", "gedik-step", "gedik-sine", "spikes", "one hot key", "downstream stall")
PLAYED = {contest.name: contest for contest in REPORTED}


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [play(name, ENTRANTS[name], PLAYED[contest], 11) for contest in NAMES for name in (OURS, PUBLISHED)]


def test_the_recommended_controller_is_late_for_less_than_half_as_long_as_ds2_for_little_more(
    results: list[Result],
) -> None:
    """What is put off is owed, so the cost counts what the tuples that wait at the end will take."""
    ours, peer = Total.of(OURS, results), Total.of(PUBLISHED, results)
    assert ours.late_seconds < peer.late_seconds / 2
    assert ours.full_instance_seconds < 1.05 * peer.full_instance_seconds


def test_the_recommended_controller_never_oscillates_and_ds2_does(results: list[Result]) -> None:
    assert RECOMMENDED == OURS
    assert all(each.oscillations == 0 for each in results if each.entrant == OURS)
    assert any(each.oscillations > 0 for each in results if each.entrant == PUBLISHED)


def test_every_controller_takes_part_and_what_is_reported_was_not_tuned_on() -> None:
    assert {each.name for each in ENTRANTS.values()} == set(CONTROLLERS)
    assert not {each.name for each in REPORTED} & {each.name for each in TUNING}
    assert not set(REPORTED_SEEDS) & set(TUNING_SEEDS)


def test_ds2_waits_as_long_as_a_change_takes() -> None:
    """10 s until instances are there and 1 s of pause are three periods of 5 s; 45 s and 1 s are ten."""
    assert fitted(Ds2(warm_up_periods=1), PLAYED["ramp"]) == Ds2(warm_up_periods=3)
    assert fitted(Ds2(warm_up_periods=1), PLAYED["late executors"]) == Ds2(warm_up_periods=10)
    assert fitted(Ds2(), PLAYED["ramp"]) == Ds2()


def result(entrant: str, contest: str, **more: float) -> Result:
    given = {"seconds": 100.0, "late": 0.5, "instance_seconds": 300.0, "owed_instance_seconds": 10.0}
    given |= {"needed_instance_seconds": 200.0} | more
    return Result(entrant, contest, 1, changes=2, oscillations=1, overshoot=0.0, settling_seconds=None, **given)


def test_totals_are_sums_of_a_round_and_means_over_loads() -> None:
    total = Total.of("a", [result("a", "x"), result("a", "y", late=0.1, seconds=1_000.0), result("b", "x")])
    assert total.late == pytest.approx(0.3)
    assert total.late_seconds == pytest.approx(150.0)
    assert total.cost == pytest.approx(1.5)
    assert total.full_instance_seconds == pytest.approx(620.0)
    assert (total.changes, total.oscillations) == (4, 2)


def test_the_page_and_the_picture_are_made_of_any_results(tmp_path: Path) -> None:
    made = [result(name, "x", late=0.01 * place) for place, name in enumerate(ENTRANTS, 1)]
    totals = {name: Total.of(name, made) for name in ENTRANTS}
    rows = summary(totals).rows
    assert rows[0][0] == OURS
    assert claims(totals).rows[0][:3] == (PUBLISHED, "-50.0%", "+0.0%")
    assert save_picture(totals.values(), tmp_path / "t.png").stat().st_size > 0
    lines = write_csv(made, tmp_path / "t.csv").read_text().splitlines()
    assert len(lines) == 1 + len(made)
