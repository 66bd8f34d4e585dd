"""The command, run in this process, and its picture."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.main import main
from tidegate.control.controller import Limits
from tidegate.control.controllers import CONTROLLERS
from tidegate.control.controllers.ds2 import Ds2
from tidegate.control.rules import Rule, Rules
from tidegate.control.rules_file import parse_rules
from tidegate.errors import EnvironmentFault
from tidegate.simulate.loads import NAMED, ConstantLoad
from tidegate.simulate.model import SimulatedQuery, SubqueryModel
from tidegate.simulate.plot import plot_run
from tidegate.simulate.run import SimulationSettings, simulate
from tidegate.telemetry.read import decisions


def test_help_lists_controllers_and_loads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--help"]) == 0
    told = capsys.readouterr().out
    for name in (*CONTROLLERS, *NAMED):
        assert f"\n {name} " in told


@pytest.mark.parametrize("controller", [*CONTROLLERS, "none"])
def test_every_controller_can_be_simulated(controller: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--controller", controller, "--seconds", "200", "--window-seconds", "20", "--noise", "0.02"]
    assert main(["simulate", *options]) == 0
    told = capsys.readouterr()
    assert "instance-seconds" in told.out
    assert "100% · 200 of 200 s" in told.err


def test_a_run_is_drawn_recorded_and_told_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, ledger = tmp_path / "run.png", tmp_path / "run.ledger"
    trace = tmp_path / "load.csv"
    trace.write_text("seconds,rate\n0,2000\n60,6000\n")
    options = ["--load", str(trace), "--seconds", "120", "--quiet", "--shadow", "ds2", "--zipf", "0.5"]
    assert main(["simulate", *options, "--plot", str(picture), "--ledger", str(ledger)]) == 0
    first = capsys.readouterr()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["simulate", *options]) == 0
    assert capsys.readouterr().out == first.out
    assert main(["ledger", str(ledger), "--controller", "ds2"]) == 0
    assert "ds2" in capsys.readouterr().out


def test_rules_hold_unless_options_say_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[default]\ncontroller = "thresholds"\nleast = 3\nmost = 3\n')
    options = ["simulate", "--rules", str(rules), "--load", "constant", "--seconds", "100", "--quiet"]
    assert main(options) == 0
    assert capsys.readouterr().out.split("instance-seconds")[1].split()[0] == "300"
    assert main([*options, "--instances", "4:4"]) == 0
    assert capsys.readouterr().out.split("instance-seconds")[1].split()[0] == "400"


def test_the_controller_and_its_settings_come_from_the_rules_of_the_subquery(tmp_path: Path) -> None:
    rules, ledger = tmp_path / "rules.toml", tmp_path / "run.ledger"
    rules.write_text(
        '[subquery.speed]\ncontroller = "thresholds"\n[controllers.thresholds]\nlower = 0.2\ntarget = 0.25\nupper = 0.3\n'
    )
    # 1,000 tuples/s at 2 ms each keep two instances busy: eight at a target of 0.25, four at 0.5.
    options = ["--load", "constant", "--times", "0.2", "--start", "2", "--seconds", "100", "--quiet"]
    assert main(["simulate", "--rules", str(rules), "--subquery", "speed", *options, "--ledger", str(ledger)]) == 0
    table = decisions(ledger).to_pydict()
    assert set(table["controller"]) == {"thresholds"}
    assert table["instances"][-1] == 8


def test_rules_are_printed_as_a_file_that_reads_as_the_same_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--print-rules"]) == 0
    assert parse_rules(capsys.readouterr().out) == Rules(Rule())
    assert main(["simulate", "--print-rules", "--controller", "ds2", "--instances", "2:9", "--max-step", "3"]) == 0
    assert parse_rules(capsys.readouterr().out) == Rules(Rule(Ds2(), Limits(2, 9), max_step=3))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--load", "tide"], "'gedik-step'"),
        (["--load", "nothing.csv"], "no such file"),
        (["--seconds", "1"], "period_seconds"),
        (["--noise", "-1"], "noise: rates must be 0 or more"),
        (["--controller", "none", "--shadow", "ds2"], "nothing is decided"),
        (["--ledger", "."], "ledger .: is a folder"),
        (["--rules", "nothing.toml"], "no rules file"),
        (["--plot", "run.bmp"], "'.png'"),
        (["--plot", "nowhere/run.png"], "no folder nowhere"),
    ],
)
def test_a_mistake_is_told(options: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *options]) == 2
    assert part in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--seconds", "--period", "--service-ms", "--window-seconds", "--target-ms"])
@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "long"])
def test_a_quantity_is_checked_and_its_option_named(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", option, text]) == 2
    told = capsys.readouterr().err
    assert f"'{option}': " in told
    assert text in told


@pytest.mark.parametrize("text", ["8:2", "0:3", "few", "1:"])
def test_a_range_of_instances_is_checked(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--instances", text]) == 2
    assert "1:32" in capsys.readouterr().err


def test_a_picture_shows_load_latency_use_and_instances_on_one_axis() -> None:
    run = simulate(SimulatedQuery(SubqueryModel("q", 0.01), ConstantLoad(150)), None, SimulationSettings(50))
    figure = plot_run(run, target_seconds=0.5)
    panels = figure.axes
    assert [axes.get_ylabel() for axes in panels] == ["tuples/s", "mean latency, s", "share of time", "instances"]
    assert {axes.get_xlim() for axes in panels} == {(0.0, 50.0)}
    (offered, processed) = panels[0].get_lines()
    assert set(offered.get_ydata()) == {150.0}
    assert set(processed.get_ydata()) == {100.0}


def test_without_matplotlib_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    run = simulate(SimulatedQuery(SubqueryModel("q", 0.01), ConstantLoad(50)), None, SimulationSettings(10))
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(EnvironmentFault, match=r"tidegate\[plot\]"):
        plot_run(run, target_seconds=0.5)
