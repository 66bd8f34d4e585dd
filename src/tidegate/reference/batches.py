"""Batches that are read at times of the clock, and the watermarks behind them: what the law says of idle sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from tidegate.query.idle import SourceProgress, is_idle, passed_over
from tidegate.query.names import unique_names
from tidegate.query.nodes import Node, is_stateful, sources, walk
from tidegate.reference.interpreter import Advance, AheadLaw, Event, Rows
from tidegate.watermark import END, START


def batch_events(query: Node, batches: Iterable[tuple[int, Mapping[str, pa.Table]]]) -> Iterator[Event]:
    """The tuples of each batch, read at a time of the clock, then the watermark of each stateful step; then the end.

    A step has come as far as the sources before it, of which those that are idle are taken to be where the least of all
    others is. A source that has delivered nothing yet is waited for from the first batch on.
    """
    query = unique_names(query)
    named = {source.name: source for source in sources(query)}
    steps = {node.name: sources(node) for node in walk(query) if is_stateful(node)}
    laws = {name: AheadLaw(source) for name, source in named.items()}
    heard: dict[str, int] = {}
    reached = dict.fromkeys(steps, START)
    for clock, batch in batches:
        for name in named:
            heard.setdefault(name, clock)
        for name, table in batch.items():
            tuples = laws[name].arrived(table, clock)
            yield Rows(name, tuples, clock)
            if laws[name].timely(tuples, clock).num_rows:
                heard[name] = clock
        progress = {
            name: SourceProgress(
                START if (newest := laws[name].newest) is None else newest - source.disorder_us,
                is_idle(source.idle_us, heard[name], clock),
            )
            for name, source in named.items()
        }
        taken = passed_over(progress)
        for step, before in steps.items():
            least = min(taken[source.name] for source in before)
            if least > reached[step]:
                reached[step] = least
                yield Advance(least, step)
    yield Advance(END)
