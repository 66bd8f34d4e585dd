"""What the papers' experiments must show, on their loads; and that the figures are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from figures import gedik, streamcloud
from figures.__main__ import FIGURES, main
from tidegate.control.controllers.saso import Saso
from tidegate.control.events import Event, Observed
from tidegate.control.rules import Rule
from tidegate.simulate.keys import NormalKeys
from tidegate.simulate.loads import Constant
from tidegate.simulate.network import Noise, Subquery, one
from tidegate.simulate.presets import GEDIK_SINE, GEDIK_STEP
from tidegate.simulate.run import Settings, simulate


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_saso_settles_after_each_step_of_gediks_load_without_turning_or_going_past_what_it_keeps(
    keyed: bool, seed: int
) -> None:
    rows = gedik.steps(gedik.adapt(GEDIK_STEP, cycles=2, keyed=keyed, seed=seed))
    assert [row.load for row in rows] == [5_000, 10_000, 2_000] * 2
    assert all(row.settled for row in rows)
    assert all(row.turns == 0 for row in rows)
    assert all(row.overshoot == 0 for row in rows)


def test_saso_turns_once_at_each_peak_and_in_each_trough_of_gediks_sine() -> None:
    run = gedik.adapt(GEDIK_SINE, cycles=3)
    assert gedik.turns(run.only.instances) <= 6


def test_a_threshold_of_zero_never_returns_and_one_of_nine_tenths_never_arrives() -> None:
    right, low, high = (gedik.adapt(GEDIK_STEP, threshold, cycles=2) for threshold in (0.2, 0.0, 0.9))
    kept = [row.kept for row in gedik.steps(right)]
    after_the_peak = low.only.instances[350:]
    assert after_the_peak.min() >= max(kept) > min(kept)
    assert high.only.instances.max() < min(kept)
    assert high.only.admitted.sum() < 0.5 * high.only.offered.sum()


@pytest.mark.parametrize("keys", [streamcloud.mean_shifts(), streamcloud.deviation_shifts()], ids=["mean", "deviation"])
def test_balancing_keeps_the_deviation_under_the_uit_after_every_shift_of_the_keys(keys: NormalKeys) -> None:
    shifts = [shift.at_seconds for shift in keys.shifts]
    balanced = streamcloud.balance(keys, balancing=True).after_shifts(shifts)
    without = streamcloud.balance(keys, balancing=False).after_shifts(shifts)
    assert all(rest <= streamcloud.UPPER_IMBALANCE for _, rest in balanced)
    assert all(rest > streamcloud.UPPER_IMBALANCE for _, rest in without[1:]), "every shift would go beyond it"


def test_one_load_aware_step_reaches_the_target_where_individual_provisioning_cascades() -> None:
    aware = streamcloud.provision("load-aware", streamcloud.JUMP, 600)
    individual = streamcloud.provision("individual", streamcloud.JUMP, 600)
    assert len(streamcloud.after_jump(aware)) == 1
    used = aware.only.utilisation[-100:].mean()
    fewer = used * aware.only.instances[-1] / (aware.only.instances[-1] - 1)
    assert used <= 0.6 < fewer, "one instance fewer would be above the target"
    assert max(streamcloud.cascades(individual)) >= 10


def test_load_aware_steps_keep_to_the_target_on_streamclouds_ramp_and_individual_ones_do_not() -> None:
    aware = streamcloud.resizings(streamcloud.provision("load-aware", streamcloud.RAMP, 1_500))
    individual = streamcloud.resizings(streamcloud.provision("individual", streamcloud.RAMP, 1_300, most=15))
    assert [each.after for each in aware if each.after in (11, 17)] == [11, 17], "the sizes that the paper names"
    assert all(each.utilisation <= 0.6 for each in aware)
    assert all(each.utilisation > 0.6 for each in individual if each.after > 2)
    assert [each.after for each in individual] == list(range(2, 16))


def test_idle_congestion_is_seen_where_nothing_is_blocked_and_shows_its_mean() -> None:
    seen: list[float] = []

    def record(event: Event) -> None:
        if isinstance(event, Observed):
            seen.append(event.observation.congestion or 0.0)

    network = one(Subquery("idle", 0.001), Constant(100.0), noise=Noise(idle_congestion=0.01))
    run = simulate(network, Rule(Saso(congestion_threshold=0.5)), Settings(5_000.0), record=record)
    assert run.only.congestion.max() == 0
    assert min(seen) > 0
    assert sum(seen) / len(seen) == pytest.approx(0.01, rel=0.2)


def test_a_figure_writes_its_pictures_its_page_and_the_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = gedik.draw(tmp_path, cycles=1, costs_ms=(0.1, 1.0))
    assert all(path.stat().st_size > 0 for path in written)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in written}
    assert "gedik.md" in {path.name for path in written}


def test_the_names_are_listed_and_others_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in FIGURES)
    with pytest.raises(SystemExit):
        main(["mona-lisa", "--out", str(tmp_path)])
    assert "gedik" in capsys.readouterr().err
