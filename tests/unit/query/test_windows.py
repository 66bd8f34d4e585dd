"""Windows and their slices, against the definition written out."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import QueryError
from tidegate.query.event_time import format_duration, parse_duration
from tidegate.query.windows import Window

windows = st.tuples(st.integers(1, 50), st.integers(1, 50)).map(lambda pair: Window(max(pair), min(pair)))
times = st.integers(-500, 500)


def members(window: Window, time: int) -> list[int]:
    """The windows of a time, by the definition: n·every ≤ τ < n·every + size."""
    return [n for n in range(-1200, 1200) if n * window.every <= time < n * window.every + window.size]


@given(windows, times)
def test_covering_is_the_definition(window: Window, time: int) -> None:
    assert list(window.covering(time)) == members(window, time)


@given(windows, times)
def test_the_windows_of_a_slice_are_those_of_each_of_its_times(window: Window, time: int) -> None:
    slice_id = window.slice_of(time)
    assert window.slice_start(slice_id) <= time
    assert list(range(window.first_window(slice_id), window.last_window(slice_id) + 1)) == members(window, time)
    assert window.end(window.last_window(slice_id)) == window.end(members(window, time)[-1])


@given(windows, st.integers(-20, 20))
def test_the_slices_of_a_window_are_its_times(window: Window, number: int) -> None:
    inside = range(window.start(number), window.end(number))
    assert list(window.slices(number)) == sorted({window.slice_of(time) for time in inside})


@given(windows)
def test_there_are_at_most_two_slices_an_advance(window: Window) -> None:
    assert len({window.slice_of(time) for time in range(window.every)}) == (1 if window.size % window.every == 0 else 2)


@given(windows, st.lists(times))
def test_slices_of_many_times_at_once(window: Window, moments: list[int]) -> None:
    made = window.slice_of(np.array(moments, np.int64))
    assert np.asarray(made).tolist() == [window.slice_of(time) for time in moments]


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("90 seconds", 90_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("500ms", 500_000),
        ("1 day", 86_400_000_000),
        (timedelta(microseconds=7), 7),
    ],
)
def test_durations(text: str | timedelta, microseconds: int) -> None:
    assert parse_duration(text, "x") == microseconds
    assert parse_duration(format_duration(microseconds), "x") == microseconds


@pytest.mark.parametrize("text", ["", "5", "five minutes", "5 parsecs", "-3 seconds", "1.5 hours", None])
def test_what_is_no_duration_is_refused_with_the_units(text: str) -> None:
    with pytest.raises(QueryError, match=r"step 'w': size.*(second|duration)"):
        parse_duration(text, "step 'w': size")
