"""The columns of what is aggregated per key and window; checks the aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.errors import QueryError
from tidegate.query.aggregates import AGGREGATES, Aggregate
from tidegate.query.keys import OneForAll
from tidegate.query.late import refuse_refined
from tidegate.query.schema import check_unique, normal_schema

if TYPE_CHECKING:
    from tidegate.query.keyed import Keyed


def windowed_columns(
    step: str, keyed: Keyed[Any], aggregates: Mapping[str, Aggregate], refined: bool = False
) -> pa.Schema:
    """The event time, the keys, the window and one column per aggregate; with ``refined``, the revision of the result."""
    stream = keyed.stream
    if not aggregates:
        raise QueryError(f"step '{step}': name at least one aggregate, as in calls=tg.count(); there are {AGGREGATES}")
    refuse_refined(step, stream.node)
    kinds = []
    for column, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise QueryError(f"step '{step}': {column}={aggregate!r} is no aggregate; there are {AGGREGATES}")
        kinds.append((column, aggregate.returns(stream.schema, f"{step}.{column}")))
    moment = stream.schema.field(stream.time).type
    key_columns = () if isinstance(keyed.keys, OneForAll) else keyed.key_schema
    fields = [(stream.time, moment), *((field.name, field.type) for field in key_columns)]
    fields += [("window_start", moment), ("window_end", moment), *kinds]
    if refined:
        fields.append(("revision", pa.int64()))
    check_unique((field for field, _ in fields), step)
    return normal_schema(pa.schema(fields), step)
