"""Running a query on the engine of one operator: all of its input, through Aggregates alone, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate import micro
from tidegate.compile.compiler import compile_query
from tidegate.micro.lowered import graph_of, table_of_rows
from tidegate.query.nodes import sources
from tidegate.reference import Answer
from tidegate.reference.interpreter import AheadLaw
from tidegate.results import RunResult
from tidegate.run_reference import WholeInput, run_whole
from tidegate.stream import Stream

if TYPE_CHECKING:
    from tidegate.compile.lower_to_aggregates import Operators


def run_on_micro(
    query: Stream, folder: Path | None, kind: str | None, show: int, operators: Operators = "multi"
) -> RunResult:
    """Run a query and put its results in a folder, or some of them on the screen; it has no operators but 'multi' ones.

    A tuple that is further behind than its stream declares stops the run: this engine has no late tuples.
    """
    made_of: Operators = "multi" if operators == "dedicated" else operators
    lowered = compile_query(query.node, "reference", operators=made_of).query
    graph_of(lowered, {source.name: () for source in sources(lowered)})  # what it cannot do is refused before it reads

    def computed(inputs: Sequence[WholeInput], clock: int) -> Answer:
        laws = {each.source.name: AheadLaw(each.source) for each in inputs}
        tables = {
            name: [
                laws[name].timely(laws[name].arrived(pa.Table.from_batches([placed.batch]), clock), clock)
                for placed in each.batches
            ]
            for each in inputs
            for name in [each.source.name]
        }
        rows = micro.collect(graph_of(lowered, tables))
        aside = {name: tuple(values for _, values in law.set_aside) for name, law in laws.items() if law.set_aside}
        numbers = {name: tuple(number for number, _ in laws[name].set_aside) for name in aside}
        return Answer(table_of_rows(rows, lowered), 0, (), sum(map(len, aside.values())), aside, numbers)

    return run_whole(query, folder, kind, show, "the engine of one operator", computed)
