"""Settled tuples as Python values, for functions that see one tuple after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, is_first
from tidegate.operators.settling import Settled
from tidegate.query.forms import Tuple
from tidegate.query.nodes import Node
from tidegate.query.user_functions import ValueShape, python_values, record_of

Contribution = tuple[Tuple, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ArrivingTuples:
    """The settled tuples of one input as lists of Python's values, of which tuples are made one by one.

    Few of them are there at a time: to have all would keep Python's collector of garbage busy. Only those that have several
    keys are kept.
    """

    side: int
    source: Node
    size: int
    times: list[int]
    columns: list[list[Any]]
    rows: list[int]
    keys: list[list[Any]]
    made: dict[int, Tuple] | None
    shape: ValueShape
    nested: bool

    @classmethod
    def of(cls, settled: Settled, side: int, source: Node) -> ArrivingTuples:
        """Those of one input, which has some."""
        table, times, entries = settled.tuples[side], settled.times[side], settled.entries[side]
        columns, keys = ([python_values(each) for each in some] for some in (table.columns, entries.columns))
        several = bool((entries.rows[1:] == entries.rows[:-1]).any())
        size, rows = table.nbytes // len(times), entries.rows.tolist()
        shape, nested = record_of(source.schema), any(map(pa.types.is_nested, source.schema.types))
        return cls(side, source, size, times.tolist(), columns, rows, keys, {} if several else None, shape, nested)

    def contributions(self, chosen: Iterable[int]) -> Iterator[Contribution]:
        """Some entries, each as its tuple and its key."""
        names, shape, keys, made, times = self.source.schema.names, self.shape, self.keys, self.made, self.times
        for entry in chosen:
            row = self.rows[entry]
            arriving = None if made is None else made.get(row)
            if arriving is None:
                values = dict(zip(names, [column[row] for column in self.columns], strict=True))
                if self.nested:
                    values = shape.check(values)[0]
                arriving = Tuple(values, shape, self.size, times[row], self.side)
                if made is not None:
                    made[row] = arriving
            yield arriving, tuple([column[entry] for column in keys])


def contributions(settled: Settled, inputs: Sequence[Node]) -> dict[int, Iterator[Contribution]]:
    """The settled tuples and keys of each shard as Python values, in canonical order, made as they are asked for."""
    arriving = {
        side: ArrivingTuples.of(settled, side, inputs[side]) for side, each in enumerate(settled.times) if len(each)
    }
    if not arriving:
        return {}
    entries = [settled.entries[side] for side in arriving]
    shards = np.concatenate([each.shards for each in entries])
    at = settled.places
    places = np.concatenate([at[side][each.rows] for side, each in zip(arriving, entries, strict=True)])
    sides = np.repeat(list(arriving), [len(each.rows) for each in entries])
    numbers = np.concatenate([np.arange(len(each.rows)) for each in entries])
    order = np.lexsort((places, shards))
    shards, sides, numbers = shards[order], sides[order], numbers[order]
    bounds = np.append(np.flatnonzero(is_first(shards)), len(shards))
    return {
        int(shards[low]): _contributions(arriving, sides[low:high], numbers[low:high]) for low, high in pairwise(bounds)
    }


def _contributions(arriving: Mapping[int, ArrivingTuples], sides: Array, numbers: Array) -> Iterator[Contribution]:
    """Entries of several inputs."""
    bounds = np.append(np.flatnonzero(is_first(sides)), len(sides))
    for low, high in pairwise(bounds):
        yield from arriving[int(sides[low])].contributions(numbers[low:high].tolist())
