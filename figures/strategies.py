"""StreamCloud's three ways to spread a query over instances, by its cost model (§III.A, §XI): channels and hops."""

from __future__ import annotations

from pathlib import Path

from figures.report import Page, Table, write_page
from tidegate.compile.cost import QueryShape, cost_of

INSTANCES, RATE = 30, 10_000.0
SHAPE = QueryShape(operators=6, stateful=3, prefix=True)
"""Figure 13 is not in the text, which says that three operators of its query are stateful; three stateless ones are ours."""

SAID = {
    "query-cloud": "roughly 3·30² channels; distribution takes about 40 % of the CPU, and the throughput is the lowest",
    "operator-cloud": "distribution takes more than 30 % of the CPU, work 35 %, the rest is idle",
    "operator-set": "distribution takes roughly 10 % of the CPU; 2.5 to 5 times the throughput of the others",
}


def draw(out: Path) -> list[Path]:
    """Work out the costs and write the page."""
    rows = [
        (
            each.name,
            SAID[each.name],
            f"{each.channels:,.0f} channels, every instance to {each.fan_out:g} others; a tuple is shipped {each.hops} "
            f"times (the paper's own formula: {each.paper_channels:,.0f} channels)",
        )
        for each in cost_of(SHAPE, INSTANCES, RATE)
    ]
    page = Page(
        "StreamCloud, §III.A: what three ways to spread a query cost",
        f"A query of {SHAPE.operators} operators, {SHAPE.stateful} of them stateful, on {INSTANCES} instances. Worked "
        "out by the cost model of §XI, not run.",
        (),
        [Table("Ours beside the paper's text", ("strategy", "the paper's text", "ours"), rows)],
        (
            "Channels are those that instances keep open to each other; query-cloud opens them anew for each stateful "
            "operator, which the paper counts and the model does not.",
        ),
    )
    return [write_page(page, out / "strategies.md")]
