"""The fluent face of `apply`: checks the user's functions, state and results, and builds the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import pyarrow as pa

from tidegate.errors import DataError, QueryError
from tidegate.query.advice import Advises, advised
from tidegate.query.column_form import ColumnForm, Contributions, Slots
from tidegate.query.forms import KeyedWindow, Tuple, TupleForm, Updated, empty_state, stored_tuples
from tidegate.query.late import refuse_refined
from tidegate.query.names import step_name
from tidegate.query.nodes import KeyedApply
from tidegate.query.schema import as_schema, normal_schema
from tidegate.query.stores import StoreType
from tidegate.query.translated.written import written
from tidegate.query.user_functions import Misfit, Record
from tidegate.query.windows import Window

if TYPE_CHECKING:
    from tidegate.query.builder import Builder
    from tidegate.query.keyed import Keyed

B = TypeVar("B", bound="Builder")
Declared: TypeAlias = pa.Schema | Mapping[str, pa.DataType]
WindowType = Literal["multi", "single"]


@dataclass(frozen=True, slots=True, eq=False)
class Applies(Advises, Generic[B]):
    """Streams with keys and windows, on which your own functions can be applied."""

    parts: tuple[Keyed[B], ...]
    window: Window | None = None

    @advised
    def apply(
        self,
        *,
        update: Callable[[KeyedWindow, Tuple], Updated | None] | None = None,
        output: Callable[[KeyedWindow], Any] | None = None,
        slide: Callable[[KeyedWindow], Updated | None] | None = None,
        state: Declared | Sequence[Declared] | None = None,
        initial: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        stores: Mapping[str, StoreType] | None = None,
        returns: Declared,
        windows: WindowType = "multi",
        name: str | None = None,
    ) -> B:
        """Apply your own functions, one tuple at a time: the operator O+ of STRETCH.

        ``update(window, tuple)`` is called for each window of each key of a tuple and returns `updated`: the new state,
        and rows to emit at the tuple's time. ``output(window)`` is called when a window has expired and returns
        rows, which carry its end − 1 µs. With ``windows="single"`` a key has one window, which slides:
        ``slide(window)`` is called when it has advanced and returns `updated` without rows. By default ``update``
        stores the tuple, ``output`` gives nothing and ``slide`` purges the tuples that the window has left behind.

        Tuples come in canonical order: by event time, then input, then columns. ``state`` declares what a window keeps
        for each input, the same for all or one each; it begins as ``initial``, else as nulls and empty lists.
        ``stores`` declares maps (see `store`) that functions change in place, as ``window.store(name)``.
        ``returns`` declares the columns of rows, to which the event time is added.

        >>> import pyarrow as pa, tidegate as tg
        >>> words = tg.stream({"ts": pa.timestamp("us"), "word": pa.string()}, time="ts")
        >>> counts = words.key_by("word").window("1 minute").apply(
        ...     update=lambda window, word: tg.updated({"count": window.state["count"] + 1}),
        ...     output=lambda window: {"word": window.key, "count": window.state["count"]},
        ...     state={"count": pa.int64()}, initial={"count": 0},
        ...     returns={"word": pa.string(), "count": pa.int64()})
        >>> counts.schema.names
        ['ts', 'word', 'count']
        """
        step = self._step(name)
        self._check(step, output, slide, windows)
        if update is None and output is None:
            raise QueryError(f"step '{step}': neither update nor output is given, so nothing would ever be emitted")
        kept = _stores(step, stores or {})
        if kept and update is None:
            raise QueryError(f"step '{step}': the default update stores whole tuples and fills no store; give update")
        if kept and state is None:
            state = {}
        if state is None:
            states = tuple(stored_tuples(part.stream.schema) for part in self.parts)
        else:
            if update is None:
                raise QueryError(
                    f"step '{step}': the default update stores whole tuples; leave out state, or give update"
                )
            states = tuple(
                normal_schema(as_schema(one, f"step '{step}': state"), step) for one in self._each(step, "state", state)
            )
            if windows == "single" and slide is None and (kept or any(one.names for one in states)):
                raise QueryError(
                    f"step '{step}': the default slide purges stored tuples and does not know your state and stores; give "
                    "slide, or leave out state and stores"
                )
        given = self._each(step, "initial", initial or {})
        form = TupleForm(
            update,
            output,
            slide,
            states,
            tuple(_initial(step, schema, one) for schema, one in zip(states, given, strict=True)),
            self._returns(step, returns),
            tuple(part.stream.time for part in self.parts),
            kept,
            {role: written(function) for role, function in (("update", update), ("output", output)) if function},
        )
        return self._node(step, form, windows)

    @advised
    def apply_columns(
        self,
        *,
        update: Callable[[Contributions], Updated],
        output: Callable[[Slots], Any] | None = None,
        slide: Callable[[Slots], Updated] | None = None,
        state: Declared,
        initial: Mapping[str, Any] | None = None,
        returns: Declared,
        windows: WindowType = "multi",
        ordered: bool = True,
        name: str | None = None,
    ) -> B:
        """Apply your own functions to whole columns: O+ again, for functions that can be vectorised.

        ``update`` gets `Contributions` and returns ``tg.updated(states)``: for each slot the new value of every state
        column, and if you like ``rows`` with the contribution ``of`` each. ``output`` gets the `Slots` of windows that
        have expired and returns columns with one row per slot, or ``tg.updated(rows=..., of=...)``. ``slide`` gets
        slots and returns new states.

        Contributions come in canonical order. A slot may occur several times in one call, and how contributions are cut
        into calls is not defined: a function must give what it would give for one contribution after the other. What
        does not depend on order (sums, extremes, sets) does so by itself. A call is for contributions of one input: where
        the tuples of several inputs alternate, calls are small, unless ``ordered=False`` says that order among inputs
        does not matter.

        >>> import numpy as np, pyarrow as pa, tidegate as tg
        >>> words = tg.stream({"ts": pa.timestamp("us"), "word": pa.string()}, time="ts")
        >>> counts = words.key_by("word").window("1 minute").apply_columns(
        ...     update=lambda batch: tg.updated({"count": np.asarray(batch.windows.states["count"])
        ...                                      + np.bincount(batch.slots, minlength=len(batch.windows))}),
        ...     output=lambda slots: {"word": slots.keys["word"], "count": slots.states["count"]},
        ...     state={"count": pa.int64()}, initial={"count": 0},
        ...     returns={"word": pa.string(), "count": pa.int64()})
        """
        step = self._step(name)
        self._check(step, output, slide, windows)
        schema = normal_schema(as_schema(state, f"step '{step}': state"), step)
        if windows == "single" and slide is None and schema.names:
            raise QueryError(f"step '{step}': windows that slide need slide=..., which gives their next state")
        if windows == "single" and not ordered:
            raise QueryError(f"step '{step}': windows that slide go by the order of tuples; leave ordered=False out")
        begin = _initial(step, schema, initial or {})
        empty = pa.table([pa.array([begin[field.name]], field.type) for field in schema], schema=schema)
        form = ColumnForm(update, output, slide, schema, empty, self._returns(step, returns), ordered)
        for part in range(len(self.parts)):
            self._try(step, form, part)
        return self._node(step, form, windows)

    def _step(self, name: str | None) -> str:
        return step_name("apply", name, *(part.stream.node for part in self.parts))

    def _check(self, step: str, output: object, slide: object, windows: str) -> None:
        for part in self.parts:
            refuse_refined(step, part.stream.node)
        if windows not in ("multi", "single"):
            raise QueryError(f"step '{step}': windows is 'multi' or 'single'; got {windows!r}")
        if self.window is None:
            if output is not None or slide is not None or windows == "single":
                raise QueryError(
                    f"step '{step}': an unbounded window neither expires nor slides; emit rows by update, and retire a "
                    "key with tg.updated(retire=True)"
                )
            return
        if self.window.lateness:
            raise QueryError(f"step '{step}': apply takes tuples in order, so it allows no lateness; leave it out")
        if slide is not None and windows == "multi":
            raise QueryError(
                f"step '{step}': slide belongs to windows='single'; with 'multi' an expired window is removed"
            )

    def _each(self, step: str, what: str, given: Any) -> tuple[Any, ...]:
        """One for each input: the same for all, or a list."""
        if isinstance(given, pa.Schema | Mapping):
            return (given,) * len(self.parts)
        if not isinstance(given, Sequence) or len(given) != len(self.parts):
            raise QueryError(
                f"step '{step}': {what} is given once, or as a list with one for each of {len(self.parts)} inputs"
            )
        return tuple(given)

    def _returns(self, step: str, returns: Declared) -> pa.Schema:
        declared = as_schema(returns, f"step '{step}': returns")
        normal_schema(self._schema(declared), step)
        return normal_schema(declared, step)

    def _schema(self, returns: pa.Schema) -> pa.Schema:
        stream = self.parts[0].stream
        return pa.schema([(stream.time, stream.schema.field(stream.time).type), *returns])

    def _try(self, step: str, form: ColumnForm, part: int) -> None:
        """Call the functions on nothing: types that do not fit are found when the query is built."""
        stream = self.parts[0].stream
        none, moment = pa.array([], pa.int64()), pa.array([], stream.schema.field(stream.time).type)
        slots = Slots(self.parts[0].key_schema.empty_table(), moment, moment, form.state.empty_table())
        tuples = self.parts[part].stream.schema.empty_table()
        try:
            form.updates(step, Contributions(tuples, part, none, none, slots), self.window is None)
            form.outputs(step, slots)
            form.slides(step, slots)
        except DataError as error:
            raise QueryError(f"{error} (tried without rows, as the query was built)") from error

    def _node(self, step: str, form: TupleForm | ColumnForm, windows: str) -> B:
        stream = self.parts[0].stream
        node = KeyedApply(
            step,
            tuple(part.stream.node for part in self.parts),
            normal_schema(self._schema(form.returns), step),
            stream.time,
            tuple(part.keys for part in self.parts),
            self.parts[0].key_schema,
            self.window,
            windows == "single",
            form,
        )
        return stream._then(node)


class Unbounded(Applies[B]):
    """Streams with keys, whose windows never end."""

    __slots__ = ()


class GatheredWindows(Applies[B]):
    """Several streams with keys and the same windows."""

    __slots__ = ()


def _stores(step: str, given: Mapping[str, StoreType]) -> dict[str, StoreType]:
    named = isinstance(given, Mapping)
    if not named or not all(isinstance(name, str) and isinstance(of, StoreType) for name, of in given.items()):
        raise QueryError(
            f"step '{step}': stores are declared by name, as in stores={{'seen': tg.store(key=pa.string(), "
            f"value=pa.int64())}}; got {given!r}"
        )
    return {name: of.normal(step, name) for name, of in given.items()}


def _initial(step: str, schema: pa.Schema, given: Mapping[str, Any]) -> Record:
    try:
        return empty_state(schema, given)
    except Misfit as misfit:
        raise QueryError(f"step '{step}': initial does not fit the declared state: {misfit}") from misfit
