"""The state of one stage: the rows of each key, by slices of time, until every window they lie in has expired.

Rows are kept once, however many windows they lie in: a slice is as long as the greatest common divisor of a window's size
and its advance, and the bag of a window is what its slices hold. Windows expire in the order of their starts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import gt, itemgetter
from typing import Any, TypeAlias, cast

from tidegate.errors import DataError
from tidegate.micro.graph import AggregateStage, BagsFunction, Key, Row, RowsFunction, WindowFunction
from tidegate.query.event_time import show_moment
from tidegate.watermark import END, START, Watermark

_time = itemgetter(0)
MOST_COPIED_ROWS = 50_000
"""When many overlapping windows expire together, so many rows are gathered for them at a time."""
Slices = Mapping[int, Mapping[Key, list[Row]]]
"""Rows by the start of their slice and their key."""
Bag: TypeAlias = tuple[Key, int, list[Row]]
"""The key, the start of the window, and its rows."""


class WindowBags:
    """The rows of a stage by slice and key."""

    def __init__(self, stage: AggregateStage) -> None:
        self._stage = stage
        self._width = math.gcd(stage.window.size, stage.window.every)
        self._slices: dict[int, dict[Key, list[Row]]] = {}
        self._next_end = END
        self.watermark: Watermark = START

    def sliced(self, rows: list[Row]) -> dict[int, dict[Key, list[Row]]]:
        """Rows by slice and key; a failure of the key function names the row."""
        slices: dict[int, dict[Key, list[Row]]] = {}
        width, key = self._width, self._stage.key
        low = high = 0
        bags: dict[Key, list[Row]] = {}
        row: Row = ()
        try:
            for row in rows:
                if not low <= row[0] < high:
                    low = row[0] - row[0] % width
                    high = low + width
                    found = slices.get(low)
                    bags = slices[low] = defaultdict(list) if found is None else found
                bags[row if key is None else key(row)].append(row)
        except Exception as error:
            raise DataError(
                f"stage '{self._stage.name}': the key function raised {type(error).__name__}: {error} on the row {row!r}"
            ) from error
        return slices

    def add(self, rows: list[Row]) -> None:
        """Take rows."""
        self.merge(self.sliced(rows))

    def merge(self, slices: Slices) -> None:
        """Take rows that are sliced already."""
        kept = self._slices
        for start, bags in slices.items():
            mine = kept.get(start)
            if mine is None:
                kept[start] = dict(bags)
                self._next_end = min(self._next_end, self._first_end(start))
                continue
            for key, rows in bags.items():
                held = mine.get(key)
                if held is None:
                    mine[key] = rows
                else:
                    held += rows

    def advance(self, watermark: Watermark) -> list[Row]:
        """The results of the windows that expire, earliest first; what no open window needs is dropped."""
        before, self.watermark = self.watermark, watermark
        if watermark < self._next_end:
            return []
        out: list[Row] = []
        bags: list[Bag] = []
        size, every, slices = self._stage.window.size, self._stage.window.every, self._slices
        starts = sorted(slices)
        if size == every:
            for start in starts:
                if start + size > watermark:
                    break
                bags += [(key, start, rows) for key, rows in slices.pop(start).items()]
        else:
            closed, last, copied = (before - size) // every, (watermark - size) // every, 0
            for first in starts:
                covering = range(max(closed, (first - size) // every) + 1, min(last, first // every) + 1)
                for number in covering:
                    start, closed = number * every, number
                    gathered = self._gather(start, starts)
                    bags += [(key, start, rows) for key, rows in gathered.items()]
                    copied += sum(map(len, gathered.values()))
                    if copied > MOST_COPIED_ROWS:
                        out += results_of(self._stage, bags)
                        bags, copied = [], 0
            for start in starts:
                if start // every * every + size > watermark:
                    break
                del slices[start]
        self._next_end = min((self._first_end(start) for start in slices), default=END)
        return out + results_of(self._stage, bags)

    def snapshot(self) -> tuple[Watermark, dict[int, dict[Key, list[Row]]]]:
        """All that it knows."""
        return self.watermark, self._slices

    def restore(self, watermark: Watermark, slices: Slices, mine: Callable[[Key], bool]) -> None:
        """Take what a snapshot holds of the keys that this process owns."""
        self.watermark = watermark
        self.merge({start: {key: rows for key, rows in bags.items() if mine(key)} for start, bags in slices.items()})

    def _first_end(self, start: int) -> int:
        """When the first window that a slice lies in, and that has not expired, ends."""
        size, every = self._stage.window.size, self._stage.window.every
        number = max((start - size) // every, (self.watermark - size) // every) + 1
        return number * every + size

    def _gather(self, start: int, starts: list[int]) -> dict[Key, list[Row]]:
        """The bags of a window that covers several slices."""
        bags: dict[Key, list[Row]] = defaultdict(list)
        for first in starts[bisect_left(starts, start) : bisect_left(starts, start + self._stage.window.size)]:
            for key, rows in self._slices[first].items():
                bags[key] += rows
        return bags


class InstantRows(WindowBags):
    """The rows of a stage whose function distributes and whose windows last one microsecond: a Map, Filter or FlatMap.

    A row is a bag of its own, at its own time, so rows wait for the watermark in the order of arrival and need no keys.
    """

    def __init__(self, stage: AggregateStage) -> None:
        super().__init__(stage)
        self._waiting: list[Row] = []

    def add(self, rows: list[Row]) -> None:
        self._waiting += rows

    def advance(self, watermark: Watermark) -> list[Row]:
        self.watermark = watermark
        self._waiting.sort(key=_time)
        settled = bisect_left(self._waiting, watermark, key=_time)
        due, self._waiting = self._waiting[:settled], self._waiting[settled:]
        if self._stage.at_once:
            return self._mapped(due) if due else []
        function = cast(WindowFunction, self._stage.function)
        out: list[Row] = []
        row: Row = ()
        try:
            for row in due:
                time = row[0]
                for values in function(row, time, (row,)):
                    out.append((time, *values))
        except Exception as error:
            raise failed_function(self._stage, row, row[0], error) from error
        return out

    def _mapped(self, due: list[Row]) -> list[Row]:
        """What the function gives for rows that settle together, in the order of time."""
        stage = self._stage
        try:
            out = list(cast(RowsFunction, stage.function)(due))
            times = list(map(_time, out))
        except Exception as error:
            raise failed_function(stage, due[:3], due[0][0], error) from error
        first, last = due[0][0], due[-1][0]
        if times and not (first <= min(times) and max(times) <= last):
            strange = next(time for time in times if not first <= time <= last)
            raise DataError(
                f"stage '{stage.name}': the function gave a row the time {show_moment(strange)}, and its rows lie from "
                f"{show_moment(first)} to {show_moment(last)}; one that distributes keeps the times of its rows"
            )
        if any(map(gt, times, islice(times, 1, None))):
            out.sort(key=_time)
        return out

    def snapshot(self) -> tuple[Watermark, dict[int, dict[Key, list[Row]]]]:
        return self.watermark, {0: {None: self._waiting}}

    def restore(self, watermark: Watermark, slices: Slices, mine: Callable[[Key], bool]) -> None:
        self.watermark = watermark
        self._waiting += [row for bags in slices.values() for rows in bags.values() for row in rows]


def results_of(stage: AggregateStage, bags: Sequence[Bag]) -> list[Row]:
    """Run the function of a stage on bags, in the order of their windows."""
    out: list[Row] = []
    last = stage.window.size - 1
    if stage.at_once and bags:
        at_once = cast(BagsFunction, stage.function)
        try:
            for (_, start, _), found in zip(bags, at_once(bags), strict=True):
                out += [(start + last, *values) for values in found]
        except Exception as error:
            raise failed_function(stage, [key for key, _, _ in bags[:3]], bags[0][1], error) from error
        return out
    function = cast(WindowFunction, stage.function)
    key: Any = None
    start = 0
    try:
        for key, start, rows in bags:
            time = start + last
            out += [(time, *values) for values in function(key, start, rows)]
    except Exception as error:
        raise failed_function(stage, key, start, error) from error
    return out


def failed_function(stage: AggregateStage, key: Key, start: int, error: Exception) -> DataError:
    """What is said of a user's function that failed: stage, key and window."""
    window = f"[{show_moment(start)}, {show_moment(start + stage.window.size)})"
    return DataError(
        f"stage '{stage.name}': the function raised {type(error).__name__}: {error} on key {key!r} in the window {window}"
    )


def bags_of(stage: AggregateStage) -> WindowBags:
    """The state that suits a stage."""
    return InstantRows(stage) if stage.distributes else WindowBags(stage)
