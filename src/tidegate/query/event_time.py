"""Event time: which times there are, how long a duration is, and how far ahead of the clock a tuple may lie.

Times are int64 microseconds, whose ends stand for −∞ and +∞. Spark's times end with the year 9999, which is where the
watermark goes when input ends. Tuples from outside lie in the years 1 to 8999, and no window is longer than 999 years: so
every window of every tuple ends in time on every runtime, and no sum of a time and a length overflows.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from numbers import Number
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tidegate.errors import DataError, QueryError

if TYPE_CHECKING:
    from tidegate.query.nodes import Source

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Array = np.ndarray[Any, Any]

EARLIEST_US = -62_135_596_800_000_000
"""0001-01-01, the first event time."""
AFTER_LATEST_US = 221_845_392_000_000_000
"""9000-01-01: event times lie before it."""
END_US = 253_370_764_800_000_000
"""9999-01-01: from this watermark on input has ended."""
LONGEST_US = END_US - AFTER_LATEST_US
"""999 years: no window, with its lateness, is longer."""

UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
SHORT = {"us": "microsecond", "ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day"}

_TERM = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")

Duration = str | timedelta | Literal[0]


def in_microseconds(moment: datetime) -> int:
    """Event time of a moment; one without a zone is UTC."""
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


def show_moment(time: int) -> str:
    """A time in microseconds as people read it, where there is a calendar for it.

    >>> show_moment(1_000_000), show_moment(1_500_000), show_moment(2**62)
    ('1970-01-01 00:00:01', '1970-01-01 00:00:01.500000', '4611686018427387904 µs')
    """
    try:
        return f"{(EPOCH + timedelta(microseconds=time)).replace(tzinfo=None)}"
    except OverflowError:
        return f"{time} µs"


def check_times(times: Array, subject: str, column: str, latest: int | None = None) -> None:
    """Refuse a batch with a time that no tuple may have; costs its least time, and its latest unless that is known."""
    if len(times) == 0 or (
        times.min() >= EARLIEST_US and (times.max() if latest is None else latest) < AFTER_LATEST_US
    ):
        return
    row = int(np.flatnonzero((times < EARLIEST_US) | (times >= AFTER_LATEST_US))[0])
    raise DataError(
        f"{subject}: row {row} of a batch has the event time {times[row]} in '{column}', in microseconds since 1970; event "
        "times lie from 0001-01-01 to 8999-12-31. Is it in another unit? Convert it, or filter it out before it is read"
    )


def parse_duration(value: Duration, subject: str) -> int:
    """Microseconds of ``value``: '90 seconds', '1 hour 30 minutes', '500ms', or a timedelta.

    A number without unit is refused, except for 0, which is the same in all of them.

    >>> parse_duration("1 hour 30 minutes", "window")
    5400000000
    """
    microseconds = _microseconds(value, subject)
    if microseconds < 0:
        raise QueryError(f"{subject} must not be negative; got {value!r}")
    if microseconds > LONGEST_US:
        shown = str(value) if len(str(value)) < 40 else f"{str(value)[:40]}…"
        raise QueryError(f"{subject}: {shown} is longer than the 999 years that a duration may have")
    return microseconds


def _microseconds(value: Duration, subject: str) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        return 0
    if isinstance(value, Number) and not isinstance(value, bool):
        raise QueryError(
            f"{subject}: {value} has no unit; write '{value} seconds', '{value} microseconds' or timedelta(seconds={value})"
        )
    if not isinstance(value, str):
        raise QueryError(
            f"{subject}: a duration is text such as '10 seconds', or a timedelta; got {value!r} ({type(value).__name__})"
        )
    total, position = 0, 0
    text = value.strip().lower()
    while position < len(text):
        term = _TERM.match(text, position)
        unit = term and (SHORT.get(term[2]) or term[2].removesuffix("s"))
        if term is None or unit not in UNITS_US:
            raise QueryError(
                f"{subject}: cannot read the duration {value!r}; write a whole number and a unit "
                f"({', '.join(UNITS_US)}), as in '90 seconds' or '1 hour 30 minutes'"
            )
        # Python refuses to read numbers of thousands of digits.
        total += (int(term[1]) if len(term[1]) < 20 else LONGEST_US + 1) * UNITS_US[unit]
        position = term.end()
    if not text:
        raise QueryError(f"{subject}: the duration is empty; write for example '10 seconds'")
    return total


def format_duration(microseconds: int) -> str:
    """The shortest exact text of a duration in its largest whole unit.

    >>> format_duration(5_400_000_000)
    '90 minutes'
    """
    for unit, length in reversed(UNITS_US.items()):
        if unit != "week" and microseconds and microseconds % length == 0:
            count = microseconds // length
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "0 seconds"


def ahead_bound(source: Source, clock: int | None, newest: int | None) -> int | None:
    """The latest event time a tuple may have: ``ahead`` after the clock, or after the stream's newest time; None if any."""
    since = clock if source.ahead_of == "clock" else newest
    return None if since is None or source.ahead_us is None else since + source.ahead_us


def ahead_reason(source: Source, time: int, clock: int) -> str:
    """Why a tuple too far in the future is set aside."""
    return f"'{source.time}' is {show_moment(time)}, {_beyond(source)} the clock ({show_moment(clock)})"


def ahead_notice(source: Source, what: str, clock: int) -> str:
    """The warning given once for a stream of which something is set aside, such as «row 7 has 2200-01-01 in 'ts'»."""
    return (
        f"stream '{source.name}': {what}, {_beyond(source)} the clock ({show_moment(clock)}); it and its like are set aside "
        "and counted, and move no watermark. If they are meant, allow more, as in tg.stream(..., ahead='2 days'), or all "
        "with ahead=None"
    )


def ahead_error(source: Source, what: str, newest: int) -> DataError:
    """The error that stops the run where the bound is the stream itself."""
    return DataError(
        f"stream '{source.name}': {what}, {_beyond(source)} {show_moment(newest)}, the newest time before it "
        "(ahead_of='stream'). If it is wrong, leave it out; if it is meant, allow more: tg.stream(..., ahead='2 days')"
    )


def _beyond(source: Source) -> str:
    return f"more than {format_duration(source.ahead_us or 0)} after"
