"""What the engine runs: replayable sources and multi-output Aggregates, as frozen values.

A row is a plain tuple whose first value is its event time, in microseconds. A graph is the stage that is asked for, with
all it reads; nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.errors import QueryError, choices
from tidegate.query.windows import Window

Row: TypeAlias = tuple[Any, ...]
Key: TypeAlias = Any
KeyOf: TypeAlias = Callable[[Row], Key]
WindowFunction: TypeAlias = Callable[[Key, int, Sequence[Row]], Iterable[Row]]
"""From the key, the start and the rows of a window to result rows, without their time, which the engine puts first."""
BagsFunction: TypeAlias = Callable[[Sequence[tuple[Key, int, Sequence[Row]]]], Iterable[Iterable[Row]]]
"""The same for all windows that expire together: for each its result rows."""
RowsFunction: TypeAlias = Callable[[Sequence[Row]], Iterable[Row]]
"""From the rows that settle together to result rows, each behind the time of the row that it is made of."""
StageFunction: TypeAlias = WindowFunction | BagsFunction | RowsFunction
ReadSplit: TypeAlias = Callable[[Any, int], Iterator[list[Row]]]
"""From a split and how many of its rows to skip to its further rows, in batches; the same rows every time."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayableSource:
    """A source that can be read again from a position: splits that are read side by side, each in order of time.

    ``disorder_us`` is how far behind the newest row of its split a row may be. One that is further behind stops the run.
    """

    name: str
    splits: tuple[Any, ...]
    read: ReadSplit
    disorder_us: int


@dataclass(frozen=True, slots=True, eq=False)
class AggregateStage:
    """One multi-output Aggregate: a function of the rows of one key and window gives any number of rows.

    ``key`` None is the whole row. If the function ``distributes``, what it gives for a bag is what it gives for the parts of
    the bag, whatever they are, as that of a Map does: then its windows last 1 µs, rows have no key, and are processed where
    they are read. ``at_once`` is set for a function that takes all bags that expire together; one that distributes takes the
    rows themselves, as each may be a bag of its own, and gives rows with their times.
    """

    name: str
    inputs: tuple[StageInput, ...]
    function: StageFunction
    window: Window
    key: KeyOf | None
    distributes: bool
    at_once: bool


StageInput: TypeAlias = ReplayableSource | AggregateStage


def source(
    name: str, splits: Iterable[Any], read: ReadSplit | None = None, *, disorder_us: int = 0
) -> ReplayableSource:
    """A source of one or more splits; without ``read`` every split is a list of rows."""
    given = tuple(splits)
    if disorder_us < 0:
        raise QueryError(f"source '{name}': disorder must not be negative; got {disorder_us} µs")
    if read is None:
        for split in given:
            if not isinstance(split, list):
                raise QueryError(
                    f"source '{name}': without read=, each split is a list of rows; got {type(split).__name__}. One list "
                    "of rows is one split: splits=[rows]"
                )
    return ReplayableSource(name, given, read or _read_list, disorder_us)


def aggregate(
    name: str,
    *inputs: StageInput,
    function: StageFunction,
    size_us: int,
    every_us: int | None = None,
    key: KeyOf | None = None,
    distributes: bool = False,
    at_once: bool = False,
) -> AggregateStage:
    """A stage that reads sources and other stages; its windows are back to back unless ``every_us`` is given.

    >>> from tidegate import micro
    >>> numbers = micro.source("numbers", [[(0, 3), (1, 4), (1, 4), (7, 5)]])
    >>> doubled = micro.aggregate("doubled", numbers, function=lambda key, at, rows: [(2 * n,) for _, n in rows], size_us=1)
    >>> total = lambda key, start, rows: [(start, sum(n for _, n in rows))]
    >>> micro.collect(micro.aggregate("total", doubled, function=total, size_us=5, key=lambda row: ()))
    [(4, 0, 22), (9, 5, 10)]
    """
    if not inputs:
        raise QueryError(f"stage '{name}': an aggregate reads at least one source or stage; give it one")
    for upstream in inputs:
        if not isinstance(upstream, ReplayableSource | AggregateStage):
            raise QueryError(
                f"stage '{name}': reads micro.source(…) or micro.aggregate(…); got {type(upstream).__name__}"
            )
    if distributes and key is not None:
        raise QueryError(
            f"stage '{name}': a function that distributes is applied to rows wherever they are, so it has no key; leave "
            "key= or distributes= out"
        )
    if distributes and size_us != 1:
        raise QueryError(
            f"stage '{name}': a function that distributes is a Map or Filter, over windows of 1 µs; got {size_us} µs. Make "
            "size_us=1, or leave distributes= out"
        )
    window = Window(size_us, size_us if every_us is None else every_us)
    window.check(name)
    stage = AggregateStage(name, inputs, function, window, key, distributes, at_once)
    walk_stages(stage)
    return stage


def walk_stages(graph: StageInput) -> list[StageInput]:
    """The nodes of a graph, inputs before what reads them, each once; refuses two of one name."""
    found: dict[int, StageInput] = {}

    def visit(node: StageInput) -> None:
        if id(node) not in found:
            for upstream in node.inputs if isinstance(node, AggregateStage) else ():
                visit(upstream)
            found[id(node)] = node

    visit(graph)
    names = [node.name for node in found.values()]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise QueryError(f"two stages are called {choices(dict.fromkeys(twice))}; give one of them another name")
    return list(found.values())


_BATCH_ROWS = 4096


def _read_list(split: list[Row], skip: int) -> Iterator[list[Row]]:
    for first in range(skip, len(split), _BATCH_ROWS):
        yield split[first : first + _BATCH_ROWS]
