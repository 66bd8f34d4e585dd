"""The attributes of a user's class: dicts, which become state of a key, and constants.

``__init__`` may create empty dicts (``{}``, ``dict()``, ``defaultdict(int)``) and constants, and nothing else. The types of
a dict come from its annotation, or they are declared.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from tidegate.errors import QueryError, choices
from tidegate.query.classes.source import PROCESS, ClassSource, parameters, self_attribute
from tidegate.query.stores import NOTHING, StoreType

Kind = Literal["value", "list", "map", "set"]
Factory = Callable[[], Any]
SCALARS = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
    "date": pa.date32(),
}
_FACTORIES: dict[str, Factory] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "list": list,
    "dict": dict,
    "set": set,
}
_DICTS = ("dict", "Dict", "defaultdict", "DefaultDict")
_ANNOTATE = (
    "annotate it, as in self.{name}: dict[str, float] = {{}}, or declare it, as in state={{'{name}': pa.float64()}}"
)


@dataclass(frozen=True, slots=True)
class DictAttribute:
    """A dict of the class: what one key has there.

    A ``value`` or ``list`` is a column of the key's state, a ``map`` or ``set`` a store. ``keys`` are the types that the
    annotation says keys have, if it says so; ``factory`` gives the value of a key that is missing, as a defaultdict's does.
    """

    name: str
    kind: Kind
    type: pa.DataType | StoreType
    keys: tuple[pa.DataType, ...] | None
    factory: Factory | None


@dataclass(slots=True)
class Attributes:
    """What the instances of a class have."""

    dicts: dict[str, DictAttribute] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    of_class: set[str] = field(default_factory=set)


def attributes_of(source: ClassSource, declared: Mapping[str, pa.DataType | StoreType]) -> Attributes:
    """The attributes of a class, with types as annotated or declared."""
    found = Attributes()
    annotations: dict[str, ast.expr] = {}
    for part in source.tree.body:
        _class_part(source, part, found, annotations)
    created: dict[str, tuple[ast.stmt, ast.Call | ast.Dict]] = {}
    init = source.methods().get("__init__")
    if init is not None:
        (me,) = parameters(source, init, 1, "def __init__(self): with empty dicts and constants alone")
        for statement in init.body:
            _statement(source, statement, me, found, annotations, created)
    unknown = [name for name in declared if name not in created]
    if unknown:
        raise QueryError(
            f"operator '{source.given.__name__}': state declares {choices(unknown)}, and __init__ creates the dicts "
            f"{choices(created)}"
        )
    if not created:
        source.refuse(source.tree, "it keeps no dict, so it needs no key; use .map_batches(function) instead")
    for name, (statement, value) in created.items():
        found.dicts[name] = _dict(source, name, statement, value, annotations.get(name), declared.get(name))
    return found


def _class_part(source: ClassSource, part: ast.stmt, found: Attributes, annotations: dict[str, ast.expr]) -> None:
    """A statement in the body of the class: a method, a constant, or an annotation of an attribute."""
    if isinstance(part, ast.FunctionDef | ast.Pass) or _is_text(part):
        return
    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is None:
        annotations[part.target.id] = part.annotation
        return
    target = part.targets[0] if isinstance(part, ast.Assign) and len(part.targets) == 1 else None
    target = part.target if isinstance(part, ast.AnnAssign) else target
    value = part.value if isinstance(part, ast.Assign | ast.AnnAssign) else None
    if isinstance(target, ast.Name) and value is not None and _constant(value) is not None:
        found.of_class.add(target.id)
        return
    source.refuse(
        part, f"the class may hold methods and constants; what {PROCESS} keeps is a dict that __init__ creates"
    )


def _statement(
    source: ClassSource,
    statement: ast.stmt,
    me: str,
    found: Attributes,
    annotations: dict[str, ast.expr],
    created: dict[str, tuple[ast.stmt, ast.Call | ast.Dict]],
) -> None:
    """A statement of ``__init__``."""
    if isinstance(statement, ast.Pass) or _is_text(statement):
        return
    targets: list[ast.expr] = []
    value = None
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif isinstance(statement, ast.AnnAssign):
        targets, value = [statement.target], statement.value
    name = self_attribute(targets[0], me) if len(targets) == 1 else None
    if name is None or value is None:
        source.refuse(
            statement, "__init__ may create empty dicts and constants, one attribute a line, and nothing else"
        )
    if isinstance(statement, ast.AnnAssign):
        annotations[name] = statement.annotation
    constant = _constant(value)
    if constant is not None:
        found.constants[name] = constant[0]
    elif (isinstance(value, ast.Dict) and not value.keys) or (
        isinstance(value, ast.Call) and _named(value.func) in ("dict", "defaultdict") and not value.keywords
    ):
        if isinstance(value, ast.Call) and _named(value.func) == "dict" and value.args:
            source.refuse(statement, "the dict is not empty; every key begins without an entry")
        created[name] = statement, value
    else:
        source.refuse(
            statement,
            f"self.{name} is neither an empty dict nor a constant; what {PROCESS} keeps is in dicts, and what it computes "
            "with is in constants",
        )


def _dict(
    source: ClassSource,
    name: str,
    statement: ast.stmt,
    value: ast.Call | ast.Dict,
    annotation: ast.expr | None,
    declared: pa.DataType | StoreType | None,
) -> DictAttribute:
    factory = None
    if isinstance(value, ast.Call) and _named(value.func) == "defaultdict":
        made = _named(value.args[0]) if len(value.args) == 1 else None
        factory = _FACTORIES.get(made or "")
        if factory is None:
            source.refuse(statement, f"the values of a defaultdict begin with one of {choices(_FACTORIES)}")
    keys = None
    kind: Kind
    if declared is not None:
        of: pa.DataType | StoreType = declared
        kind = "list" if isinstance(of, pa.DataType) and pa.types.is_list(of) else "value"
        if isinstance(of, StoreType):
            kind = "set" if of.value.equals(NOTHING) else "map"
    elif annotation is None:
        source.refuse(statement, f"self.{name} has no types; " + _ANNOTATE.format(name=name))
    else:
        key, held = _parts(source, name, statement, annotation)
        keys, (kind, of) = _key_types(source, name, statement, key), _held(source, name, statement, held)
    fits = {"value": (int, float, str, bool), "list": (list,), "map": (dict,), "set": (set,)}[kind]
    if factory is not None and factory not in fits:
        source.refuse(
            statement, f"self.{name} is declared as a {kind} for each key, and the defaultdict begins with another"
        )
    return DictAttribute(name, kind, of, keys, factory)


def _parts(source: ClassSource, name: str, at: ast.stmt, annotation: ast.expr) -> tuple[ast.expr, ast.expr]:
    """Key and value of a dict's annotation."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.Subscript) and _named(annotation.value) in _DICTS:
        inside = annotation.slice
        if isinstance(inside, ast.Tuple) and len(inside.elts) == 2:
            return inside.elts[0], inside.elts[1]
    return source.refuse(at, f"self.{name} is annotated as {ast.unparse(annotation)}; " + _ANNOTATE.format(name=name))


def _key_types(source: ClassSource, name: str, at: ast.stmt, key: ast.expr) -> tuple[pa.DataType, ...]:
    parts = [key]
    if isinstance(key, ast.Subscript) and _named(key.value) in ("tuple", "Tuple"):
        parts = key.slice.elts if isinstance(key.slice, ast.Tuple) else [key.slice]
    return tuple(_scalar(source, name, at, part) for part in parts)


def _held(source: ClassSource, name: str, at: ast.stmt, held: ast.expr) -> tuple[Kind, pa.DataType | StoreType]:
    """What a dict holds for a key, by the annotation of its values."""
    if not isinstance(held, ast.Subscript):
        return "value", _scalar(source, name, at, held)
    outer = _named(held.value)
    if outer in ("list", "List"):
        return "list", pa.list_(_scalar(source, name, at, held.slice))
    if outer in ("set", "Set"):
        return "set", StoreType(_key_schema(_key_types(source, name, at, held.slice)), NOTHING)
    if outer in _DICTS:
        key, value = _parts(source, name, at, held)
        kind, of = _held(source, name, at, value)
        if kind in ("value", "list") and isinstance(of, pa.DataType):
            return "map", StoreType(_key_schema(_key_types(source, name, at, key)), of)
    return source.refuse(
        at,
        f"self.{name} holds {ast.unparse(held)}; a dict holds a value, a list, a set or one more dict for each key. Declare "
        f"others, as in state={{'{name}': pa.struct(...)}}",
    )


def _scalar(source: ClassSource, name: str, at: ast.stmt, part: ast.expr) -> pa.DataType:
    called = _named(part)
    if called not in SCALARS:
        zone = "; a datetime has a zone or none, so it is declared" if called == "datetime" else ""
        source.refuse(
            at,
            f"self.{name}: {ast.unparse(part)} is no type that is taken from an annotation; there are {choices(SCALARS)}"
            f"{zone}. Declare others, as in state={{'{name}': pa.timestamp('us', tz='UTC')}}",
        )
    return SCALARS[called]


def _key_schema(kinds: tuple[pa.DataType, ...]) -> pa.Schema:
    names = ["key"] if len(kinds) == 1 else [f"key{position}" for position in range(len(kinds))]
    return pa.schema(list(zip(names, kinds, strict=True)))


def _named(node: ast.expr | None) -> str | None:
    """The last name of ``name`` or ``module.name``."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _constant(node: ast.expr) -> tuple[Any] | None:
    """A constant that nobody can change, in a tuple; None is a constant too."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return (value,) if _is_fixed(value) else None


def _is_fixed(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_fixed, value))
    return value is None or isinstance(value, int | float | complex | str | bytes)


def _is_text(part: ast.stmt) -> bool:
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
