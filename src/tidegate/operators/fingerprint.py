"""What the state of a stateful step depends on, in words: the state of another query is refused with both versions."""

from __future__ import annotations

import pyarrow as pa

from tidegate.errors import CheckpointError, InternalError
from tidegate.query.aggregates import Monoid, Ranked
from tidegate.query.event_time import format_duration
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import (
    JUDGED_SIDES,
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Join,
    KeyedApply,
    Running,
    SessionAggregate,
    Stateful,
    WindowAggregate,
)
from tidegate.query.partial_aggregates import Partial
from tidegate.query.predicates.tree import RIGHT
from tidegate.query.schema import show_columns
from tidegate.state.pair_grid import PairGrid

GRID = "on a grid"
"""What a fingerprint says of the keys of a join whose cells get tuples by what they hold."""


def fingerprint(node: Stateful) -> str:
    """Describes the parts of a stateful step that its state depends on, in words that an error can show.

    Stateless steps may change between runs, and so may functions, as long as the state they declare is the same.
    """
    window = f"window {node.window}" if node.window is not None else "unbounded window"
    match node:
        case WindowAggregate() | SessionAggregate() | CountAggregate():
            keyed = node.keys[0] if isinstance(node, CountAggregate) else node.keys
            if isinstance(node, SessionAggregate):
                window = f"sessions {node.session}"
            elif isinstance(node, CountAggregate):
                window = f"windows of {node.counted}, tuples ({show_columns(node.input.schema)})"
            parts = [window, f"keys {keyed} ({show_columns(node.key_schema)})"]
            for name, aggregate in node.aggregates:
                tuples = node.input.schema
                aggregate = aggregate.whole if isinstance(aggregate, Partial) else aggregate
                read = tuples if isinstance(aggregate, Ranked) else pa.schema(map(tuples.field, aggregate.columns()))
                state = f" in ({show_columns(aggregate.state)})" if isinstance(aggregate, Monoid) else ""
                parts.append(f"{name}={aggregate} of ({show_columns(read)}){state}")
        case Dedup():
            parts = [
                f"dedup by {node.keys[0]} within {format_duration(node.within_us)}, rows by key",
                f"tuples ({show_columns(node.schema)})",
            ]
        case CountJoin():
            parts = [
                f"join over the last {node.size:,} tuples",
                *(
                    f"keys {keys} of ({show_columns(below.schema)})"
                    for keys, below in zip(node.keys, node.inputs, strict=True)
                ),
            ]
        case AsOf():
            of_right = [made.column for made in node.columns if made.side == RIGHT]
            parts = [
                "as-of join" + ("" if node.tolerance_us is None else f" within {format_duration(node.tolerance_us)}"),
                *(
                    f"keys {keys} of ({show_columns(below.schema)})"
                    for keys, below in zip(node.keys, node.inputs, strict=True)
                ),
                f"keeps {', '.join(of_right)}",
            ]
        case Running(form=form):
            parts = [
                f"running every {format_duration(node.period.every)}",
                *(
                    f"keys {keys} of ({show_columns(below.schema)})"
                    for keys, below in zip(node.keys, node.inputs, strict=True)
                ),
                f"key ({show_columns(node.key_schema)})",
                f"a state ({show_columns(form.state)})",
            ]
        case KeyedApply(form=form):
            states = form.states if isinstance(form, TupleForm) else (form.state,)
            kept = "per input" if isinstance(form, TupleForm) else "for all inputs"
            parts = [
                f"{window}, {'one that slides' if node.single else 'one for each place'}",
                *(
                    f"keys {keys} of ({show_columns(below.schema)})"
                    for keys, below in zip(node.keys, node.inputs, strict=True)
                ),
                f"key ({show_columns(node.key_schema)})",
                f"a state {kept}: {'; '.join(f'({show_columns(state)})' for state in states)}",
            ]
            if isinstance(form, TupleForm) and form.stores:
                parts.append(f"stores: {'; '.join(f'{name} {of}' for name, of in form.stores.items())}")
        case BagAggregate():
            # State is tuples here too.
            parts = [f"bags, {window}"]
            parts += [
                f"keys {keyed} of ({show_columns(below.schema)})"
                for keyed, below in zip(node.keys, node.inputs, strict=True)
            ]
        case Join():
            # State is tuples, and where they are depends on keys alone.
            extent = window if node.window is not None else f"within {node.within_us} µs"
            keys = ", ".join(f"{name} = {other}" for name, other in node.on) or "none"
            keys += f", {GRID}" if node.is_on_grid else ""
            left, right = (show_columns(side.schema) for side in node.inputs)
            kind = "join" if node.how == "inner" else f"{node.how} join"
            parts = [f"{kind} {extent}", f"keys {keys}", f"left ({left})", f"right ({right})"]
        case _:
            raise InternalError(f"no fingerprint is known for {type(node).__name__}")
    return " | ".join(parts)


def pair_grid_in(fingerprint: str) -> PairGrid | None:
    """The grid of the join whose state a fingerprint is of; None if its tuples are routed by keys."""
    if GRID not in fingerprint:
        return None
    return PairGrid(JUDGED_SIDES[fingerprint.partition("join ")[0].strip() or "inner"])


def check_fingerprint(found: str, wanted: str, where: str) -> None:
    """Refuses a checkpoint whose state was written by another query."""
    if found == wanted:
        return
    old, new = found.split(" | "), wanted.split(" | ")
    pairs = [(a, b) for a, b in zip(old, new, strict=False) if a != b]
    if len(old) != len(new):
        pairs.append((found, wanted))
    differences = [f"it holds «{a}», the query wants «{b}»" for a, b in pairs]
    raise CheckpointError(
        f"{where} was written by another query and cannot serve this one: {'; '.join(differences)}. "
        "Start from a new checkpoint, or restore the query"
    )
