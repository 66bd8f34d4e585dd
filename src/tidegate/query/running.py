"""The fluent face of `running`: checks the user's functions, state and results, and builds the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tidegate.errors import QueryError
from tidegate.query.event_time import Duration
from tidegate.query.forms import Tuple
from tidegate.query.late import refuse_refined
from tidegate.query.names import step_name
from tidegate.query.nodes import Running
from tidegate.query.running_form import RunningForm
from tidegate.query.schema import as_schema, check_unique, normal_schema
from tidegate.query.windows import Window

if TYPE_CHECKING:
    from tidegate.query.keyed import Keyed

Declared: TypeAlias = pa.Schema | Mapping[str, pa.DataType]


def running_node(
    parts: Sequence[Keyed[Any]],
    create: Callable[[Tuple], Any],
    add: Callable[[Any, Tuple], Any],
    merge: Callable[[Any, Any], Any],
    output: Callable[[Any], Any],
    every: Duration,
    state: Declared,
    returns: Declared,
    name: str | None,
) -> Running:
    """A checked node over streams with keys."""
    stream, key_schema = parts[0].stream, parts[0].key_schema
    inputs = tuple(part.stream.node for part in parts)
    step = step_name("running", name, *inputs)
    refuse_refined(step, *inputs)
    for role, function in (("create", create), ("add", add), ("merge", merge), ("output", output)):
        if not callable(function):
            raise QueryError(f"step '{step}': {role} is a function; got {function!r}")
    period = Window.parse(step, every, None)
    form = RunningForm(
        create,
        add,
        merge,
        output,
        normal_schema(as_schema(state, f"step '{step}': state"), step),
        normal_schema(as_schema(returns, f"step '{step}': returns"), step),
    )
    fields = [(stream.time, stream.schema.field(stream.time).type)]
    fields += [(field.name, field.type) for schema in (key_schema, form.returns) for field in schema]
    check_unique((field for field, _ in fields), step)
    schema = normal_schema(pa.schema(fields), step)
    keys = tuple(part.keys for part in parts)
    return Running(step, inputs, schema, stream.time, keys, key_schema, period, form)
