"""Queries made of Aggregates, and watermarks that no tuple of a case comes behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import reject

import tidegate as tg
from tests.kit.cases import Case
from tests.kit.join_cases import JoinCase, SparkJoinCase
from tidegate.compile.lower_to_aggregates import Operators, lower_to_aggregates
from tidegate.errors import UnsupportedError
from tidegate.query.names import unique_names
from tidegate.query.nodes import BagAggregate, Node, rewrite, sources
from tidegate.reference import Advance, Event, Rows
from tidegate.watermark import END, START

AnyCase = TypeVar("AnyCase", Case, JoinCase, SparkJoinCase)
LOOP_STEP_US = 1_000_000


def lowered(query: tg.Stream, operators: Operators, **options: Any) -> tg.Stream:
    """The query made of Aggregates."""
    return tg.Stream(lower_to_aggregates(unique_names(query.node), operators, **options))


def lowered_case(case: AnyCase, operators: Operators) -> AnyCase:
    """The case with its query made of Aggregates, whose loops go in small steps; where it is refused, another is drawn."""
    try:
        query = lowered(case.query, operators)
    except UnsupportedError:
        reject()
    return replace(case, query=tg.Stream(rewrite(query.node, _in_small_steps)))


def _in_small_steps(node: Node) -> Node:
    if isinstance(node, BagAggregate) and node.loop_us is not None:
        return replace(node, loop_us=LOOP_STEP_US)
    return node


def in_order(case: JoinCase) -> JoinCase:
    """The case with every stream in the order of time.

    A join whose one side is a step and whose other is a source has a watermark that lags as threads happen to run: which of
    the source's tuples are late would not be known before.
    """
    named = {source.name: source.time for source in sources(case.query.node)}
    batches: list[dict[str, list[pa.Table]]] = [{} for _ in case.batches]
    for name, time in named.items():
        tables = [batch.get(name, []) for batch in case.batches]
        flat = [table for each in tables for table in each]
        if flat:
            ordered, at = pa.concat_tables(flat).sort_by(time), 0
            for number, each in enumerate(tables):
                batches[number][name] = []
                for table in each:
                    batches[number][name].append(ordered.slice(at, table.num_rows))
                    at += table.num_rows
    return replace(case, batches=batches)


def honest_events(query: tg.Stream, batches: list[dict[str, list[pa.Table]]]) -> list[Event]:
    """Each batch, then the watermark that all tuples still to come allow."""
    named = {source.name: source.time for source in sources(query.node)}
    events: list[Event] = []
    least = []
    for batch in batches:
        times = [
            pc.min(table.column(named[name]).cast(pa.int64())).as_py()
            for name, tables in batch.items()
            for table in tables
            if table.num_rows
        ]
        least.append(min(times, default=END))
    reached = START
    for number, batch in enumerate(batches):
        events += [Rows(name, table) for name, tables in batch.items() for table in tables if table.num_rows]
        reached = max(reached, min(least[number + 1 :], default=END))
        events.append(Advance(reached))
    return events if reached == END else [*events, Advance(END)]
