"""Rules from Python and from TOML: what they say, and what a mistake in them is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.control.balancers import BALANCERS
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.controller import ChangeOutcome, Limits
from tidegate.control.controllers import CONTROLLERS, RECOMMENDED
from tidegate.control.controllers.ds2 import Ds2
from tidegate.control.controllers.queueing import Queueing
from tidegate.control.controllers.saso import Saso
from tidegate.control.controllers.thresholds import Thresholds
from tidegate.control.events import Event, Stepped
from tidegate.control.loop import ControlLoop
from tidegate.control.observation import Observation
from tidegate.control.rules import Rule, Rules
from tidegate.control.rules_file import parse_rules, read_rules, rules_text, settings_of
from tidegate.errors import UserError

EXAMPLE = """\
[default]
most = 16
cooldown_seconds = 30
shadows = ["ds2"]

[subquery.speed]
controller = "thresholds"
least = 2
max_step = 4
dry_run = true

[subquery."call volume"]
shadows = []

[controllers.thresholds]
upper = 0.85

[controllers.ds2]
utilisation = 0.8

[subquery.speed.controllers.thresholds]
lower = 0.4
"""


def test_a_file_says_which_controller_drives_what(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(EXAMPLE)
    rules = read_rules(tmp_path / "rules.toml")
    ds2 = Ds2(utilisation=0.8)
    recommended = CONTROLLERS[RECOMMENDED]()
    assert rules.of("anything") == Rule(recommended, Limits(1, 16), 30.0, shadows=(ds2,))
    thresholds = Thresholds(lower=0.4, upper=0.85)
    assert rules.of("speed") == Rule(thresholds, Limits(2, 16), 30.0, 4, True, (ds2,))
    assert rules.of("call volume") == Rule(recommended, Limits(1, 16), 30.0)


def test_an_empty_file_is_the_recommended_rule() -> None:
    assert parse_rules("") == Rules(Rule())


def mistake(text: str) -> str:
    with pytest.raises(UserError) as caught:
        parse_rules(text, "rules.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "begins", "holds"),
    [
        ("[default]\nleast = 5\nmost = 4\n", "rules.toml: [default] ", "1 ≤ least ≤ most"),
        ("[default]\n\nleast = 0\n", "rules.toml: [default] ", "1 ≤ least ≤ most"),
        ("[default]\nmost = 2.5\n", "rules.toml: [default] most = 2.5: ", "must be a whole number"),
        ("[default]\nmost = true\n", "rules.toml: [default] most = true: ", "must be a whole number"),
        ("[default]\ndry_run = 1\n", "rules.toml: [default] dry_run = 1: ", "must be true or false"),
        (
            "[default]\nshadows = 'ds2'\n",
            'rules.toml: [default] shadows = "ds2": ',
            "must be a list of texts in quotes",
        ),
        ("[default]\ncooldown_seconds = -1\n", "rules.toml: [default] cooldown_seconds (-1.0) ", "must be 0 or more"),
        ("[default]\nmax_step = 0\n", "rules.toml: [default] max_step (0) ", "must be 1 or more"),
        (
            "[default]\ncontroller = 'best'\n",
            "rules.toml: [default] controller: there is no controller 'best'",
            "'thresholds', 'saso'",
        ),
        (
            "[default]\nshadows = ['saso', 'x']\n",
            "rules.toml: [default] shadows: there is no controller 'x'",
            "'thresholds', 'saso'",
        ),
        ("[default]\n# hm\nfewest = 1\n", "rules.toml: [default] fewest: there is no such key; ", "'least', 'most'"),
        (
            "\n[subqueries.a]\n",
            "rules.toml: subqueries: there is no such key; ",
            "'default', 'subquery', 'controllers'",
        ),
        ("[controllers.sas]\n", "rules.toml: [controllers] sas: there is no such key; ", "'saso'"),
        (
            "[controllers.saso]\nnoise = 0.1\ncalm = 1\n",
            "rules.toml: [controllers.saso] calm: there is no such key; ",
            "'sensitivity'",
        ),
        ("default = 3\n", "rules.toml: default = 3: ", "must be a table"),
        ("[default]\nmost = \n", "rules.toml: not valid TOML: ", "at line 2, column"),
        ("[default\n", "rules.toml: not valid TOML: ", "at line 1"),
        (
            "[default]\ncontroller = 'thresholds'\n\n[controllers.thresholds]\ntarget = 0.6\nlower = 0.2\nupper = 0.4\n",
            "rules.toml: [controllers.thresholds] lower (0.2), ",
            "target (0.6) and upper (0.4)",
        ),
        (
            "[subquery.a]\ncontroller = 'thresholds'\n[subquery.a.controllers.thresholds]\nprovisioning = 'eager'\n",
            "rules.toml: [subquery.a.controllers.thresholds] provisioning is 'eager'",
            "'load-aware', 'individual'",
        ),
        (
            "[default]\ncontroller = 'thresholds'\n[controllers.thresholds]\nbalancer = 'best'\n",
            'rules.toml: [controllers.thresholds] balancer = "best": ',
            "'greedy', 'minimal-movement', 'consistent-hashing', 'offload', 'none'",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_table_and_key_and_what_would_be_right(
    text: str, begins: str, holds: str
) -> None:
    told = mistake(text)
    assert told.startswith(begins)
    assert holds in told


def test_a_subquerys_mistake_is_named_where_the_value_stands() -> None:
    assert mistake("[default]\nmost = 4\n[subquery.a]\nleast = 5\n").startswith("rules.toml: [subquery.a] least (5) ")
    reported = mistake("[default]\nmost = 2.5\n[subquery.a]\nleast = 5\n")
    assert reported.startswith("rules.toml: [default] most = 2.5: must be a whole number")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no rules file .*absent.toml"):
        read_rules(tmp_path / "absent.toml")


def test_a_balancer_is_given_by_name_or_with_its_settings() -> None:
    head = "[default]\ncontroller = 'thresholds'\n[controllers.thresholds]\n"
    for said, balancer in (
        ("balancer = 'none'", None),
        ("balancer = 'minimal-movement'", MinimalMovement()),
        ("balancer = { name = 'minimal-movement', theta = 1.5 }", MinimalMovement(1.5)),
        *((f"balancer = '{name}'", kind()) for name, kind in BALANCERS.items()),
    ):
        assert parse_rules(head + said).default.controller == Thresholds(balancer=balancer)


ROUND = [
    Rules(Rule()),
    Rules(Rule(Thresholds(balancer=None), Limits(2, 7), 12.5, 3, True, (Saso(noise=0.1), Ds2()))),
    Rules(
        Rule(Saso()),
        (
            ("speed", Rule(Thresholds(balancer=MinimalMovement(1.5)), max_step=2, shadows=(Saso(noise=0.01),))),
            ('odd "name" é', Rule(Queueing(0.25, cores=40), Limits(3, 3))),
        ),
    ),
]


@pytest.mark.parametrize("rules", ROUND)
def test_rules_written_and_read_are_the_same(rules: Rules) -> None:
    assert parse_rules(rules_text(rules)) == rules


def test_the_default_text_explains_every_key() -> None:
    text = rules_text(Rules(Rule()))
    assert parse_rules(text) == Rules(Rule())
    for key in ("controller", "least", "most", "cooldown_seconds", "max_step", "dry_run", "shadows"):
        (line,) = [line for line in text.splitlines() if line.removeprefix("# ").startswith(f"{key} = ")]
        assert "  # " in line
    assert f"[controllers.{RECOMMENDED}]" in text


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (Rules(Rule(Saso(), shadows=(Saso(noise=0.2),))), "cannot say"),
        (Rules(Rule(Saso(), max_step=2), (("a", Rule(Saso())),)), "cannot say"),
        (
            Rules(Rule(Ds2(catch_up_seconds=5.0)), (("a", Rule(Ds2())),)),
            "cannot say",
        ),
    ],
)
def test_rules_that_a_file_cannot_say_are_refused(rules: Rules, why: str) -> None:
    with pytest.raises(UserError, match=why):
        rules_text(rules)


def test_every_controller_can_be_set_in_a_file() -> None:
    for name, controller in CONTROLLERS.items():
        assert settings_of(controller) or name == "fixed"


def test_rules_in_python_are_checked() -> None:
    with pytest.raises(UserError, match="cooldown_seconds"):
        Rule(Saso(), cooldown_seconds=float("inf"))
    with pytest.raises(UserError, match="max_step"):
        Rule(Saso(), max_step=0)
    with pytest.raises(UserError, match="more than one rule"):
        Rules(Rule(), (("a", Rule(Saso())), ("a", Rule(Ds2()))))
    rules = Rules(Rule(), (("sped", Rule(Ds2())),))
    assert rules.of("speed") == Rule()
    rules.check(["sped", "other"])
    with pytest.raises(UserError, match="no subquery 'sped'; the query has 'speed', 'calls'"):
        rules.check(["speed", "calls"])


def test_a_rule_makes_a_loop() -> None:
    class Never:
        def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
            raise AssertionError("a dry run acts")

    events: list[Event] = []
    rule = Rule(Thresholds(), Limits(1, 4), max_step=1, dry_run=True, shadows=(Ds2(),))
    ControlLoop(rule, Never(), events.append).step(
        Observation("q", 5.0, 5.0, 1, busy=(1.0,), processed=10.0, demand=50.0)
    )
    (step,) = events
    assert isinstance(step, Stepped)
    assert (step.result, step.decision.instances) == ("advised", 2)
    assert [opinion.shadow for opinion in step.opinions] == ["ds2"]
