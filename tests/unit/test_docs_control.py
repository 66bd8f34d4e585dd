"""The guide to control says what the code does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from tests.kit.needs import needs_table
from tests.kit.observed import observed_table
from tidegate.cli.main import app
from tidegate.control.controllers import CONTROLLERS
from tidegate.control.rules import Rules
from tidegate.control.rules_file import parse_rules
from tidegate.errors import UserError
from tidegate.telemetry.schema import TABLES

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "control.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The guide's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def test_the_table_of_needs_is_the_declared_one() -> None:
    table = re.search(r"<!-- needs: [^\n]*-->\n(.*?)\n<!-- end of needs -->", GUIDE, re.DOTALL)
    assert table is not None
    assert table[1] == needs_table(), "put the output of tests.kit.needs.needs_table() there"


def test_the_table_of_what_is_observed_is_the_declared_one() -> None:
    table = re.search(r"<!-- observed: [^\n]*-->\n(.*?)\n<!-- end of observed -->", GUIDE, re.DOTALL)
    assert table is not None
    assert table[1] == observed_table(), "put the output of tests.kit.observed.observed_table() there"


def test_every_controller_has_its_line() -> None:
    for name in CONTROLLERS:
        lines = [line for line in GUIDE.splitlines() if line.startswith(f"| `{name}` |")]
        assert len(lines) == 2, f"'{name}' must be in the table of controllers and in that of needs"


def test_the_rules_in_python_and_in_the_file_are_the_same() -> None:
    (python,), (toml,) = blocks("python"), blocks("toml")
    names: dict[str, object] = {}
    exec(python, names)
    rules = names["rules"]
    assert isinstance(rules, Rules)
    assert parse_rules(toml) == rules


def test_the_mistakes_shown_are_what_one_is_told() -> None:
    (toml,) = blocks("toml")
    (shown,) = [block for block in blocks("text") if block.startswith("rules.toml")]
    for wrong, told in zip(
        (toml.replace("upper = 0.85", "upper = 0.4"), toml.replace("most = 16", "maximum = 16")),
        shown.splitlines(),
        strict=True,
    ):
        with pytest.raises(UserError) as caught:
            parse_rules(wrong, "rules.toml")
        assert str(caught.value).startswith(told.removesuffix("…").strip())


def test_the_commands_shown_are_valid() -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert commands
    for line in commands:
        program, *arguments = shlex.split(line, comments=True)
        assert program == "tidegate"
        known = get_command(app)
        assert isinstance(known, TyperGroup)
        known.commands[arguments[0]].make_context(arguments[0], arguments[1:])


def test_every_result_is_explained() -> None:
    constraint = re.search(r"result IN \((.*?)\)", TABLES)
    assert constraint is not None
    for result in re.findall(r"'(\w+)'", constraint[1]):
        assert re.search(rf"^\|[^|]*`{result}`", GUIDE, re.MULTILINE)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", GUIDE):
        assert (DOCS / target).exists(), target
