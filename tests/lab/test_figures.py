"""What the papers' experiments must show, on their loads; and that the figures are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from figures import day, elasticutor, gedik, paradigms, speed, streamcloud, stretch
from figures.__main__ import FIGURES, main
from figures.cores import Cores
from lab.keys import NormalKeys
from lab.network import one, simulate
from tidegate.control.controllers.saso import Saso
from tidegate.control.controllers.thresholds import Thresholds
from tidegate.control.events import Event, Stepped
from tidegate.control.rules import Rule
from tidegate.simulate.loads import GEDIK_SINE, GEDIK_STEP, ConstantLoad
from tidegate.simulate.model import Noise, SubqueryModel, ZipfKeys, shard_shares
from tidegate.simulate.run import SimulationSettings


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


def test_shuffled_keys_cost_resource_centric_much_and_executor_centric_little() -> None:
    static, central, naive, elastic = elasticutor.PARADIGMS
    still = {name: rows[0] for name, rows in elasticutor.compare((0.0,), seconds=60).items()}
    shuffled = {name: rows[0] for name, rows in elasticutor.compare((8.0,), seconds=60).items()}
    assert still[static].mean_throughput < 0.8 * elasticutor.OFFERED, "skew alone stops it"
    for name in (central, elastic):
        assert still[name].mean_throughput == pytest.approx(elasticutor.OFFERED, rel=0.01)
    assert shuffled[central].mean_throughput < 0.8 * elasticutor.OFFERED
    assert shuffled[elastic].mean_throughput > 0.95 * elasticutor.OFFERED
    assert shuffled[elastic].state_mb_per_second < shuffled[naive].state_mb_per_second
    assert shuffled[elastic].remote_mb_per_second < 0.5 * shuffled[naive].remote_mb_per_second


@pytest.mark.parametrize("name", list(elasticutor.PARADIGMS))
def test_no_tuple_is_lost_while_shards_move(name: str) -> None:
    paradigm = elasticutor.PARADIGMS[name][0]()
    cores = Cores(paradigms.CORES, paradigm.first(), paradigms.TUPLES_PER_CORE, 1_000.0)
    keys = ZipfKeys(shuffles_per_minute=12, seed=3)
    came, completed = 0.0, 0.0
    for tick in range(200):
        now = tick * 0.1
        shares = shard_shares(keys, paradigms.SHARDS, keys.era(now))
        if tick % 10 == 9:
            paradigm.decide(now, 180_000 * shares, cores)
        more, done = cores.tick(now, 0.1, 18_000.0, shares)
        came, completed = came + more, completed + done
    assert completed + cores.waiting == pytest.approx(came)
    assert completed > 0


def test_table_four_of_stretch_is_met_upwards_and_the_target_kept_downwards() -> None:
    for threads, paper in stretch.PAPER_UP.items():
        assert stretch.one_reconfiguration(threads, 1.2) == paper
    for threads in stretch.PAPER_DOWN:
        after = stretch.one_reconfiguration(threads, 0.3)
        assert 0.3 * threads / after <= 0.7 + 1e-9 < 0.3 * threads / (after - 1)


def test_predictive_has_its_threads_sooner_than_thresholds_of_the_same_range() -> None:
    predictive, thresholds = (stretch.play(stretch.CONTROLLERS[name]) for name in list(stretch.CONTROLLERS)[:2])
    rises = [second for second in range(1, 1_200) if predictive.entering[second] > 2 * predictive.entering[second - 1]]
    assert rises
    for second in rises:
        filling = slice(second + 5, second + 40)
        assert (predictive.instances[filling] >= thresholds.instances[filling]).all()
    for run in (predictive, thresholds):
        assert stretch.figures(run).longest_spike <= 10, "the paper's: spikes are handled within 10 s"


def test_a_day_follows_its_load() -> None:
    played = day.play(Thresholds(), seconds=14_400, most=40)
    assert played.run.only.processed.sum() == pytest.approx(played.run.only.offered.sum(), rel=0.01)
    assert played.merits.oscillations == 0
    assert played.run.only.instances.min() < 0.6 * played.run.only.instances.max()


def test_idle_congestion_is_seen_where_nothing_is_blocked_and_shows_its_mean() -> None:
    seen: list[float] = []

    def record(event: Event) -> None:
        if isinstance(event, Stepped):
            seen.append(event.observation.congestion or 0.0)

    network = one(SubqueryModel("idle", 0.001), ConstantLoad(100.0), noise=Noise(idle_congestion=0.01))
    run = simulate(network, Rule(Saso(congestion_threshold=0.5)), SimulationSettings(5_000.0), record=record)
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


def test_the_readmes_table_of_speed_is_read_and_drawn(tmp_path: Path) -> None:
    text = (
        "| `make bench NAME=…` | tuples a batch | files | DataFrame |\n|---|---|---|---|\n"
        "| `keyed`: keys, six windows | 50,000 | 1.15× | 1.10× |\n| | 250,000 | 3.7×, 1.4 GB against 2.5 GB | 2.0× |\n"
        "| `equijoin` | | 4.1× | 2.6× (one run) |\n\nElse.\n| a | b | 9× | 9× |\n"
    )
    rows = speed.table_of(text)
    assert [(row.label, row.files, row.frame) for row in rows] == [
        ("keyed, 50,000 a batch", 1.15, 1.1),
        ("keyed, 250,000 a batch", 3.7, 2.0),
        ("equijoin", 4.1, 2.6),
    ]
    assert len(speed.table_of(speed.README.read_text(encoding="utf-8"))) >= len(rows)
    assert speed.draw_speed(rows, tmp_path / "speed.png").stat().st_size > 5_000
