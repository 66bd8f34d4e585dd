"""The operators of a query as frozen values: a query is data, and nothing runs.

Every node knows its inputs, the schema of the tuples it emits and the column that holds their event time. A node that
exists is valid: what can be checked is checked where it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import narwhals as nw
import pyarrow as pa

from tidegate.query.aggregates import Aggregate
from tidegate.query.bags import BagFunction
from tidegate.query.column_form import ColumnForm
from tidegate.query.count_windows import CountWindow
from tidegate.query.forms import TupleForm
from tidegate.query.keys import Keys
from tidegate.query.predicates.predicate import Predicate
from tidegate.query.predicates.tree import LEFT, RIGHT, Side
from tidegate.query.running_form import RunningForm
from tidegate.query.sessions import SessionWindow
from tidegate.query.windows import Window

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from tidegate.query.bag_functions import Iterate


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What every node has: a name, the streams it reads, and the columns and event time of the tuples it emits."""

    name: str
    inputs: tuple[Node, ...]
    schema: pa.Schema
    time: str

    @property
    def input(self) -> Node:
        """The stream it reads, the first if there are two."""
        return self.inputs[0]


@dataclass(frozen=True, slots=True, eq=False)
class Source(Step):
    """A stream that comes from outside.

    ``disorder_us`` is how far out of order its tuples may be: the watermark is the latest time seen, less that.
    ``origin`` says where the tuples come from (a DataFrame, files, a table, or nothing yet); only a runtime reads it.
    ``dead_letters`` is the file that takes records which cannot be read; without one they stop the run.
    ``ahead_us`` is how far after the clock a tuple may lie; one that lies further is set aside. With ``ahead_of="stream"``
    it is how far after the newest tuple before it, and one that lies further stops the run. None allows any time.
    ``watermark_step_us`` is how far its watermark moves at most at once, as far as is declared.
    ``idle_us`` is after how long without tuples it no longer holds back other sources (`tidegate.query.idle`); None: never.
    ``stamped`` says that its event time is not read but set, when a tuple arrives (`tidegate.query.arrival`).
    """

    disorder_us: int
    origin: Any = field(default=None, repr=False)
    dead_letters: str | None = None
    ahead_us: int | None = None
    ahead_of: Literal["clock", "stream"] = "clock"
    watermark_step_us: int | None = None
    stamped: bool = False
    idle_us: int | None = None

    @property
    def read_schema(self) -> pa.Schema:
        """The columns that come from outside."""
        return pa.schema([field for field in self.schema if not self.stamped or field.name != self.time])

    @property
    def read_time(self) -> str | None:
        """The column of these that holds event time; None where it is set when tuples arrive."""
        return None if self.stamped else self.time

    @property
    def is_read_in_batches(self) -> bool:
        """Whether tidegate itself reads it, from files or memory; else another engine does, such as Spark."""
        return hasattr(self.origin, "batches") or hasattr(self.origin, "arriving")


@dataclass(frozen=True, slots=True, eq=False)
class WithColumns(Step):
    """Adds or replaces columns by element-wise expressions."""

    exprs: tuple[nw.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Select(Step):
    """Keeps only the columns that element-wise expressions compute."""

    exprs: tuple[nw.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Filter(Step):
    """Keeps the tuples for which an element-wise predicate is true."""

    predicate: nw.Expr


@dataclass(frozen=True, slots=True, eq=False)
class MapBatches(Step):
    """Turns batches into batches by a user's function that treats one row at a time."""

    function: Callable[[pa.RecordBatch], Any]


class LookupTable(MapBatches):
    """Adds the columns of a table that is given, by key."""

    __slots__ = ()


class Union(Step):
    """Brings streams of one schema together; the watermark is the least of theirs."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class WindowAggregate(Step):
    """Aggregates tuples per key and window; the results of a window carry its end − 1 µs."""

    keys: Keys
    key_schema: pa.Schema
    window: Window
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True, slots=True, eq=False)
class SessionAggregate(Step):
    """Aggregates tuples per key and session; the results of a session carry its end − 1 µs."""

    keys: Keys
    key_schema: pa.Schema
    session: SessionWindow
    aggregates: tuple[tuple[str, Aggregate], ...]

    @property
    def window(self) -> None:
        """A session lies in no window: its tuples say when it begins and ends."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class KeyedApply(Step):
    """The generalized stateful operator (STRETCH §4): the user's functions on the windows of each key.

    Every input has its own schema and keys; the keys of all have the columns ``key_schema``. Without ``window`` a key
    has one window that never ends. ``single`` keeps one window per key, which slides; else there is one for each place.
    """

    keys: tuple[Keys, ...]
    key_schema: pa.Schema
    window: Window | None
    single: bool
    form: TupleForm | ColumnForm


@dataclass(frozen=True, slots=True, eq=False)
class Running(Step):
    """State per key that outlives windows (A∞): emitted for every live key at the end of every period.

    Every input has its own schema and keys; the keys of all have the columns ``key_schema``. ``period`` are windows that
    lie back to back.
    """

    keys: tuple[Keys, ...]
    key_schema: pa.Schema
    period: Window
    form: RunningForm

    @property
    def window(self) -> None:
        """A key's state lies in no window: nothing says beforehand when it ends."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Dedup(Step):
    """Passes on the first tuple of each key, then each that lies ``within_us`` or more after the last one passed on."""

    keys: tuple[Keys]
    key_schema: pa.Schema
    within_us: int

    @property
    def window(self) -> None:
        """What is kept of a key says itself until when it matters."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class CountAggregate(Step):
    """Aggregates so many tuples of a key; the results of a window carry the time of the tuple that fills it."""

    keys: tuple[Keys]
    key_schema: pa.Schema
    counted: CountWindow
    aggregates: tuple[tuple[str, Aggregate], ...]

    @property
    def window(self) -> None:
        """Nothing says beforehand when a window is full."""
        return None


JoinHow: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]
"""What a join gives: pairs; also the tuples of a side that are in none; or of the left tuples those in some, or in none."""
JUDGED_SIDES: Mapping[str, tuple[Side, ...]] = MappingProxyType(
    {"inner": (), "left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT), "semi": (LEFT,), "anti": (LEFT,)}
)
"""The sides whose tuples leave, or do not, by whether they have a partner."""


@dataclass(frozen=True, slots=True)
class JoinColumn:
    """A column of a join's pairs: its name, the side and column it comes from, and its type.

    ``coalesced`` says that where there is no left tuple it is the column of that name on the right.
    """

    name: str
    side: Side
    column: str
    type: pa.DataType
    coalesced: bool = False


def schema_of_pairs(columns: Sequence[JoinColumn]) -> pa.Schema:
    """What a pair of tuples looks like."""
    return pa.schema([(each.name, each.type) for each in columns])


@dataclass(frozen=True, slots=True, eq=False)
class Join(Step):
    """Pairs of tuples that are near in time, equal in their keys, and for which a predicate is true.

    Near is at most ``within_us`` apart, and a pair's event time the later of the two; or in a ``window`` together: then the
    pair is there once for each, at its end − 1 µs. ``bands`` lets conditions on differences be served by sorting. With
    ``spread`` the pairs of one key meet in many cells (`split_hot_keys`).

    ``columns`` are those of a pair. Unless ``how`` is "inner", tuples leave without a partner too, or instead of pairs.
    """

    on: tuple[tuple[str, str], ...]
    within_us: int | None
    window: Window | None
    where: Predicate | None
    columns: tuple[JoinColumn, ...]
    bands: bool = True
    spread: bool = False
    how: JoinHow = "inner"

    @property
    def gives_pairs(self) -> bool:
        """Whether results are pairs, among others; else they are left tuples alone."""
        return self.how not in ("semi", "anti")

    @property
    def lonely_sides(self) -> tuple[Side, ...]:
        """The sides whose tuples leave when no partner can come any more."""
        return () if self.how == "semi" else self.judged_sides

    @property
    def judged_sides(self) -> tuple[Side, ...]:
        """The sides whose tuples leave, or do not, by whether they have a partner."""
        return JUDGED_SIDES[self.how]

    @property
    def pair_schema(self) -> pa.Schema:
        """The columns of a pair, as predicates over columns see them."""
        return schema_of_pairs(self.columns)

    @property
    def is_on_grid(self) -> bool:
        """Whether cells get tuples by what they hold; else they get them by keys."""
        return self.spread or not self.on


@dataclass(frozen=True, slots=True, eq=False)
class CountJoin(Step):
    """Pairs each tuple with the last ``size`` of the other input before it, at its own time.

    Before is meant in canonical order over both inputs, among tuples of its key; of those ``size`` a predicate leaves some
    out. The keys of both sides have the columns ``key_schema``, ``columns`` are those of a pair.
    """

    keys: tuple[Keys, Keys]
    key_schema: pa.Schema
    size: int
    where: Predicate | None
    columns: tuple[JoinColumn, ...]

    @property
    def window(self) -> None:
        """A tuple is kept until so many others of its key have come on its side."""
        return None

    @property
    def pair_schema(self) -> pa.Schema:
        """The columns of a pair, as predicates over columns see them."""
        return schema_of_pairs(self.columns)


@dataclass(frozen=True, slots=True, eq=False)
class AsOf(Step):
    """Gives each left tuple the last right tuple of its key at or before it, at its own time.

    The right one lies at most ``tolerance_us`` before, if that is given, and is not ``deleted``. The keys of both sides
    have the columns ``key_schema``. ``keeps_unmatched`` says that a left tuple without partner is kept, with nulls.
    """

    keys: tuple[Keys, Keys]
    key_schema: pa.Schema
    tolerance_us: int | None
    keeps_unmatched: bool
    columns: tuple[JoinColumn, ...]
    deleted: nw.Expr | None = None

    @property
    def window(self) -> None:
        """A right tuple is kept until another takes its place."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class BagAggregate(Step):
    """The multi-output Aggregate: a function of the bag of one key and window gives rows, at the window's end − 1 µs.

    Every input has its own columns and keys; the keys of all have the columns ``key_schema``. ``single`` says that a bag
    gives one row at most. With ``loop_us`` what it gives is also its own input, which may come so many microseconds behind
    the watermark. Lowering puts it in the place of other steps (`tidegate.compile.lower_to_aggregates`).
    """

    keys: tuple[Keys, ...]
    key_schema: pa.Schema
    window: Window
    function: BagFunction | Iterate
    single: bool = False
    loop_us: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Outputs(Step):
    """Several results of one query, by name: its root. Each has rows of its own, and there is no event time of all.

    Where the rows of all are one table, such as the answer of the reference, each name is a column of structs, and a row is
    that of the one which is not null (`tidegate.query.outputs`).
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Late(Step):
    """The tuples that came from a source too late for an input of a stateful step, ``side``, which is what it reads.

    They have the columns of that input, its event time, and the watermark they missed (`tidegate.query.late`).
    """

    side: int

    @property
    def operator(self) -> Stateful:
        """The step that they are late for."""
        assert is_stateful(self.input)
        return self.input


Stateless = WithColumns | Select | Filter | MapBatches
InOrder = KeyedApply | Running | Dedup | CountAggregate | AsOf | CountJoin
"""What takes settled tuples, in canonical order."""
Stateful = WindowAggregate | SessionAggregate | InOrder | Join | BagAggregate
Node = Source | Stateless | Union | Stateful | Late | Outputs
AnyStep = TypeVar("AnyStep", bound=Stateful | Stateless)


def walk(node: Node) -> Iterator[Node]:
    """The nodes of a query, inputs before what reads them, each once."""
    seen: set[int] = set()

    def visit(current: Node) -> Iterator[Node]:
        if id(current) in seen:
            return
        seen.add(id(current))
        for upstream in current.inputs:
            yield from visit(upstream)
        yield current

    return visit(node)


def sources(node: Node) -> tuple[Source, ...]:
    """The sources of a query, in the order in which it reads them."""
    return tuple(found for found in walk(node) if isinstance(found, Source))


def is_stateful(node: Node) -> TypeIs[Stateful]:
    """Whether a node remembers tuples."""
    return isinstance(node, Stateful)


def rewrite(query: Node, rule: Callable[[Node], Node]) -> Node:
    """Apply a rule to every node, inputs first; a rule returns the node it got where it has nothing to change.

    A node that several others read is rewritten once and stays shared, and sources are never copied: a runtime tells
    streams apart by the identity of their source.
    """
    done: dict[int, Node] = {}
    for node in walk(query):
        done[id(node)] = rule(with_inputs(node, tuple(done[id(upstream)] for upstream in node.inputs)))
    return done[id(query)]


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """A node that reads other inputs of the same schemas; the same node if they are the ones it has."""
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    return replace(node, inputs=inputs)


def detached(node: AnyStep) -> AnyStep:
    """A node that knows of its inputs what they are called and which columns they have: so it can be shipped."""
    bare = tuple(Source(below.name, (), below.schema, below.time, 0) for below in node.inputs)
    return replace(node, inputs=bare)
