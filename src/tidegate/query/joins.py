"""Building a join: its keys, what its results are called, and the checks that name the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import pyarrow as pa

from tidegate.errors import QueryError, choices
from tidegate.query.count_windows import checked_number
from tidegate.query.event_time import Duration, parse_duration
from tidegate.query.keys import Columns, Keys, OneForAll
from tidegate.query.late import refuse_refined
from tidegate.query.nodes import CountJoin, Join, JoinColumn, JoinHow, Node, schema_of_pairs
from tidegate.query.predicates.predicate import Predicate, predicate_of
from tidegate.query.predicates.tree import LEFT, RIGHT, Column, kind_of
from tidegate.query.schema import check_unique, column_type, common_type, is_integer, is_scalar, normal_schema
from tidegate.query.windows import Window

On = str | Sequence[str | tuple[str, str]]


@dataclass(frozen=True, slots=True)
class LastTuples:
    """A tuple meets the last so many of the other side."""

    size: int


Extent: TypeAlias = int | Window | LastTuples
SUFFIXES = ("_left", "_right")


def join_nodes(
    step: str,
    left: Node,
    right: Node,
    on: On | None,
    extent: Extent,
    where: Any,
    suffixes: tuple[str, str],
    bands: bool,
    how: JoinHow,
) -> Join | CountJoin:
    """A checked join; ``extent`` says which tuples may meet, see `join_extent`."""
    refuse_refined(step, left, right)
    if how not in get_args(JoinHow):
        raise QueryError(f"step '{step}': how={how!r} is no kind of join; choose one of {choices(get_args(JoinHow))}")
    if left.schema.field(left.time).type != right.schema.field(right.time).type:
        raise QueryError(
            f"step '{step}': the event times have different types, {left.schema.field(left.time).type} on the left and "
            f"{right.schema.field(right.time).type} on the right; cast one"
        )
    pairs = join_keys(step, on, left.schema, right.schema)
    columns = _columns(left, right, pairs, suffixes, step, how)
    predicate = None if where is None else _predicate(step, left, right, columns, where)
    moment = left.schema.field(left.time).type
    fields = [(left.time, moment)]
    if isinstance(extent, Window):
        fields += [("window_start", moment), ("window_end", moment)]
    sides = (LEFT,) if how in ("semi", "anti") else (LEFT, RIGHT)
    fields += [(column.name, column.type) for column in columns if column.side in sides]
    check_unique((name for name, _ in fields), step)
    schema = normal_schema(pa.schema(fields), step)
    made = step, (left, right), schema, left.time
    if isinstance(extent, LastTuples):
        if how != "inner":
            raise QueryError(
                f"step '{step}': how={how!r} goes with within=... or window=...; over the last tuples of the other side "
                "there is how='inner' alone, as a tuple may meet another that is yet to come at any time"
            )
        return CountJoin(*made, *keys_of_sides(step, left, right, pairs), extent.size, predicate, columns)
    within_us, window = (None, extent) if isinstance(extent, Window) else (extent, None)
    return Join(*made, pairs, within_us, window, predicate, columns, bands, how=how)


def _predicate(step: str, left: Node, right: Node, columns: Sequence[JoinColumn], where: Any) -> Predicate:
    named = {
        column.name: Column(column.side, column.column, kind)
        for column in columns
        if (kind := kind_of(column.type)) is not None
    }
    return predicate_of(where, left.schema, right.schema, schema_of_pairs(columns), named, step)


def keys_of_sides(
    step: str, left: Node, right: Node, pairs: Sequence[tuple[str, str]]
) -> tuple[tuple[Keys, Keys], pa.Schema]:
    """The keys of both sides, and their columns as they are compared; without pairs of columns one key for all."""
    if not pairs:
        return (OneForAll(), OneForAll()), OneForAll().returns(left.schema, step)
    kinds = [common_type(left.schema.field(name).type, right.schema.field(other).type) for name, other in pairs]
    keys = Columns(tuple(name for name, _ in pairs)), Columns(tuple(name for _, name in pairs))
    return keys, pa.schema([(f"key{place}", kind) for place, kind in enumerate(kinds)])


def join_extent(
    step: str, within: Duration | None, window: Duration | None, every: Duration | None, last: int | None
) -> Extent:
    """Which tuples may meet: those within a distance in microseconds, in windows they share, or the last so many."""
    if sum(each is not None for each in (within, window, last)) != 1:
        raise QueryError(
            f"step '{step}': say which tuples may meet: within='30 seconds' of each other; or, in windows they share, "
            "window='1 minute', every='30 seconds'; or each with the last=100 of the other side before it"
        )
    if every is not None and window is None:
        given = "within" if within is not None else "last"
        raise QueryError(f"step '{step}': every={every!r} goes with window=..., not with {given}=...")
    if window is not None:
        return Window.parse(step, window, every)
    if last is not None:
        return LastTuples(checked_number(step, "last", "a join", last, "window='1 minute'"))
    return parse_duration(within if within is not None else 0, f"step '{step}': within")


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
