"""What a checkpoint must agree on with the query that resumes it, in words that an error can show."""

from __future__ import annotations

from tidegate.errors import CheckpointError, InternalError
from tidegate.query.aggregates import Monoid, Ranked
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import Join, KeyedApply, Stateful, WindowAggregate
from tidegate.query.schema import show_columns


def fingerprint(node: Stateful, cells: int) -> str:
    """The parts of a stateful step that its state depends on. Stateless steps may change between runs."""
    match node:
        case WindowAggregate():
            parts = _aggregate(node)
        case KeyedApply():
            parts = _keyed_apply(node)
        case Join():
            parts = _join(node)
        case _:
            raise InternalError(f"no fingerprint is known for {type(node).__name__}")
    return f"{parts} | cells {cells}"


def _aggregate(node: WindowAggregate) -> str:
    keys = show_columns(node.key_schema)
    made = []
    for name, aggregate in node.aggregates:
        types = [f"{column}: {node.input.schema.field(column).type}" for column in aggregate.columns()]
        if isinstance(aggregate, Monoid):
            types += [
                f"{aggregate.name}{list(zip(aggregate.state.names, map(str, aggregate.state.types), strict=True))}"
            ]
            made.append(f"{name}=monoid({'; '.join(types)})")
        elif isinstance(aggregate, Ranked):
            made.append(f"{name}={aggregate!r} of tuples ({show_columns(node.input.schema)})")
        else:
            made.append(f"{name}={aggregate!r}" + (f" ({'; '.join(types)})" if types else ""))
    return f"window {node.window} | keys {node.keys} ({keys}) | {' | '.join(made)}"


def _keyed_apply(node: KeyedApply) -> str:
    """The functions are not in it: they may be mended between runs, as long as the state they declare is the same."""
    form = node.form
    states = form.states if isinstance(form, TupleForm) else (form.state,)
    kept = "a state per input" if isinstance(form, TupleForm) else "a state for all inputs"
    window = f"window {node.window}" if node.window is not None else "unbounded window"
    return " | ".join(
        [
            f"{window}, {'one that slides' if node.single else 'one for each place'}",
            *(
                f"keys {keys} of ({show_columns(source.schema)})"
                for keys, source in zip(node.keys, node.inputs, strict=True)
            ),
            f"key ({show_columns(node.key_schema)})",
            f"{kept}: {'; '.join(f'({show_columns(state)})' for state in states)}",
        ]
    )


def _join(node: Join) -> str:
    """The predicate is not in it: state is tuples, and where they are depends on keys alone."""
    extent = f"window {node.window}" if node.window is not None else f"within {node.within_us} µs"
    keys = ", ".join(f"{name} = {other}" for name, other in node.on) or "none, on a grid"
    left, right = (show_columns(side.schema) for side in node.inputs)
    return f"join {extent} | keys {keys} | left ({left}) | right ({right})"


def check(found: str, wanted: str, where: str) -> None:
    """Refuse a checkpoint whose state was made by another query."""
    if found == wanted:
        return
    pairs = zip(found.split(" | "), wanted.split(" | "), strict=False)
    differences = [f"it holds «{old}», the query wants «{new}»" for old, new in pairs if old != new]
    if len(found.split(" | ")) != len(wanted.split(" | ")):
        differences.append(f"it holds «{found}», the query wants «{wanted}»")
    raise CheckpointError(
        f"{where} was written by another query and cannot serve this one: {'; '.join(differences)}. "
        "Start from a new checkpoint, or restore the query (for cells: spark.sql.shuffle.partitions)"
    )
