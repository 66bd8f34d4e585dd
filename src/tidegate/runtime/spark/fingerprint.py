"""What a checkpoint must agree on with the query that resumes it, in words that an error can show."""

from __future__ import annotations

from tidegate.errors import CheckpointError
from tidegate.query.aggregates import Monoid, Ranked
from tidegate.query.nodes import WindowAggregate


def fingerprint(node: WindowAggregate, cells: int) -> str:
    """The parts of a stateful step that its state depends on. Stateless steps may change between runs."""
    keys = ", ".join(f"{field.name}: {field.type}" for field in node.key_schema)
    made = []
    for name, aggregate in node.aggregates:
        types = [f"{column}: {node.input.schema.field(column).type}" for column in aggregate.columns()]
        if isinstance(aggregate, Monoid):
            types += [
                f"{aggregate.name}{list(zip(aggregate.state.names, map(str, aggregate.state.types), strict=True))}"
            ]
            made.append(f"{name}=monoid({'; '.join(types)})")
        elif isinstance(aggregate, Ranked):
            columns = ", ".join(f"{field.name}: {field.type}" for field in node.input.schema)
            made.append(f"{name}={aggregate} of tuples ({columns})")
        else:
            made.append(f"{name}={aggregate}" + (f" ({'; '.join(types)})" if types else ""))
    return f"window {node.window} | keys {node.keys} ({keys}) | {' | '.join(made)} | cells {cells}"


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
