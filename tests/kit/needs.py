"""Which controller needs which observations: the table of the guide, to which the tests hold the controllers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """The fields of an observation without which a controller holds, and those it makes use of where they are there.

    Where it can do with one of several groups of fields, `either` has these groups, the preferred one last.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    either: tuple[tuple[str, ...], ...] = ()


NEEDS: dict[str, Needs] = {
    "steady": Needs(
        ("processed", "busy"),
        ("backlog", "congestion", "mapping", "shard_loads", "pooled", "hot_key", "window_inputs"),
        (("offered",), ("demand",)),
    ),
    "thresholds": Needs(
        ("busy",), ("processed", "demand", "offered", "backlog", "mapping", "shard_loads", "pooled", "hot_key")
    ),
    "saso": Needs(("congestion", "processed"), ("backlog",)),
    "queueing": Needs(("network", "network_arrival_rate"), ("demand", "backlog")),
    "predictive": Needs(("busy",), ("backlog",), (("offered", "processed"), ("window_inputs", "comparisons"))),
    "ds2": Needs(("demand", "processed", "busy"), ("backlog",)),
    "fixed": Needs(),
}


def needs_table() -> str:
    """The table in Markdown, as the guide shows it."""
    lines = ["| controller | needs | makes use of |", "|---|---|---|"]
    for name, needs in NEEDS.items():
        groups = " or ".join(" and ".join(f"`{field}`" for field in group) for group in needs.either)
        required = ", ".join([*(f"`{field}`" for field in needs.required), *([f"either {groups}"] if groups else [])])
        lines.append(f"| `{name}` | {required or '–'} | {', '.join(f'`{field}`' for field in needs.optional) or '–'} |")
    return "\n".join(lines)
