"""An O+ as text: its keys, its windows, the user's functions and what they keep and return."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidegate.query.forms import TupleForm
from tidegate.query.nodes import KeyedApply


def show_keyed_apply(node: KeyedApply) -> str:
    """One line for an O+; functions that are not given are the defaults of STRETCH's table 1."""
    form = node.form
    keys = " and ".join(dict.fromkeys(map(str, node.keys)))
    window = (
        "unbounded" if node.window is None else f"window {node.window}" + (", one that slides" if node.single else "")
    )
    functions = [("update", form.update), ("output", form.output), ("slide", form.slide)]
    shown = [f"{role} = {getattr(function, '__name__', 'function')}" for role, function in functions if function]
    states = dict.fromkeys(map(_columns, form.states if isinstance(form, TupleForm) else (form.state,)))
    how = "" if isinstance(form, TupleForm) else " on columns"
    kept = " and ".join(state or "nothing" for state in states)
    return f"by {keys}, {window}: {', '.join(shown)}{how}; keeps {kept} -> {_columns(form.returns) or 'nothing'}"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(_column(field) for field in schema)


def _column(field: pa.Field) -> str:
    if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
        return f"{field.name}: list of ({_names(field.type.value_type)})"
    return f"{field.name}: {field.type}"


def _names(fields: Iterable[pa.Field]) -> str:
    return ", ".join(field.name for field in fields)
