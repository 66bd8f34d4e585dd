"""Queries and plans as pictures: every step of a query as it was written, or what a runtime executes."""

from __future__ import annotations

from tidegate.compile.plan import OUTPUT, Plan
from tidegate.compile.show_query import GLUE, describe
from tidegate.drawing import Drawing, DrawnArrow, DrawnBox
from tidegate.query.names import unique_names
from tidegate.query.nodes import Node, Source, is_stateful, walk

RESULTS = ""
"""What the box of the results is called; no step is called so."""


def draw_query(query: Node) -> Drawing:
    """The steps of a query from top to bottom, with what each does."""
    query = unique_names(query)
    boxes = []
    for node in walk(query):
        kind, text = _described(node)
        shape = "source" if isinstance(node, Source) else "stateful" if is_stateful(node) else ""
        boxes.append(DrawnBox(node.name, f"{node.name}: {kind}", text, shape))
    arrows = tuple(DrawnArrow(read.name, node.name) for node in walk(query) for read in node.inputs)
    return Drawing(tuple(boxes), arrows, down=True)


def draw_plan(plan: Plan) -> Drawing:
    """What is executed, from left to right: sources, subqueries with their operators, and one box for all results."""
    boxes = [DrawnBox(source_box(source.name), source.name, _described(source)[1], "source") for source in plan.sources]
    for subquery in plan.subqueries:
        kind, text = ("merge", "") if subquery.operator is None else _described(subquery.operator)
        boxes.append(DrawnBox(subquery.name, subquery.name, f"{kind} {text}", "stateful"))
    boxes.append(DrawnBox(RESULTS, "results", ", ".join(plan.names), "output"))
    arrows: dict[tuple[str, str], list[str]] = {}
    for feed in plan.feeds:
        origin = source_box(feed.origin.name) if isinstance(feed.origin, Source) else plan.subqueries[feed.origin].name
        target = RESULTS if feed.target == OUTPUT else plan.subqueries[feed.target].name
        steps = arrows.setdefault((origin, target), [])
        steps += [f"{step.node.name}: {' '.join(_described(step.node))}" for step in feed.steps]
    return Drawing(tuple(boxes), tuple(DrawnArrow(*ends, "\n".join(steps)) for ends, steps in arrows.items()))


def _described(node: Node) -> tuple[str, str]:
    kind, text = describe(node)
    return kind, text.replace(GLUE, " ")


def source_box(name: str) -> str:
    """What the box of a source is called; a subquery without an operator may have the name of its source."""
    return f"source {name}"
