"""The first tuples of each window and key as rows of their own: an aggregate that keeps them, and a step that unpacks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import QueryError
from tidegate.query.aggregates import Ranked
from tidegate.query.schema import check_unique, contiguous

if TYPE_CHECKING:
    from tidegate.query.builder import Builder

B = TypeVar("B", bound="Builder")
TOP = "tuples_by_rank"
"""The column that holds lists of tuples between the two steps."""
RANK = "rank"


@dataclass(frozen=True, slots=True)
class Unpack:
    """A batch function: lists of tuples become rows, each with its place in its list and what stood beside it."""

    beside: tuple[str, ...]
    taken: tuple[str, ...]

    @property
    def __name__(self) -> str:
        return "unpack"

    def __call__(self, batch: pa.RecordBatch) -> Any:
        lists = contiguous(batch.column(TOP))
        lengths = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
        rows = pa.array(np.repeat(np.arange(len(lengths)), lengths))
        ranks = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
        columns = {name: batch.column(name).take(rows) for name in self.beside}
        columns[RANK] = pa.array(ranks)
        tuples = lists.flatten()
        return pa.table(columns | {name: pc.struct_field(tuples, name) for name in self.taken})


def top_rows(stream: B, aggregate: Callable[..., B], n: int, by: str, name: str | None, refined: bool = False) -> B:
    """The steps of `top_n`, checked; ``aggregate`` is that of windows, which are ``refined`` if they allow lateness."""
    step = stream._step("top_n", name)
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise QueryError(f"step '{step}': top_n takes how many tuples, a number from 1 on; got {n!r}")
    if refined:
        raise QueryError(f"step '{step}': the rows of top_n cannot be refined one by one, so it allows no lateness")
    kept = aggregate(name=name, **{TOP: Ranked(None, n, by=by)})
    beside = tuple(each for each in kept.schema.names if each != TOP)
    taken = tuple(each for each in stream.schema.names if each not in beside)
    check_unique((*beside, RANK, *taken), step)
    fields = [kept.schema.field(each) for each in beside] + [pa.field(RANK, pa.int64())]
    schema = pa.schema(fields + [stream.schema.field(each) for each in taken])
    return kept.map_batches(Unpack(beside, taken), schema=schema, name=None if name is None else f"{name}_rows")
