"""The functions of an `apply` as the source of loops: over contributions for ``update``, over windows for ``output``.

A loop takes arrays by the names in ``parameters``:

- ``at``: where to begin, and how many rows were emitted; where it stopped, and how many there are now. A loop that stops
  before ``stop`` has left that contribution to Python, and everything as it was before it.
- ``slots``: the slot of each contribution or window; ``rows`` and ``times``: the tuple of each contribution, and its time.
- ``starts``, ``ends``: the bounds of each slot's window; ``alive``: whether its key was not retired.
- ``S0, S0_there, …``: the fields of the state by slot, and whether they are not None; ``I…`` those before the first tuple.
- ``C0, C0_there, C0_mask, …``: the columns of tuples that are read, where ``C0_mask`` is 0 if none is null, else −1;
  ``K0, …``: parts of the key by slot.
- ``O0, …``: the columns of emitted rows, and ``of``: the contribution or window of each. ``X``: the codes of constant texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pyarrow as pa

from tidegate.query.forms import TupleForm
from tidegate.query.nodes import KeyedApply
from tidegate.query.translated.names import Found, as_known, defaults_of
from tidegate.query.translated.statements import Statements, scalar_of
from tidegate.query.translated.values import NONE, Known, Listed, Mapped, Parameter, Scalar, kind_of
from tidegate.query.translated.written import Untranslatable, WrittenFunction

_READ = re.compile(r"\b(c|k)(\d+)(?:_there)?\b")


@dataclass(frozen=True, slots=True)
class LoopProgram:
    """A loop as source: what it takes, which columns and parts of the key it reads, its texts, and the names it trusts."""

    source: str
    parameters: tuple[str, ...]
    columns: tuple[int, ...]
    keys: tuple[int, ...]
    texts: tuple[str, ...]
    found: tuple[Found, ...]
    most_rows: int

    def still_holds(self, function: Callable[..., Any]) -> bool:
        """Whether all names that the function finds outside stand for what they did."""
        return isinstance(function, FunctionType) and all(each.still_holds(function) for each in self.found)


@dataclass(frozen=True, slots=True)
class Translated:
    """The loops of an `apply`, or why it has none: ``output`` alone may be left to Python."""

    update: LoopProgram | None
    output: LoopProgram | None
    obstacles: tuple[str, ...] = ()


def translated(node: KeyedApply) -> Translated:
    """The loops of an `apply` in tuple form."""
    form = node.form
    assert isinstance(form, TupleForm)
    why = _unsuitable(node, form)
    if why:
        return Translated(None, None, (why,))
    assert form.update is not None
    try:
        update = _program(node, form, form.update, form.written["update"], "update")
    except Untranslatable as obstacle:
        return Translated(None, None, (f"of update: {form.written['update'].told(obstacle)}",))
    if form.output is None:
        return Translated(update, None)
    try:
        return Translated(update, _program(node, form, form.output, form.written["output"], "output"))
    except Untranslatable as obstacle:
        return Translated(update, None, (f"of output: {form.written['output'].told(obstacle)}",))


def _unsuitable(node: KeyedApply, form: TupleForm) -> str:
    """Why no function of an `apply` can be compiled."""
    if form.update is None:
        return "whole tuples are stored"
    if form.stores:
        return "there are stores"
    if len(node.inputs) > 1:
        return "there are several inputs"
    if node.single:
        return "windows slide"
    if any(pa.types.is_floating(kind) for kind in node.key_schema.types):
        return "the key is a float"
    for field in form.states[0]:
        if kind_of(field.type) is None or field.type == pa.float32():
            return f"the state has '{field.name}', a {field.type}"
    return ""


def _program(
    node: KeyedApply, form: TupleForm, function: Callable[..., Any], written: WrittenFunction, role: str
) -> LoopProgram:
    tree = written.tree()
    assert isinstance(function, FunctionType)
    unbounded = node.window is None
    state = Mapped(
        {f.name: scalar_of(f, f"s{at}", "the state's") for at, f in enumerate(form.states[0])}, changes=False
    )
    keys = tuple(scalar_of(field, f"k{at}", "the key") for at, field in enumerate(node.key_schema))
    key: Known = keys[0] if len(keys) == 1 else Listed(keys, changes=False)
    bounds: list[Known] = [NONE, NONE] if unbounded else [Scalar("int", "start"), Scalar("int", "end")]
    attributes = {"key": key, "start": bounds[0], "end": bounds[1], "state": state}
    attributes["states"] = Listed((state,), changes=False)
    parameters: list[Known] = [Parameter("window", attributes)]
    if role == "update":
        columns = {f.name: scalar_of(f, f"c{at}", "the column") for at, f in enumerate(node.inputs[0].schema)}
        known = {"time": Scalar("int", "time"), "input": Scalar("int", "(0)", constant=0)}
        parameters.append(Parameter("tuple", known, Mapped(columns, changes=False)))
    env: dict[str, Known] = {
        name: as_known(value, name) for name, value in defaults_of(function, len(parameters)).items()
    }
    env |= zip(function.__code__.co_varnames, parameters, strict=False)
    statements = Statements(function, env, form.states[0], form.returns, role, unbounded)
    body = statements.body(tree)
    return _written_loop(node, form, statements, body, role)


def _written_loop(node: KeyedApply, form: TupleForm, found: Statements, body: list[str], role: str) -> LoopProgram:
    read = set(_READ.findall("\n".join(body)))
    columns, keys = (tuple(sorted(int(at) for kind, at in read if kind == which)) for which in "ck")
    fields, returned = range(len(form.states[0])), range(len(form.returns))
    arrays = [f"{kind}{at}{part}" for kind, many in (("S", fields), ("I", fields), ("K", keys), ("O", returned))
              for at in many for part in ("", "_there")]  # fmt: skip
    arrays += [f"C{at}{part}" for at in columns for part in ("", "_there", "_mask")]
    parameters = ("at", "stop", "slots", "rows", "times", "starts", "ends", "alive", "of", "X", *arrays)
    loads = ["slot = slots[i]"]
    if role == "update":
        loads += ["row = rows[i]", "time = times[i]"]
    if node.window is not None:
        loads += ["start = starts[slot]", "end = ends[slot]"]
    for at in columns:
        loads += [f"c{at} = C{at}[row]", f"c{at}_there = C{at}_there[row & C{at}_mask]"]
    for kind, many in (("k", keys), ("s", fields)):
        for at in many:
            loads += [f"{kind}{at}{part} = {kind.upper()}{at}{part}[slot]" for part in ("", "_there")]
    inside = [f"    {line}" for line in (*loads, *body)]
    lines = ["i, n = at[0], at[1]", "while i < stop:", *inside, "at[0] = i", "at[1] = n"]
    source = "\n".join([f"def loop({', '.join(parameters)}):", *(f"    {line}" for line in lines)]) + "\n"
    names = tuple(found.found.values())
    return LoopProgram(source, parameters, columns, keys, tuple(found.texts), names, found.most_rows)
