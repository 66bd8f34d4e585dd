"""Building an as-of join: its keys, what its results are called, and the checks that name the step."""

from __future__ import annotations

from typing import Any, Literal

import narwhals as nw
import pyarrow as pa

from tidegate.errors import QueryError
from tidegate.query.event_time import LONGEST_US, Duration, format_duration, parse_duration
from tidegate.query.joins import On, join_keys, keys_of_sides
from tidegate.query.late import refuse_refined
from tidegate.query.nodes import AsOf, JoinColumn, Node
from tidegate.query.predicates.tree import LEFT, RIGHT
from tidegate.query.schema import check_unique, normal_schema

How = Literal["inner", "left"]
SUFFIX = "_right"


def as_of_node(
    step: str,
    left: Node,
    right: Node,
    on: On | None,
    tolerance: Duration | None,
    how: How,
    suffix: str,
    deleted: nw.Expr | None = None,
    hidden: str | None = None,
) -> AsOf:
    """A checked as-of join; ``deleted`` says of a right tuple that there is none from its time on.

    The column ``hidden`` of the right side is not in the result.
    """
    refuse_refined(step, left, right)
    kinds = left.schema.field(left.time).type, right.schema.field(right.time).type
    if kinds[0] != kinds[1]:
        raise QueryError(
            f"step '{step}': the event times have different types, {kinds[0]} on the left and {kinds[1]} on the right; cast "
            "one"
        )
    check_how(step, how)
    pairs = join_keys(step, on, left.schema, right.schema)
    shown = pa.schema([each for each in right.schema if each.name != hidden])
    columns = matched_columns(step, left.schema, shown, pairs, suffix)
    sides = (left.schema, right.schema)
    schema = normal_schema(
        pa.schema([(column.name, sides[column.side].field(column.column).type) for column in columns]), step
    )
    keys, key_schema = keys_of_sides(step, left, right, pairs)
    reach = None if tolerance is None else _tolerance(step, tolerance)
    return AsOf(step, (left, right), schema, left.time, keys, key_schema, reach, how == "left", columns, deleted)


def check_how(step: str, how: Any) -> None:
    """Refuse what is no way to treat tuples without a partner."""
    if how not in ("inner", "left"):
        raise QueryError(
            f"step '{step}': how is 'inner', which drops tuples without a match, or 'left', which keeps them with nulls; "
            f"got {how!r}"
        )


def matched_columns(
    step: str, left: pa.Schema, right: pa.Schema, pairs: tuple[tuple[str, str], ...], suffix: Any
) -> tuple[JoinColumn, ...]:
    """What the columns of a result are called: those of the left tuple, then those of the right one.

    A key of one name on both sides is there once. Of other columns of one name the right one gets the suffix.
    """
    if not isinstance(suffix, str) or not suffix:
        raise QueryError(f"step '{step}': suffix is a text, as in '{SUFFIX}'; got {suffix!r}")
    shared = {name for name, other in pairs if name == other}
    columns = [JoinColumn(field.name, LEFT, field.name, field.type) for field in left]
    for name in right.names:
        if name not in shared:
            called = name + suffix if name in left.names else name
            columns.append(JoinColumn(called, RIGHT, name, right.field(name).type))
    check_unique((column.name for column in columns), step)
    return tuple(columns)


def _tolerance(step: str, given: Duration) -> int:
    tolerance = parse_duration(given, f"step '{step}': tolerance")
    if tolerance > LONGEST_US:
        raise QueryError(
            f"step '{step}': tolerance ({format_duration(tolerance)}) is at most {format_duration(LONGEST_US)}; leave it "
            "out for any distance"
        )
    return tolerance
