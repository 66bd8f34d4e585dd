"""`tg.operator`: a plain Python class as a keyed operator (Gedik et al., appendix A.2, case 2).

The class keeps dicts that are indexed by one attribute of the tuple. Its source is analysed when the query is built: the
attribute is the key, and what the dicts hold for one key is the state and the stores of that key's window. When a tuple
comes, the method runs on an object whose dicts are views of that state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from tidegate.errors import QueryError
from tidegate.query.advice import advised
from tidegate.query.classes.attributes import Attributes, DictAttribute, attributes_of
from tidegate.query.classes.source import PROCESS, ClassSource
from tidegate.query.classes.uses import key_of
from tidegate.query.classes.views import DictView, StoreView
from tidegate.query.forms import KeyedWindow, Tuple, Updated, updated
from tidegate.query.schema import column_type
from tidegate.query.stores import StoreType

Returns: TypeAlias = pa.Schema | Mapping[str, pa.DataType]


@dataclass(frozen=True, eq=False)
class ClassOperator:
    """A class that was found to be keyed: the columns of its key, its attributes, and the columns of its results."""

    given: type
    keys: tuple[str, ...]
    attributes: Attributes
    returns: Returns

    @property
    def dicts(self) -> tuple[DictAttribute, ...]:
        """The dicts of the class."""
        return tuple(self.attributes.dicts.values())

    @property
    def state(self) -> dict[str, pa.DataType]:
        """What a key keeps: a value or list, null if there is none, and of a dict or set whether there is one."""
        return {one.name: pa.bool_() if isinstance(one.type, StoreType) else one.type for one in self.dicts}

    @property
    def stores(self) -> dict[str, StoreType]:
        """The dicts and sets that a key keeps."""
        return {one.name: one.type for one in self.dicts if isinstance(one.type, StoreType)}

    def check_keys(self, step: str, schema: pa.Schema) -> None:
        """Refuse a stream whose columns are not those that the class is written for."""
        kinds = tuple(column_type(schema, column, step) for column in self.keys)
        for one in self.dicts:
            if one.keys is not None and one.keys != kinds:
                declared, found = (", ".join(map(str, types)) for types in (one.keys, kinds))
                raise QueryError(
                    f"step '{step}': the keys of {self.given.__name__}.{one.name} are annotated as {declared}, and "
                    f"{', '.join(self.keys)} of the stream is {found}; change one of them"
                )


@dataclass(frozen=True, eq=False)
class ClassUpdate:
    """The ``update`` of a class: runs its method on one tuple, with the state of the tuple's key."""

    operator: ClassOperator

    @property
    def __name__(self) -> str:
        return f"{self.operator.given.__name__}.{PROCESS}"

    def __call__(self, window: KeyedWindow, arriving: Tuple) -> Updated:
        operator, state = self.operator, window.state
        instance: Any = object.__new__(operator.given)
        for name, constant in operator.attributes.constants.items():
            setattr(instance, name, constant)
        views: dict[str, DictView] = {}
        for one in operator.dicts:
            kept = state[one.name]
            if isinstance(one.type, StoreType):
                view: DictView = StoreView(kept, one.factory, window.store(one.name), one.kind == "set")
            else:
                view = DictView(kept, one.factory, one.kind == "list")
            views[one.name] = view
            setattr(instance, one.name, view)
        rows = getattr(instance, PROCESS)(arriving)
        if isinstance(rows, Iterator):
            rows = list(rows)
        after = {name: view.kept() for name, view in views.items()}
        # A key that has no entry in any dict is as one that never came.
        return updated(after, rows=rows, retire=all(kept is None for kept in after.values()))


@advised
def operator(
    given: type, *, returns: Returns, state: Mapping[str, pa.DataType | StoreType] | None = None
) -> ClassOperator:
    """A plain class as an operator, for ``stream.apply(...)``: what its dicts hold is kept by key.

    ``__init__`` creates empty dicts and constants. ``process(self, t)`` takes a tuple and returns or yields rows, with the
    columns of ``returns``. Every dict is indexed by the same attribute of the tuple, ``t["symbol"]``, or by the same tuple
    of attributes; that is the key. What a dict holds for a key is a value, a list, a set or one more dict. Types are
    annotated, as in ``self.last: dict[str, float] = {}``, or declared in ``state``, by attribute: a type, or a `store` for
    a dict or set.

    Whatever does not go by the key (another index, all keys, an attribute that is no dict, a global that may change) is
    refused when the query is built, with the line.
    """
    source = ClassSource.of(given)
    attributes = attributes_of(source, state or {})
    return ClassOperator(given, key_of(source, attributes), attributes, returns)
