"""Results of overlapping windows, a bounded number at a time.

A state takes part in a stretch of windows. Copying it for each of them costs states times windows, so a run of windows
for which that is too much is halved, and halved again (a segment tree over the windows, walked from left to right). What
lies in all windows of a half is merged before the half is cut further: so a state is merged a logarithmic number of
times, and what is copied in the end is about as much as there are results. Nothing is computed before it is asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.aggregates import Logic, OverWindows, WindowSlots
from tidegate.operators.aggregates.of_tuples import concat_states
from tidegate.operators.aggregates.shared_states import merged_states, state_of
from tidegate.operators.columns import Array, as_numpy, expand_ranges
from tidegate.operators.keys import distinct, group
from tidegate.query.nodes import Join, WindowAggregate

AT_ONCE = 262_144
"""So many results are computed at once: enough to make calls cheap, few enough for memory and for latency."""


@dataclass(frozen=True, slots=True)
class Spans:
    """States, and the windows ``begin[i]`` to ``end[i]`` that each takes part in.

    ``rows[i]`` is a pane with the key of state ``i``, and ``codes[i]``, below ``bound``, is equal for equal keys.
    """

    states: list[pa.Array]
    rows: Array
    codes: Array
    bound: int
    begin: Array
    end: Array

    def take(self, kept: Array) -> Spans:
        """Some of them."""
        some = pa.array(kept)
        states = [state.take(some) for state in self.states]
        return Spans(states, self.rows[kept], self.codes[kept], self.bound, self.begin[kept], self.end[kept])

    def within(self, low: int, high: int) -> Spans:
        """Those that take part in some of these windows."""
        overlap = (self.begin <= high) & (self.end >= low) & (self.begin <= self.end)
        return self if overlap.all() else self.take(np.flatnonzero(overlap))


@dataclass(frozen=True, slots=True)
class Emitted:
    """Results: for each its window, a pane with its key, and the values of the aggregates."""

    windows: Array
    rows: Array
    values: list[pa.Array]


def window_columns(node: WindowAggregate | Join, windows: Array) -> dict[str, pa.Array]:
    """The columns that say which windows results are of; a result's time is its window's end − 1 µs."""
    window, moment = node.window, node.schema.field(node.time).type
    assert window is not None
    starts = windows * window.every
    ends = starts + window.size
    moments = {node.time: ends - 1, "window_start": starts, "window_end": ends}
    return {name: pa.array(times).view(moment) for name, times in moments.items()}


def emit_windows(logics: Sequence[Logic], spans: Spans, low: int, high: int, at_once: int) -> Iterator[Emitted]:
    """The results of the windows ``low`` to ``high``, in their order; so many states are copied at once, or one window's."""
    spans = spans.within(low, high)
    if len(spans.begin) == 0:
        return
    low, high = max(low, int(spans.begin.min())), min(high, int(spans.end.max()))
    if low < high and _copies(logics, spans, low, high) > at_once:
        spans = _merge_common(logics, spans, low, high)
        if _copies(logics, spans, low, high) > at_once:
            middle = (low + high) // 2
            yield from emit_windows(logics, spans, low, middle, at_once)
            yield from emit_windows(logics, spans, middle + 1, high, at_once)
            return
    yield _emit(logics, spans, low, high)


def runs_of_windows(begin: Array, end: Array, at_once: int) -> Iterator[tuple[Array, int, int]]:
    """Runs of windows, in their order, and which of the stretches ``begin[i]`` to ``end[i]`` take part in each.

    A run has at most so many windows of stretches, each counted for itself, or it is one window.

    >>> for which, low, high in runs_of_windows(np.array([1, 2, 90]), np.array([3, 5, 91]), 4):
    ...     print(which, low, high)
    [0 1] 1 2
    [0 1] 3 3
    [1] 4 5
    [2] 90 91
    """
    waiting = [(np.arange(len(begin)), int(begin.min(initial=0)), int(end.max(initial=-1)))]
    while waiting:
        which, low, high = waiting.pop()
        which = which[(begin[which] <= high) & (end[which] >= low)]
        if len(which) == 0:
            continue
        low, high = max(low, int(begin[which].min())), min(high, int(end[which].max()))
        windows = np.minimum(end[which], high) - np.maximum(begin[which], low) + 1
        if low < high and windows.sum(dtype=np.float64) > at_once:
            middle = (low + high) // 2
            waiting += [(which, middle + 1, high), (which, low, middle)]
        else:
            yield which, low, high


def finished(logics: Sequence[Logic], states: Sequence[pa.Array]) -> list[pa.Array]:
    """The values of all aggregates."""
    return [logic.finish(own) for logic, own in of_each(logics, states)]


def of_each(logics: Sequence[Logic], states: Sequence[pa.Array]) -> Iterator[tuple[Logic, Sequence[pa.Array]]]:
    """Each aggregate with its columns of a state."""
    at = 0
    for logic in logics:
        yield logic, states[at : at + len(logic.fields)]
        at += len(logic.fields)


def _copies(logics: Sequence[Logic], spans: Spans, low: int, high: int) -> float:
    """How many states, and elements of lists in them, would be copied if all these windows were computed at once."""
    copies = np.minimum(spans.end, high) - np.maximum(spans.begin, low) + 1
    weight = None
    for logic, states in of_each(logics, spans.states):
        for state in states:
            if pa.types.is_list(state.type) and not isinstance(logic, OverWindows):
                lengths = as_numpy(pc.list_value_length(state))
                weight = np.maximum(lengths, 1 if weight is None else weight)
    # In floats: what is far too much must not overflow.
    return float((copies if weight is None else copies * weight.astype(np.float64)).sum(dtype=np.float64))


def _merge_common(logics: Sequence[Logic], spans: Spans, low: int, high: int) -> Spans:
    """The same with one state per key for all that take part in every one of these windows."""
    common = (spans.begin <= low) & (spans.end >= high)
    which = np.flatnonzero(common)
    grouped = group(spans.codes[which].astype(np.int64, copy=False), spans.bound)
    if grouped.size == len(which):
        return spans
    merged = merged_states(logics, spans.states, which, grouped.groups, grouped.size)
    rest = spans.take(np.flatnonzero(~common))
    of_key = which[grouped.first]
    return Spans(
        [concat_states(one, other) for one, other in zip(merged, rest.states, strict=True)],
        np.concatenate([spans.rows[of_key], rest.rows]),
        np.concatenate([spans.codes[of_key], rest.codes]),
        spans.bound,
        np.concatenate([np.full(grouped.size, low), rest.begin]),
        np.concatenate([np.full(grouped.size, high), rest.end]),
    )


def _emit(logics: Sequence[Logic], spans: Spans, low: int, high: int) -> Emitted:
    """The results of these windows; each state is taken once for each of its windows, but by aggregates that need not."""
    begin, end = np.maximum(spans.begin, low), np.minimum(spans.end, high)
    times = end - begin + 1
    take, windows = expand_ranges(begin, times)
    seen, places = distinct(windows)
    bound = spans.bound
    grouped = group(places * bound + spans.codes[take], len(seen) * bound)
    of_slot = take[grouped.first]
    values: list[pa.Array] = []
    merged: dict[Hashable, list[pa.Array]] = {}
    for logic, states in of_each(logics, spans.states):
        if isinstance(logic, OverWindows):
            # A state's windows all occur, so they are neighbours among those that do.
            first = np.searchsorted(seen, begin)
            slots = WindowSlots(
                spans.codes, first, first + times - 1, spans.codes[of_slot], (grouped.ids // bound).astype(np.int64)
            )
            values.append(logic.over(states, slots))
        else:
            same = state_of(logic)
            if same not in merged:
                merged[same] = logic.merge(states, take, grouped.groups, grouped.size)
            values.append(logic.finish(merged[same]))
    return Emitted(seen[grouped.ids // bound], spans.rows[of_slot], values)
