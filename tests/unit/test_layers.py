"""An import may only point down: who may know whom, and what must not be loaded by `import tidegate`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "tidegate"

# A part may import from itself and from these. The wiring at the top (stream, run, cli, …) may import anything.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "watermark": set(),
    "control": {"errors"},
    "drawing": set(),
    "telemetry": {"errors", "control", "drawing"},
    "page": {"errors", "control", "telemetry", "drawing"},
    "simulate": {"errors", "control"},
    "query": {"errors", "watermark"},
    "compile": {"errors", "query", "drawing"},
    "state": {"errors", "watermark"},
    "gate": {"errors", "watermark"},
    "operators": {"errors", "watermark", "query", "state"},
    "reference": {"errors", "watermark", "query"},
    "micro": {"errors", "watermark", "query"},
    "sources": {"errors", "query", "watermark"},
    "java": {"errors"},
    "progress": set(),
    "tables": {"errors"},
    "results": {"errors", "sources", "tables"},
    "late_tuples": {"errors", "watermark"},
    "elastic": {"errors", "control", "telemetry", "page", "drawing"},
    "runtime.local": {
        "control",
        "errors",
        "query",
        "compile",
        "operators",
        "gate",
        "sources",
        "state",
        "progress",
        "late_tuples",
        "results",
        "tables",
        "watermark",
    },
    "runtime.spark": {
        "control",
        "errors",
        "query",
        "compile",
        "state",
        "operators",
        "sources",
        "java",
        "progress",
        "late_tuples",
        "results",
        "tables",
        "watermark",
    },
}
WIRING = {
    "",
    "autoscale",
    "carry_over",
    "cli",
    "demo",
    "run",
    "run_micro",
    "run_reference",
    "start",
    "steer",
    "stream",
    "testing",
}
OUTSIDE = {"pyspark": {"runtime.spark"}, "pandas": {"runtime.spark"}, "numba": {"operators"}}


def part_of(module: str) -> str:
    """The part a module belongs to: 'query' for tidegate.query.nodes, 'runtime.spark' for what runs on Spark."""
    names = module.removeprefix("tidegate").strip(".").split(".")
    return ".".join(names[:2]) if names[0] == "runtime" else names[0]


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        names = path.relative_to(ROOT.parent).with_suffix("").parts
        found.append((".".join(names).removesuffix(".__init__"), path))
    return found


def imports(path: Path) -> set[str]:
    """What a file imports, also inside functions; not what only type checkers see."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "tidegate":
            found.update(f"tidegate.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize(("module", "path"), modules())
def test_an_import_points_down(module: str, path: Path) -> None:
    part = part_of(module)
    if part == "runtime":
        return
    assert part in ALLOWED or part in WIRING, f"{module}: say in ALLOWED or WIRING what '{part}' may import"
    for imported in imports(path):
        if imported.startswith("tidegate") and part in ALLOWED:
            assert part_of(imported) in ALLOWED[part] | {part}, f"{module} must not import {imported}"
        top = imported.split(".")[0]
        if top in OUTSIDE:
            assert part in OUTSIDE[top], f"{module} must not import {top}"


def test_importing_tidegate_loads_neither_spark_nor_numba() -> None:
    heavy = (
        "[name for name in ('pyspark', 'numba', 'pandas', 'typer', 'rich', 'prometheus_client') if name in sys.modules]"
    )
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, tidegate; print({heavy})"], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"
