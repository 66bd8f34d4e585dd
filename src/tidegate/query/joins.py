"""Building a join: its keys, what its results are called, and the checks that name the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import pyarrow as pa

from tidegate.errors import QueryError, choices
from tidegate.query.event_time import Duration, parse_duration
from tidegate.query.late import refuse_refined
from tidegate.query.nodes import Join, JoinColumn, JoinHow, Node
from tidegate.query.predicates.predicate import predicate_of
from tidegate.query.predicates.tree import LEFT, RIGHT, Column, kind_of
from tidegate.query.schema import check_unique, column_type, common_type, is_integer, is_scalar, normal_schema
from tidegate.query.windows import Window

On = str | Sequence[str | tuple[str, str]]
SUFFIXES = ("_left", "_right")


def join_nodes(
    step: str,
    left: Node,
    right: Node,
    on: On | None,
    extent: tuple[int | None, Window | None],
    where: Any,
    suffixes: tuple[str, str],
    bands: bool,
    how: JoinHow,
) -> Join:
    """A checked join; ``extent`` is how far apart in time its tuples may be, see `join_extent`."""
    refuse_refined(step, left, right)
    if how not in get_args(JoinHow):
        raise QueryError(f"step '{step}': how={how!r} is no kind of join; choose one of {choices(get_args(JoinHow))}")
    if left.schema.field(left.time).type != right.schema.field(right.time).type:
        raise QueryError(
            f"step '{step}': the event times have different types, {left.schema.field(left.time).type} on the left and "
            f"{right.schema.field(right.time).type} on the right; cast one"
        )
    within_us, window = extent
    keys = join_keys(step, on, left.schema, right.schema)
    columns = _columns(left, right, keys, suffixes, step, how)
    pair = pa.schema([(column.name, column.type) for column in columns])
    predicate = None
    if where is not None:
        named = {
            column.name: Column(column.side, column.column, kind)
            for column in columns
            if (kind := kind_of(column.type)) is not None
        }
        predicate = predicate_of(where, left.schema, right.schema, pair, named, step)
    moment = left.schema.field(left.time).type
    fields = [(left.time, moment)]
    if window is not None:
        fields += [("window_start", moment), ("window_end", moment)]
    sides = (LEFT,) if how in ("semi", "anti") else (LEFT, RIGHT)
    fields += [(column.name, column.type) for column in columns if column.side in sides]
    check_unique((name for name, _ in fields), step)
    schema = normal_schema(pa.schema(fields), step)
    made = step, (left, right), schema, left.time, keys, within_us, window, predicate, columns, bands
    return Join(*made, how=how)


def join_extent(
    step: str, within: Duration | None, window: Duration | None, every: Duration | None
) -> tuple[int | None, Window | None]:
    """JoinHow far apart in time the tuples of a pair may be: a distance in microseconds, or windows they share."""
    if (within is None) == (window is None):
        raise QueryError(
            f"step '{step}': say how far apart in time a pair may be, either within='30 seconds' or, for pairs that "
            "share windows, window='1 minute', every='30 seconds'"
        )
    if window is None:
        if every is not None:
            raise QueryError(f"step '{step}': every={every!r} goes with window=..., not with within=...")
        return parse_duration(within if within is not None else 0, f"step '{step}': within"), None
    return None, Window.parse(step, window, every)


def join_keys(step: str, on: On | None, left: pa.Schema, right: pa.Schema) -> tuple[tuple[str, str], ...]:
    """The pairs of columns that must be equal."""
    given = () if on is None else (on,) if isinstance(on, str) else tuple(on)
    if on is not None and not given:
        raise QueryError(f"step '{step}': on=[] names no column; leave it out to join by the predicate alone")
    keys = []
    for key in given:
        pair = (key, key) if isinstance(key, str) else key
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise QueryError(
                f"step '{step}': on takes a column, or a list of columns and of pairs of them, as in "
                f"on=['city', ('src', 'caller')]; got {key!r}"
            )
        kinds = column_type(left, pair[0], f"{step}, left"), column_type(right, pair[1], f"{step}, right")
        if not _comparable(*kinds):
            raise QueryError(
                f"step '{step}': '{pair[0]}' ({kinds[0]}) on the left and '{pair[1]}' ({kinds[1]}) on the right cannot be "
                "compared as keys; cast one so that both are integers, floats, or of one type that is no list, struct or map"
            )
        keys.append((pair[0], pair[1]))
    return tuple(keys)


def _comparable(left: pa.DataType, right: pa.DataType) -> bool:
    if not (is_scalar(left) and is_scalar(right)):
        return False
    integers, floats = (
        is_integer(left) and is_integer(right),
        pa.types.is_floating(left) and pa.types.is_floating(right),
    )
    return left == right or integers or floats


def _columns(
    left: Node, right: Node, keys: tuple[tuple[str, str], ...], suffixes: tuple[str, str], step: str, how: JoinHow
) -> tuple[JoinColumn, ...]:
    """What a pair's columns are called.

    Each side's own event time gets that side's suffix. A key of one name on both sides is there once, as the left tuple
    has it, or the right one where there is no left. Of other columns of one name the right one gets its suffix.
    """
    if not (isinstance(suffixes, tuple) and len(suffixes) == 2 and all(isinstance(each, str) for each in suffixes)):
        raise QueryError(f"step '{step}': suffixes are two texts, as in {SUFFIXES}; got {suffixes!r}")
    shared = {name for name, other in keys if name == other}
    own, others = ({field.name: field.type for field in side.schema} for side in (left, right))
    columns = [JoinColumn(left.time + suffixes[0], LEFT, left.time, own.pop(left.time))]
    for name, kind in own.items():
        either = name in shared and how in ("right", "full")
        columns.append(JoinColumn(name, LEFT, name, common_type(kind, others[name]) if either else kind, either))
    taken = {left.time, *(column.name for column in columns)}
    columns.append(JoinColumn(right.time + suffixes[1], RIGHT, right.time, others.pop(right.time)))
    for name, kind in others.items():
        if name not in shared:
            columns.append(JoinColumn(name + suffixes[1] if name in taken else name, RIGHT, name, kind))
    names = [column.name for column in columns]
    twice = {name for name in [left.time, *names] if [left.time, *names].count(name) > 1}
    if twice:
        raise QueryError(
            f"step '{step}': the result would have two columns called {choices(sorted(twice))}; choose other suffixes than "
            f"{suffixes} or rename a column before the join"
        )
    return tuple(columns)
